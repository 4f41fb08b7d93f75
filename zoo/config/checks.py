"""Checks of configurations, how they come out of plain dictionaries, and what of them layers take."""

import dataclasses
import difflib
import types
import typing
from typing import Any

from layers.constructor_arguments import constructor_arguments


def shorten(value: Any) -> str:
    """Returns a value as errors show it: no more than 300 characters.

    Args:
        value: The value.

    Example:

    >>> shorten("x" * 1000)[-26:]
    'xxxxx... (1002 characters)'
    """
    text = repr(value)
    return text if len(text) <= 300 else f"{text[:300]}... ({len(text)} characters)"


class ChoiceError(ValueError):
    """A choice of a configuration that is not allowed."""


def require(holds: bool, argument: str, value: Any, allowed: str) -> None:
    """Raises a ChoiceError that names an argument, its value and what is allowed, unless a condition holds.

    Args:
        holds: The condition.
        argument: Name of the argument.
        value: Its value.
        allowed: What is allowed, in words.

    Example:

    >>> require(-1 > 0, "hidden_dim", -1, "above 0")
    ChoiceError: hidden_dim must be above 0, got -1.
    """
    if not holds:
        raise ChoiceError(f"{argument} must be {allowed}, got {shorten(value)}.")


def require_positive(config: Any, prefix: str, *names: str) -> None:
    """Raises a ValueError where a field is neither None nor above 0.

    Args:
        config: A configuration.
        prefix: What stands before the names in the error, for example "attention.".
        *names: Names of the fields.
    """
    for name in names:
        value = getattr(config, name)
        require(value is None or value > 0, prefix + name, value, "above 0")


def require_rates(config: Any, prefix: str, *names: str) -> None:
    """Raises a ValueError where a field is a rate out of [0, 1). The arguments are those of `require_positive`."""
    for name in names:
        value = getattr(config, name)
        require(0 <= value < 1, prefix + name, value, "in [0, 1)")


def require_in_use(config: Any, prefix: str, *rules: tuple[str, Any, str]) -> None:
    """Raises a ValueError where a field that would have no effect differs from its default.

    Args:
        config: A configuration.
        prefix: What stands before the names in the error.
        *rules: For each field its name, whether it has an effect, and where it has none, in words.

    Example:

    >>> require_in_use(NormConfig(shared=False), "norm.", ("shared", False, "with norm.placement='post'"))
    ChoiceError: norm.shared must be True with norm.placement='post', got False.
    """
    defaults = {field.name: field.default for field in dataclasses.fields(config)}
    for name, is_used, where in rules:
        value, default = getattr(config, name), defaults[name]
        require(is_used or value == default, prefix + name, value, f"{default!r} {where}")


def require_types(config: Any, prefix: str = "") -> None:
    """Raises a ValueError where a field has another type than its annotation says.

    Args:
        config: A configuration, a dataclass.
        prefix: What stands before the names in the error.
    """
    hints = typing.get_type_hints(type(config))
    for name in (field.name for field in dataclasses.fields(config)):
        value, hint = getattr(config, name), hints[name]
        kind = hint.__name__ if isinstance(hint, type) else hint
        require(is_of_type(value, hint), prefix + name, value, f"of type {kind}")


def arguments_of(layer: type, config: Any) -> dict[str, Any]:
    """Returns the fields of a configuration that are arguments of a layer, with their values.

    Args:
        layer: The class of the layer.
        config: The configuration, a dataclass.

    Example:

    >>> arguments_of(Latents, AttentionConfig(use_bias=False))
    {'use_bias': False}
    """
    names = constructor_arguments(layer)
    return {field.name: getattr(config, field.name) for field in dataclasses.fields(config) if field.name in names}


def require_pattern(argument: str, pattern: tuple[bool, ...] | None) -> None:
    """Raises a ValueError where a repeating pattern of layers has no entry.

    Args:
        argument: Name of the argument.
        pattern: Its value.
    """
    require(pattern != (), argument, pattern, "None or not empty")


def in_pattern(pattern: tuple[bool, ...] | None, index: int) -> bool:
    """Whether a layer has what a repeating pattern says of the layers; all have where there is no pattern.

    Args:
        pattern: Whether the first layers have it, and so on from the beginning; None for all.
        index: Number of the layer, from 0.

    Example:

    >>> [in_pattern((True, True, False), index) for index in range(4)]
    [True, True, False, True]
    """
    return pattern is None or pattern[index % len(pattern)]


def count_in_pattern(pattern: tuple[bool, ...] | None, num_layers: int) -> int:
    """How many layers have what a repeating pattern says, see `in_pattern`.

    Args:
        pattern: The pattern, None for all.
        num_layers: Number of layers, which may be any number: nothing of that size is made.
    """
    if pattern is None:
        return num_layers
    return num_layers // len(pattern) * sum(pattern) + sum(pattern[: num_layers % len(pattern)])


def is_of_type(value: Any, hint: Any) -> bool:
    """Whether a value has the type of an annotation; integers pass for floats, booleans for neither.

    Args:
        value: The value.
        hint: A class, a union, or a tuple of these.

    Example:

    >>> is_of_type((3, None), tuple[int | None, int | None])
    True
    """
    if isinstance(hint, types.UnionType):
        return any(is_of_type(value, option) for option in typing.get_args(hint))
    if typing.get_origin(hint) is tuple:
        options = typing.get_args(hint)
        if not isinstance(value, tuple):
            return False
        if options[-1] is Ellipsis:
            return all(is_of_type(entry, options[0]) for entry in value)
        return len(value) == len(options) and all(map(is_of_type, value, options))
    if hint in (int, float):
        return isinstance(value, int if hint is int else (int, float)) and not isinstance(value, bool)
    return isinstance(value, typing.get_origin(hint) or hint)


def configuration_from_dict(cls: type, values: dict[str, Any], path: str) -> Any:
    """Returns a configuration of nested dictionaries, lists becoming tuples where the annotation says so.

    Args:
        cls: Class of the configuration.
        values: Values of its fields.
        path: What stands before the names in errors; empty for the outermost.

    Raises:
        ValueError: If a key is unknown (naming the nearest), missing, or its value is not allowed.
    """
    fields = {field.name: field for field in dataclasses.fields(cls)}
    hints = typing.get_type_hints(cls)
    arguments = {}
    for key, value in values.items():
        if key not in fields:
            near = difflib.get_close_matches(key[:100], fields, n=1)
            hint = f" Did you mean {path + near[0]!r}?" if near else ""
            raise ValueError(
                f"The keys of a configuration must be known ones, got {shorten(path + key)}.{hint} "
                f"Known: {', '.join(sorted(fields))}."
            )
        hint = hints[key]
        part = next((option for option in (hint, *typing.get_args(hint)) if dataclasses.is_dataclass(option)), None)
        if part is not None and not (value is None and is_of_type(value, hint)):
            require(isinstance(value, dict), path + key, value, "a dictionary")
            value = configuration_from_dict(part, value, f"{path}{key}.")
        elif isinstance(value, list) and _admits_tuple(hint):
            value = tuple(value)
        arguments[key] = value
    missing = [
        name
        for name, field in fields.items()
        if name not in arguments
        and field.default is dataclasses.MISSING
        and field.default_factory is dataclasses.MISSING
    ]
    if missing:
        raise ValueError(
            f"The configuration must have {', '.join(path + name for name in missing)}, got only "
            f"{', '.join(path + name for name in arguments) or 'an empty one'}."
        )
    return cls(**arguments)


def _admits_tuple(hint: Any) -> bool:
    if isinstance(hint, types.UnionType):
        return any(_admits_tuple(option) for option in typing.get_args(hint))
    return typing.get_origin(hint) is tuple
