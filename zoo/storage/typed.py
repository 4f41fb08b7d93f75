"""Values of a file, checked against the dataclass that they become."""

import dataclasses
import difflib
import functools
import types
import typing
from collections.abc import Sequence
from typing import Any, TypeVar

from zoo.storage.errors import quote, quote_key

T = TypeVar("T")
_NAMES = {int: "an integer", float: "a number", bool: "true or false", str: "a text", dict: "an object", list: "a list"}


def to_dataclass(cls: type[T], values: Any, name: str, others: bool = False) -> T:
    """Returns the dataclass that an object of a file describes.

    Args:
        cls: The dataclass. Annotations may be `int`, `float`, `bool`, `str`, `None`, `Any`, `dict[str, ...]`,
            `list[...]`, `Sequence[...]`, `tuple[...]`, `Literal[...]`, dataclasses, and unions of these.
        values: The object.
        name: File and key of the object, for errors, for example `"tokenizer.json: model"`.
        others: Whether the object may have keys that the dataclass does not have. They are ignored.

    Raises:
        ValueError: If a key is missing, unknown, or has a value of another type. The message names file and key.

    Example:

    >>> to_dataclass(AddedToken, {"id": "3", "content": "<pad>"}, "tokenizer.json: added_tokens[0]")
    ValueError: tokenizer.json: added_tokens[0].id must be an integer, got '3'.
    """
    if not isinstance(values, dict):
        require_type(values, dict[str, Any], name)
    fields = {field.name: field for field in dataclasses.fields(cls)}
    hints = _hints(cls)
    for key in values:
        if key not in fields and not others:
            near = difflib.get_close_matches(key[:100], fields, n=1)
            hint = f" Did you mean {near[0]!r}?" if near else ""
            raise ValueError(f"{_joined(name, key)} is not known.{hint} Known: {', '.join(sorted(fields))}.")
    missing = dataclasses.MISSING
    for key, field in fields.items():
        if key not in values and field.default is missing and field.default_factory is missing:
            raise ValueError(f"{_joined(name, key)} is missing.")
    arguments = {key: values[key] for key in fields if key in values}
    for key, value in arguments.items():
        if type(value) is not hints[key]:  # lists have thousands of objects, most of them of plain values
            arguments[key] = _converted(value, hints[key], _joined(name, key))
    return cls(**arguments)


@functools.cache
def _hints(cls: type) -> dict[str, Any]:
    return typing.get_type_hints(cls)


def _joined(name: str, key: str) -> str:
    key = quote_key(key, most=80)
    return f"{name}: {key}" if ": " not in name else f"{name}.{key}"


def require_type(value: Any, hint: Any, name: str) -> None:
    """Raises a ValueError unless a value of a file has the type of an annotation.

    Args:
        value: The value.
        hint: As for the fields of `to_dataclass`. An integer passes for a float, a boolean for neither.
        name: File and key of the value.
    """
    _converted(value, hint, name)


def _converted(value: Any, hint: Any, name: str) -> Any:
    if hint is Any:
        return value
    origin, options = typing.get_origin(hint), typing.get_args(hint)
    if origin in (types.UnionType, typing.Union):
        for option in options:
            if _fits_outside(value, option):
                return _converted(value, option, name)
    elif dataclasses.is_dataclass(hint):
        return to_dataclass(hint, value, name)
    elif _fits_outside(value, hint):
        if origin is dict and options[1] is not Any:
            # most entries of large files are plain and right: their names are not made
            return {
                key: entry if type(entry) is options[1] else _converted(entry, options[1], _joined(name, key))
                for key, entry in value.items()
            }
        if origin in (list, Sequence) and options[0] is not Any:
            return [
                entry if type(entry) is options[0] else _converted(entry, options[0], f"{name}[{index}]")
                for index, entry in enumerate(value)
            ]
        if origin is tuple:
            if options[-1] is Ellipsis:
                options = options[:1] * len(value)
            if len(options) == len(value):
                pairs = enumerate(zip(value, options, strict=True))
                return tuple(_converted(entry, option, f"{name}[{index}]") for index, (entry, option) in pairs)
        else:
            return value
    raise ValueError(f"{name} must be {_words(hint)}, got {quote(value)}.")


def _fits_outside(value: Any, hint: Any) -> bool:
    """Whether a value is of the kind of an annotation; its entries are not looked at."""
    origin = typing.get_origin(hint) or hint
    if origin is typing.Literal:
        return any(value == option and type(value) is type(option) for option in typing.get_args(hint))
    if hint is None or hint is type(None):
        return value is None
    if hint is Any:
        return True
    if dataclasses.is_dataclass(hint):
        return isinstance(value, dict)
    if origin in (int, float):
        return isinstance(value, int if origin is int else (int, float)) and not isinstance(value, bool)
    # a text is a sequence, too
    return isinstance(value, (list, tuple) if origin in (tuple, Sequence) else origin)


def _words(hint: Any) -> str:
    origin, options = typing.get_origin(hint) or hint, typing.get_args(hint)
    if origin in (types.UnionType, typing.Union):
        return " or ".join(_words(option) for option in options)
    if origin is typing.Literal:
        return f"one of {options}" if len(options) > 1 else repr(options[0])
    if hint is None or hint is type(None):
        return "null"
    if dataclasses.is_dataclass(hint):
        return "an object"
    if origin in (list, tuple, Sequence) and options:
        each = [_words(option) for option in options if option is not Ellipsis]
        return (
            f"a list of {each[0]}"
            if origin in (list, Sequence) or options[-1] is Ellipsis
            else f"a list of {', '.join(each)}"
        )
    return _NAMES.get(origin, getattr(origin, "__name__", str(origin)))
