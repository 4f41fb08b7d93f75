"""A recipe's config: a dataclass of dataclasses, read from YAML files and the command line; running a recipe."""

from __future__ import annotations

import argparse
import copy
import dataclasses
import difflib
import json
import math
import operator
import os
import re
import shlex
import sys
import types
import typing
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any, TypeVar

import jsonargparse

from recipes.common.config_yaml import dump_yaml, read_word, read_yaml
from recipes.common.errors import ConfigError, RecipeError
from recipes.common.text_files import shown
from zoo.storage import write_text_atomically

Config = TypeVar("Config")

_REQUIRED = dataclasses.MISSING
_SURROGATES = re.compile("[\ud800-\udfff]")


def run_recipe(
    main: Callable[[Config], object], config_class: type[Config], name: str, arguments: Sequence[str] | None = None
) -> None:
    """Parses the command line, calls the recipe, and prints a user's mistake, or an interruption, as one message.

    Args:
        main: Takes the config and does the job.
        config_class: See `parse`.
        name: Name of the recipe, as in `python -m recipes.<name>`.
        arguments: Words of the command line; None means those of this process.

    Raises:
        SystemExit: With code 2 after a `RecipeError`, whose message goes to stderr, with 130 after Ctrl-C, and with 0
            after `--help`.

    Example:

    >>> if __name__ == "__main__":
    ...     run_recipe(main, TranslateConfig, "translate")
    """
    words = sys.argv[1:] if arguments is None else list(arguments)
    try:
        main(parse(config_class, words, prog=f"python -m recipes.{name}"))
    except RecipeError as error:
        print(f"recipes.{name}: error: {error}", file=sys.stderr)
        raise SystemExit(2) from error
    except KeyboardInterrupt as error:
        command = shlex.join(["python", "-m", f"recipes.{name}", *words])
        goes_on = "the same command goes on from the last saved state" if hasattr(config_class, "training") else "again"
        print(f"\nrecipes.{name}: interrupted; {goes_on}: {command}", file=sys.stderr)
        raise SystemExit(130) from error


def setting(
    default: Any = _REQUIRED,
    help: str = "",
    *,
    harmless: bool = False,
    least: float | None = None,
    most: float | None = None,
    above: float | None = None,
    below: float | None = None,
) -> Any:
    """A field of a config dataclass: its default, help text and bounds, and whether a resumed run may change it.

    Args:
        default: Default value; left out, the key must be given. Lists and dicts are copied for each config.
        help: One line for `--help`.
        harmless: True if the results of a run do not depend on the key, so that it may change on resume.
        least, most, above, below: Bounds of a number (None where there is none); numbers are finite in any case.

    Returns:
        A `dataclasses.Field`.

    Example:

    >>> @dataclasses.dataclass(frozen=True)
    ... class DataConfig:
    ...     train: list[str] = setting([], "Training files.")
    ...     seed: int = setting(1, "Seed of the order.")
    """
    bounds = {"at least": least, "above": above, "at most": most, "below": below}
    metadata = {"help": help, "harmless": harmless, "bounds": {k: v for k, v in bounds.items() if v is not None}}
    if isinstance(default, list | dict | set):
        return dataclasses.field(default_factory=lambda: type(default)(default), metadata=metadata)
    return dataclasses.field(default=default, metadata=metadata)


@dataclasses.dataclass(frozen=True)
class _Key:
    """A leaf of the config: `name` is dotted, `annotation` its type."""

    name: str
    annotation: Any
    default: Any
    help: str
    harmless: bool
    bounds: Mapping[str, float]


def parse(config_class: type[Config], arguments: Sequence[str], *, prog: str | None = None) -> Config:
    """Make a config from its defaults, YAML files and `--key value` overrides, in this order.

    `--config FILE.yaml` may be given several times; later files win. A key of a group is written `--group.key value`
    or `--group.key=value`; a list takes several words (`--data.train a.en a.de`). `--help` prints every key with its
    help text and default, and exits.

    Args:
        config_class: Dataclass whose fields are plain values (see `setting`) or dataclasses of the same kind.
        arguments: Words of the command line, without the program's name.
        prog: How the program is called, for `--help`.

    Returns:
        An instance of `config_class`.

    Raises:
        ConfigError: An unknown key (with the nearest known one), a wrong type, a missing value, a key given twice in
            a file, an unreadable file. Messages name the file and line, the key, its value and what is allowed.

    Example:

    >>> config = parse(TranslateConfig, ["--config", "multi30k_tiny.yaml", "--seed", "2"])
    """
    keys = {key.name: key for key in _keys(config_class)}
    groups = {name.rsplit(".", depth)[0] for name in keys for depth in range(1, name.count(".") + 1)}
    if any(word in ("-h", "--help") for word in arguments):
        print(_help_text(config_class, keys, prog), end="")
        raise SystemExit(0)
    values = {name: copy.deepcopy(key.default) for name, key in keys.items() if key.default is not _REQUIRED}
    files, overrides = _split_arguments(arguments, keys, groups)
    for file in files:
        for name, located in read_yaml(file, groups).items():
            if name not in keys:
                raise ConfigError(f"{located.origin}: {_unknown_key(name, keys, groups)}")
            values[name] = _typed(keys[name], located.value, located.origin)
    for name, words in overrides.items():
        values[name] = _typed_from_words(keys[name], words)
    for name, value in values.items():
        _check(keys[name], value)
    missing = [name for name in keys if name not in values]
    if missing:
        raise ConfigError(f"no value given for: {', '.join('--' + name for name in missing)}")
    return _build(config_class, values)


def save(config: Any, path: str | os.PathLike) -> None:
    """Write a config as YAML, atomically; `parse(type(config), ["--config", path])` gives an equal config.

    Args:
        config: A config (see `parse`).
        path: File to write.

    Example:

    >>> save(config, "run/config.yaml")
    """
    write_text_atomically(path, dump_yaml(_plain(config)))


def differences(old: Any, new: Any) -> dict[str, tuple[Any, Any]]:
    """The keys in which two configs of one class differ.

    Args:
        old: A config.
        new: Another config of the same class.

    Returns:
        Dotted key to (old value, new value), in the order of the fields; empty if the configs are equal.

    Raises:
        TypeError: The configs are of different classes.

    Example:

    >>> differences(Config(seed=1), Config(seed=2))
    {'seed': (1, 2)}
    """
    if type(old) is not type(new):
        raise TypeError(f"Only configs of one class can be compared; got {type(old).__name__}, {type(new).__name__}.")
    old_values, new_values = _flatten(old), _flatten(new)
    return {name: (value, new_values[name]) for name, value in old_values.items() if value != new_values[name]}


def harmless_keys(config_class: type) -> set[str]:
    """The dotted keys that a resumed run may change, marked with `setting(..., harmless=True)`."""
    return {key.name for key in _keys(config_class) if key.harmless}


def _keys(config_class: type, prefix: str = "", group_default: Any = None) -> list[_Key]:
    """The leaves of a config class; a group's default instance, where it has one, gives the defaults of its keys."""
    annotations = typing.get_type_hints(config_class)
    keys = []
    for field in dataclasses.fields(config_class):
        name, annotation = prefix + field.name, annotations[field.name]
        if group_default is not None:
            default = getattr(group_default, field.name)
        elif field.default_factory is not _REQUIRED and field.default_factory is not annotation:
            default = field.default_factory()
        else:
            default = field.default
        if dataclasses.is_dataclass(annotation):
            keys += _keys(annotation, name + ".", None if default is _REQUIRED else default)
            continue
        metadata = {"help": "", "harmless": False, **field.metadata, "bounds": _bounds(config_class, field.name)}
        keys.append(_Key(name, annotation, default, **metadata))
    return keys


def _bounds(config_class: type, name: str) -> Mapping[str, float]:
    """Those of a field; where it names none, those of the class whose field it replaces."""
    fields = (vars(kind).get("__dataclass_fields__", {}).get(name) for kind in config_class.__mro__)
    return next((field.metadata["bounds"] for field in fields if field and field.metadata.get("bounds")), {})


def _build(config_class: type, values: Mapping[str, Any], prefix: str = "") -> Any:
    annotations = typing.get_type_hints(config_class)
    arguments = {}
    for field in dataclasses.fields(config_class):
        name = prefix + field.name
        group = dataclasses.is_dataclass(annotations[field.name])
        arguments[field.name] = _build(annotations[field.name], values, name + ".") if group else values[name]
    try:
        return config_class(**arguments)
    except ConfigError:
        raise
    except ValueError as error:
        where = f"{prefix.rstrip('.')}: " if prefix else ""
        raise ConfigError(f"{where}{error}") from error


def _split_arguments(
    arguments: Sequence[str], keys: Mapping[str, _Key], groups: set[str]
) -> tuple[list[str], dict[str, list[str]]]:
    """Sort the words of the command line into config files and the words given for each key."""
    files, overrides = [], {}
    words = None
    for argument in arguments:
        if not argument.startswith("--"):
            if words is None:
                raise ConfigError(f"unexpected word {shown(argument)}; values follow a key: --key value")
            words.append(argument)
            continue
        name, equals, value = argument[2:].partition("=")
        words = [value] if equals else []
        if name == "config":
            files.append(words)
        elif name in keys:
            overrides[name] = words
        else:
            raise ConfigError(_unknown_key(name, keys, groups, dashes="--"))
    if any(len(words) != 1 for words in files):
        raise ConfigError("--config takes one file; give it again for a second one")
    return [words[0] for words in files], overrides


def _unknown_key(name: str, keys: Mapping[str, _Key], groups: set[str], dashes: str = "") -> str:
    if name in groups:
        members = ", ".join(dashes + key for key in keys if key.startswith(name + "."))
        return f"{dashes}{name} is a group of keys, not a key; its keys: {members}"
    near = max(keys, key=lambda key: _likeness(name, key))
    hint = f"did you mean {dashes}{near}?" if _likeness(name, near) >= 0.6 else "--help lists the known keys"
    return f"unknown key {dashes}{shown(name)[1:-1]}; {hint}"


def _likeness(name: str, key: str) -> float:
    """From 0 to 1: of the last parts, by letters or by words in any order; and a little of the group."""

    def letters(first: str, second: str) -> float:
        return difflib.SequenceMatcher(None, first, second).ratio()

    group, _, last = name.lower().rpartition(".")
    key_group, _, key_last = key.rpartition(".")
    words, key_words = set(last.replace("-", "_").split("_")), set(key_last.split("_"))
    shared = len(words & key_words) / min(len(words), len(key_words)) - 0.05 * len(words ^ key_words)
    return max(letters(last, key_last), shared) + 0.1 * letters(group, key_group)


def _check(key: _Key, value: Any) -> None:
    """Raises an error for a number out of bounds, and for text that no file can hold."""
    for part in value if isinstance(value, list | tuple) else [value]:
        if isinstance(part, int | float) and not isinstance(part, bool):
            is_number = key.annotation is not Any
            bounds = {"at least": operator.ge, "above": operator.gt, "at most": operator.le, "below": operator.lt}
            fits = math.isfinite(part) and all(bounds[word](part, bound) for word, bound in key.bounds.items())
            if is_number and not fits:
                allowed = " and ".join(f"{word} {bound:g}" for word, bound in key.bounds.items()) or "finite"
                raise ConfigError(f"{key.name} must be {allowed}, got {shown(value)}")
    for text in _texts(value):
        if "\0" in text or not text.isascii() and _SURROGATES.search(text):
            raise ConfigError(f"{key.name} must be text without NUL and half characters, got {shown(value)}")


def _texts(value: Any) -> list[str]:
    if isinstance(value, Mapping):
        return [text for pair in value.items() for part in pair for text in _texts(part)]
    if isinstance(value, list | tuple):
        return [text for part in value for text in _texts(part)]
    return [value] if isinstance(value, str) else []


def _typed(key: _Key, given: Any, origin: str) -> Any:
    """The value converted to the key's type by jsonargparse."""
    parser = jsonargparse.ArgumentParser(exit_on_error=False, add_help=False)
    parser.add_argument("--value", type=key.annotation)
    try:
        value = parser.parse_object({"value": given}).value
        # for jsonargparse None means "not given" and passes for any type, and the text "1:30" is the number 90
        allowed = (value is not None or _takes_none(key.annotation)) and _texts(value) == _texts(given)
    except (argparse.ArgumentError, ArithmeticError, AttributeError, LookupError, RuntimeError, TypeError, ValueError):
        # what comes of dates and numbers of odd form is not always an ArgumentError
        allowed = False
    if not allowed:
        types_text = _type_text(key.annotation)
        raise ConfigError(f"{origin}: {key.name}: value {shown(given, 200)} is not allowed; allowed: {types_text}")
    return value


def _typed_from_words(key: _Key, words: list[str]) -> Any:
    origin, annotation = "command line", key.annotation
    if words == ["null"] and _takes_none(annotation):
        return _typed(key, None, origin)
    is_list = _takes(annotation, list, tuple) and not _takes(annotation, dict)
    if not is_list and len(words) != 1:
        raise ConfigError(f"{origin}: --{key.name} takes one value ({_type_text(annotation)}), got {shown(words)}")
    is_text = _takes(annotation, str, typing.Literal) and not _takes(annotation, dict)
    values = words if is_text else [read_word(word, f"{origin}: {key.name}") for word in words]
    return _typed(key, values if is_list else values[0], origin)


def _takes_none(annotation: Any) -> bool:
    return annotation in (None, type(None), Any) or type(None) in typing.get_args(annotation)


def _takes(annotation: Any, *kinds: Any) -> bool:
    """Whether a type is one of these, or holds one."""
    found = annotation in kinds or typing.get_origin(annotation) in kinds
    return found or any(_takes(member, *kinds) for member in typing.get_args(annotation))


def _help_text(config_class: type, keys: Mapping[str, _Key], prog: str | None) -> str:
    description = (config_class.__doc__ or "").strip().split("\n\n")[0]
    parser = argparse.ArgumentParser(prog, "%(prog)s [--config FILE.yaml] [--key value ...]", description)
    parser.add_argument("--config", metavar="FILE.yaml", help="Config file; the keys below override it.")
    for key in keys.values():
        default = "required" if key.default is _REQUIRED else f"default: {json.dumps(_plain(key.default))}"
        help_text = f"{key.help} [{_type_text(key.annotation)}; {default}]".replace("%", "%%").lstrip()
        parser.add_argument(
            f"--{key.name}", metavar="VALUE ..." if _takes(key.annotation, list, tuple) else "VALUE", help=help_text
        )
    return parser.format_help()


def _type_text(annotation: Any) -> str:
    """The type in words that a user of a recipe reads: `int`, `'raise' or 'skip'`, `float or null`."""
    origin, members = typing.get_origin(annotation), typing.get_args(annotation)
    if origin is typing.Literal:
        return " or ".join(repr(member) for member in members)
    if origin in (typing.Union, types.UnionType):
        return " or ".join(_type_text(member) for member in members)
    if annotation is type(None):
        return "null"
    if annotation is bool:
        return "true or false"
    if origin in (list, tuple) and members:
        return "a list of " + _type_text(members[0])
    return getattr(annotation, "__name__", str(annotation)) if origin is None else str(annotation)


def _flatten(config: Any, prefix: str = "") -> dict[str, Any]:
    flat = {}
    for field in dataclasses.fields(config):
        value = getattr(config, field.name)
        if dataclasses.is_dataclass(value):
            flat.update(_flatten(value, f"{prefix}{field.name}."))
        else:
            flat[prefix + field.name] = value
    return flat


def _plain(value: Any) -> Any:
    """The value made of dicts, lists, strings, numbers, booleans and None only."""
    if dataclasses.is_dataclass(value):
        return {field.name: _plain(getattr(value, field.name)) for field in dataclasses.fields(value)}
    if isinstance(value, Mapping):
        return {key: _plain(member) for key, member in value.items()}
    if isinstance(value, list | tuple):
        return [_plain(member) for member in value]
    return str(value) if isinstance(value, Path) else value
