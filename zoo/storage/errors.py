"""Errors about what is in a file: they name it, and show no more of a value than one can read."""

import contextlib
import os
from collections.abc import Iterator
from typing import Any

MOST_CHARACTERS = 200


def quote(value: Any, most: int = MOST_CHARACTERS, plain: bool = False) -> str:
    """Returns the text that shows a value in an error message. Long values are cut.

    Args:
        value: The value.
        most: Largest number of characters to show.
        plain: Whether `value` is text to show without quotation marks.

    Example:

    >>> quote("x" * 300_000, most=4)
    "'xxx... (300000 characters)"
    """
    if not plain and isinstance(value, (list, tuple, dict, set, frozenset)) and len(value) > most:
        return f"a {type(value).__name__} of {len(value)} entries"
    if not plain and isinstance(value, (str, bytes)):
        text, length = repr(value[: 2 * most]), len(value)
    else:
        text = value if plain else _representation(value)
        length = len(text)
    return text if len(text) <= most else f"{text[:most]}... ({length} characters)"


def quote_key(key: str, most: int = MOST_CHARACTERS // 2) -> str:
    """Returns the text that shows a key of a file in an error message, in quotation marks if it would be invisible.

    Args:
        key: The key, which may be empty, very long, or contain control characters.
        most: Largest number of characters to show.

    Example:

    >>> quote_key("model.norm.weight"), quote_key("")
    ('model.norm.weight', "''")
    """
    return quote(key, most, plain=key.isprintable() and key.strip() == key != "")


def _representation(value: Any) -> str:
    try:
        return repr(value)
    except (ValueError, RecursionError):  # a number of thousands of digits
        return f"a {type(value).__name__} that is too long to be shown"


@contextlib.contextmanager
def errors_of_file(source: str | os.PathLike[str]) -> Iterator[None]:
    """A context in which errors about values name a file.

    Args:
        source: The file.

    Raises:
        ValueError: The error raised inside, with the file in its message. Long messages are cut.

    Example:

    >>> with naming("config.json"):
    ...     TransformerConfig("encoder", vocabulary_size=-1)
    ValueError: config.json: vocabulary_size must be above 0, got -1.
    """
    source = os.fspath(source)
    try:
        yield
    except ValueError as error:
        text = str(error)
        if source in text and len(text) <= 10 * MOST_CHARACTERS:
            raise
        prefix = "" if source in text else f"{source}: "
        raise ValueError(prefix + quote(text, most=9 * MOST_CHARACTERS, plain=True)) from error
