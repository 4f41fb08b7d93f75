"""Errors about the choices of a configuration, in the words of the file that the choices are from."""

import contextlib
import re
from collections.abc import Iterator, Mapping


@contextlib.contextmanager
def renamed_in_errors(names: Mapping[str, str], kind: type[ValueError] = ValueError) -> Iterator[None]:
    """A context in which errors name the choices of a configuration as a file does.

    Args:
        names: The file's names by ours, see `renamed`. Names may be added inside the context.
        kind: Class of the errors that are changed.

    Raises:
        ValueError: The error raised inside, with the file's names.

    Example:

    >>> with renamed_in_errors({"attention.num_heads": "n_head"}):
    ...     AttentionConfig(num_heads=-1)
    ValueError: n_head must be above 0, got -1.
    """
    try:
        yield
    except kind as error:
        raise ValueError(renamed(str(error), names)) from error


def renamed(text: str, names: Mapping[str, str]) -> str:
    """Returns an error in the words of a file.

    Args:
        text: The error. Names are found as `attention.num_heads` everywhere, and as `num_heads` where "=" or " must "
            follows.
        names: The file's names by ours.

    Example:

    >>> renamed("attention.num_heads must be a divisor of hidden_dim=16", {"hidden_dim": "dim"})
    'attention.num_heads must be a divisor of dim=16'
    """
    theirs = {ours.rpartition(".")[2]: name for ours, name in names.items() if "." in ours} | dict(names)
    if not theirs:
        return text
    words = "|".join(re.escape(word) for word in sorted(theirs, key=len, reverse=True))

    def other(found: re.Match[str]) -> str:
        is_name = "." in found[1] or text.startswith(("=", " must "), found.end())
        return theirs[found[1]] if is_name else found[0]

    return re.sub(rf"(?<![\w.])(?:backbone\.)?({words})(?!\w|\.\w)", other, text)
