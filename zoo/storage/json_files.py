"""One reader for all JSON from outside: bounded before it is parsed, plain afterwards, errors with file and key."""

import itertools
import json
import math
import os
import re
from pathlib import Path
from typing import Any, NoReturn

from zoo.storage.errors import quote, quote_key

# tokenizer.json of the largest vocabularies published (262,144 tokens, 514,906 merges) has 33 MB
MOST_BYTES = 96 * 2**20
# ImageNet-21k has 21,843 labels, each of which is there twice
MOST_CONFIG_VALUES = 200_000
# an empty list takes 56 bytes and a number 24: what keeps the memory of small files near their size
MOST_CONTAINERS = 3_000_000
MOST_VALUES = 8_000_000
MOST_DEPTH = 32
_LONG_NUMBER = re.compile(rb"\d{1001,}")
_STRINGS_AND_BRACKETS = re.compile(rb'"(?:[^"\\]|\\.)*"|[\[\]{}]')
_KEY = re.compile(rb'"((?:[^"\\]|\\.)*)"\s*:')


def read_json(
    path: str | os.PathLike[str], most_bytes: int = MOST_BYTES, most_values: int | None = None, infinity: Any = math.inf
) -> dict[str, Any]:
    """Returns the object in a JSON file.

    Args:
        path: The file.
        most_bytes: Largest size that is read.
        most_values, infinity: As for `parse_json`.

    Raises:
        ValueError: If the file is larger, is not JSON or not an object, or breaks a limit of `parse_json`.
        FileNotFoundError: If the file does not exist.

    Example:

    >>> read_json("config.json")["model_type"]
    'bert'
    """
    content = read_bytes(path, most_bytes)
    return require_object(parse_json(content, str(path), most_values, infinity), str(path))


def read_bytes(path: str | os.PathLike[str], most_bytes: int) -> bytes:
    """Returns the content of a file.

    Args:
        path: The file.
        most_bytes: Largest size that is read.

    Raises:
        ValueError: If the file is larger, or not an ordinary file.
        FileNotFoundError: If the file does not exist.
    """
    path = Path(path)
    if not path.exists():
        raise FileNotFoundError(f"There is no file {path}.")
    if not path.is_file():  # a device or a pipe can be read for ever
        raise ValueError(f"{path} must be an ordinary file.")
    with open(path, "rb") as file:
        content = file.read(most_bytes + 1)
    if len(content) > most_bytes:
        raise ValueError(f"{path} must have at most {most_bytes} bytes, got {path.stat().st_size}.")
    return content


def parse_json(content: bytes, source: str, most_values: int | None = None, infinity: Any = math.inf) -> Any:
    """Returns the value of JSON text.

    Args:
        content: The text in UTF-8.
        source: Name of the file, for errors.
        most_values: Largest number of values, including commas in texts; None for 8 million.
        infinity: What the word `Infinity` stands for, which is no JSON but written by Python.

    Raises:
        ValueError: If the text is not JSON, is nested more than 32 deep, has too many values, has a key twice in one
            object, a number that is not finite, or an unpaired surrogate. The message names source and key.

    Example:

    >>> parse_json(b'{"a": [1, NaN]}', "config.json")
    ValueError: config.json: a[1] must be a finite number, got nan.
    """
    most_values = MOST_VALUES if most_values is None else most_values
    if content.count(b"[") + content.count(b"{") > MOST_CONTAINERS or content.count(b",") > most_values:
        position = _first_too_many(content, most_values)
        more = (
            "" if position is None else f", got more at byte {position}, after the key {_key_before(content, position)}"
        )
        raise ValueError(
            f"{source} must hold at most {most_values} values and {MOST_CONTAINERS} lists and objects{more}."
        )

    def without_duplicates(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
        values = dict(pairs)
        if len(values) != len(pairs):
            seen: set[str] = set()
            twice = next(key for key, _ in pairs if key in seen or seen.add(key))
            raise ValueError(f"the key {quote(twice, most=80)} occurs twice in one object")
        return values

    def constant(name: str) -> Any:
        return infinity if name == "Infinity" else float(name)

    try:
        values = json.loads(content.decode("utf-8"), object_pairs_hook=without_duplicates, parse_constant=constant)
    except RecursionError:
        position = _first_too_deep(content)
        key = _key_before(content, position)
        raise ValueError(
            f"{source}: {key} must be nested at most {MOST_DEPTH} deep, got more at byte {position}."
        ) from None
    except ValueError as error:  # no UTF-8, no JSON, a number of thousands of digits
        if type(error) is ValueError and (long := _LONG_NUMBER.search(content)):
            key = _key_before(content, long.start())
            raise ValueError(f"{source}: {key} must have at most 1000 digits, got {len(long[0])}.") from None
        raise ValueError(f"{source} is not valid JSON: {quote(str(error), plain=True)}.") from error
    _require_plain(values, source, has_surrogates=b"\\ud" in content.lower())
    return values


def _first_too_many(content: bytes, most: int) -> int | None:
    """Position of the first comma that is one too many; None where there is none."""
    commas = (found.start() for found in re.finditer(b",", content))
    return next(itertools.islice(commas, most, None), None)


def _first_too_deep(content: bytes) -> int:
    """Position of what is nested too deep for a parser."""
    depth = 0
    for found in _STRINGS_AND_BRACKETS.finditer(content):
        token = found[0]
        depth += (token in b"[{") - (token in b"]}")
        if depth > MOST_DEPTH:
            return found.start()
    return len(content)


def _key_before(content: bytes, position: int) -> str:
    """The last key before a position, as it is shown in an error."""
    keys = _KEY.findall(content[max(position - 10_000, 0) : position])
    return quote_key(keys[-1].decode("utf-8", "replace")) if keys else "the whole"


def _require_plain(values: Any, source: str, has_surrogates: bool) -> None:
    # a walk with a stack of its own: what is open, and at which key
    opened = [iter([("", values)])]
    keys: list[Any] = []

    def place() -> str:
        names = [f"[{key}]" if isinstance(key, int) else f".{quote_key(key)}" for key in keys[1:]]
        return quote("".join(names).removeprefix("."), plain=True) or "the whole"

    while opened:
        for key, value in opened[-1]:
            kind = type(value)
            if kind is dict or kind is list:
                keys.append(key)
                if len(keys) > MOST_DEPTH:
                    raise ValueError(f"{source}: {place()} must be nested at most {MOST_DEPTH} deep.")
                if has_surrogates and kind is dict:
                    for name in value:
                        _require_unicode(name, f"{source}: a key of {place()}")
                opened.append(iter(value.items() if kind is dict else enumerate(value)))
                break
            if kind is float and not math.isfinite(value):
                keys.append(key)
                raise ValueError(f"{source}: {place()} must be a finite number, got {value!r}.")
            if has_surrogates and kind is str:
                keys.append(key)
                _require_unicode(value, f"{source}: {place()}")
                keys.pop()
        else:
            opened.pop()
            if keys:
                keys.pop()


def _require_unicode(text: str, name: str) -> None:
    try:
        text.encode("utf-8")
    except UnicodeEncodeError:
        raise ValueError(f"{name} must be Unicode, got half of a surrogate pair: {quote(text)}.") from None


def require_object(value: Any, name: str) -> dict[str, Any]:
    """Returns a JSON object.

    Args:
        value: The value.
        name: What it is called in the error.

    Raises:
        ValueError: If it is something else.
    """
    if not isinstance(value, dict):
        _refuse(name, "an object", value)
    return value


def _refuse(name: str, allowed: str, value: Any) -> NoReturn:
    raise ValueError(f"{name} must be {allowed}, got {quote(value)}.")
