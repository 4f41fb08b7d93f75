"""A recipe's config: a dataclass of dataclasses, read from YAML files and the command line; running a recipe."""

from __future__ import annotations

import argparse
import contextlib
import copy
import dataclasses
import logging
import math
import operator
import os
import re
import shlex
import sys
import types
import typing
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextvars import ContextVar
from typing import Any, Literal, TypeVar

import jsonargparse

import zoo
from recipes.command.lists import config_path, configs, presets
from recipes.command.native_log import leave_out_native_log
from recipes.command.printing import lasting_output, quiet_output
from recipes.common.completion import complete
from recipes.common.config_sources import dump_yaml, read_word, read_yaml, split_words
from recipes.common.errors import ConfigError, RecipeError, nearest, shown, type_in_words
from zoo.extras import MissingExtraError, require_extra

Config = TypeVar("Config")
# how a recipe is called, in its help and in its messages
PROGRAM = ContextVar("program", default="python -m recipes.{}")
# words that are no keys
SWITCHES = {
    "--print_config": "Print the config, with the keys that are given, as YAML that --config takes, and do no more.",
    "--quiet": "Print errors and results alone.",
}
# of Keras, which recipes run on
_BACKENDS = ("tensorflow", "jax")
_REQUIRED = dataclasses.MISSING
_SURROGATES = re.compile("[\ud800-\udfff]")
# bytes of the command line that are no characters in the encoding of the system
_UNDECODED = re.compile("[\udc80-\udcff]")


@lasting_output()
def run_recipe(
    main: Callable[[Config], object],
    config_class: type[Config],
    name: str,
    arguments: Sequence[str] | None = None,
    *,
    prints_results: bool = False,
) -> None:
    """Calls a recipe with the config of a command line, and prints an error or an interruption as one message.

    Args:
        main: Function of the recipe, which takes the config.
        config_class: See `parse`.
        name: Name of the recipe, as in `python -m recipes.<name>`.
        arguments: Words of the command line; None means those of this process.
        prints_results: Whether all that the recipe prints is its result, which `--quiet` leaves.

    Raises:
        SystemExit: With its `status` after a `RecipeError`, whose message goes to stderr, 130 after Ctrl-C, 0 after
            `--help`, 1 if not all of the output could be written.
    """
    words = sys.argv[1:] if arguments is None else list(arguments)
    program = PROGRAM.get().format(name)
    speaker = program.removeprefix("python -m ")
    if "_ARGCOMPLETE" in os.environ:
        keys = list(_keys(config_class))
        first = next((key.name for key in keys if key.words == "first"), None)
        complete({key.name: _offered(key) for key in keys}, first, SWITCHES)
    leave_out_native_log()
    logging.getLogger("tensorflow").addFilter(_is_no_retracing)
    try:
        _check_backend()
        config = parse(config_class, [word for word in words if word not in SWITCHES], prog=program)
        if "--print_config" in words:
            print(_as_yaml(config), end="")
            return
        with quiet_output() if "--quiet" in words and not prints_results else contextlib.nullcontext():
            main(config)
    except (RecipeError, MissingExtraError) as error:
        print(f"{speaker}: error: {error}", file=sys.stderr)
        status = getattr(error, "status", 2)
        _end(status)
        raise SystemExit(status) from error
    except KeyboardInterrupt as error:
        command = f"{program} {shlex.join(words)}".strip()
        resumes = hasattr(config_class, "training") or getattr(config_class, "resumes", False)
        then = "the same command resumes from the last saved state" if resumes else "again"
        # of several processes, what has started them knows the command
        is_one_of_several = int(os.environ.get("KERAS_DISTRIBUTION_NUM_PROCESSES") or 1) > 1
        hint = "" if is_one_of_several else f"; {then}: {command}"
        print(f"\n{speaker}: interrupted{hint}", file=sys.stderr)
        _end(130)
        raise SystemExit(130) from error
    except Exception as error:  # of any kind: other processes would wait for this one
        _end(1, error)
        raise


def _check_backend() -> None:
    """Keras would say it of the key that happens to need it first, or end in a traceback."""
    backend = os.environ.get("KERAS_BACKEND") or "tensorflow"
    if backend not in _BACKENDS:
        raise ConfigError(f"KERAS_BACKEND must be {' or '.join(_BACKENDS)}, got {backend!r}")
    if backend == "jax":
        require_extra("jax", "KERAS_BACKEND=jax")


def _end(status: int, error: Exception | None = None) -> None:
    # processes are joined by what has been imported; an interruption may come before
    end = getattr(sys.modules.get("zoo.distribution"), "end_process", None)
    if end is not None:
        end(status, error)


def _is_no_retracing(record: logging.LogRecord) -> bool:
    # rows are padded to one of a few lengths, and each length is traced once
    return "tf.function retracing" not in record.getMessage()


def setting(
    default: Any = _REQUIRED,
    help: str = "",
    *,
    may_change: bool = False,
    least: float | None = None,
    most: float | None = None,
    above: float | None = None,
    below: float | None = None,
    words: Literal["first", "again", "rest"] | None = None,
    null_means: Mapping[str, Any] | None = None,
    unless_changed: Sequence[str] = (),
    describes_files: bool = False,
    offers: Sequence[str] | Literal["paths", "presets"] = (),
) -> Any:
    """Returns a field of a config dataclass: default, help text, bounds, and whether a resumed run may change it.

    Args:
        default: Default value; left out, the key must be given. Lists and dicts are copied for each config.
        help: One line for `--help`.
        may_change: True if the results of a run do not depend on the key, so that it may change on resume.
        least, most, above, below: Bounds of a number (None where there is none); numbers are finite in any case.
        words: Which words of a command line the key takes beside those that follow `--key`: "first", those before all
            keys; "again", those of each time that it is given; "rest", for a `dict[str, list[str]]`, those of all keys
            that the class lacks, `--config` among them.
        null_means: Of a mapping or null: what null stands for, and what entries that are given one by one are added to,
            see `value_of`.
        unless_changed: Keys of the same group; where one differs from its default, null stands for an empty mapping.
        describes_files: Whether it says how files are read, and nothing of named data sets, see
            `data_sets.refuse_file_keys`.
        offers: What shells offer for text: words, paths, or the names of presets. Those of a `Literal` and of true and
            false need not be given.

    Example:

    >>> seed: int = setting(1, "Seed of the order.", least=0)
    """
    bounds = {"at least": least, "above": above, "at most": most, "below": below}
    metadata = {
        "help": help,
        "may_change": may_change,
        "words": words,
        "null_means": null_means,
        "unless_changed": tuple(unless_changed),
    }
    metadata |= {"describes_files": describes_files, "offers": offers}
    metadata["bounds"] = {name: bound for name, bound in bounds.items() if bound is not None}
    if isinstance(default, list | dict | set):
        return dataclasses.field(default_factory=lambda: type(default)(default), metadata=metadata)
    return dataclasses.field(default=default, metadata=metadata)


@dataclasses.dataclass(frozen=True)
class _Key:
    """A leaf of the config: `name` is dotted, `annotation` its type, `group` what the docstring of its class says."""

    name: str
    annotation: Any
    default: Any
    group: str
    help: str = ""
    may_change: bool = False
    bounds: Mapping[str, float] = dataclasses.field(default_factory=dict)
    words: str | None = None
    null_means: Mapping[str, Any] | None = None
    unless_changed: tuple[str, ...] = ()
    describes_files: bool = False
    offers: Sequence[str] | Literal["paths", "presets"] = ()


def value_of(group: Any, name: str) -> Any:
    """Returns the value of a key, or the mapping that null stands for (see `setting`).

    Args:
        group: An instance of a config dataclass.
        name: The field.

    Example:

    >>> value_of(EncoderModelConfig(), "options")["num_layers"]
    2
    """
    if getattr(group, name) is not None:
        return getattr(group, name)
    metadata, default = type(group).__dataclass_fields__[name].metadata, type(group)()
    alone = all(getattr(group, other) == getattr(default, other) for other in metadata["unless_changed"])
    return copy.deepcopy(dict((alone and metadata["null_means"]) or {}))


def parse(
    config_class: type[Config],
    arguments: Sequence[str],
    *,
    prog: str | None = None,
    values: Mapping[str, Any] | None = None,
) -> Config:
    """Returns the config from its defaults, YAML files and `--key value` overrides, in this order.

    `--config FILE.yaml` may be given several times, and later files override earlier ones. A config that comes with the
    recipes is given by its name. A key of a group is written `--group.key value` or `--group.key=value`. A list takes
    several words (`--data.train a.en a.de`). One entry of a dict is written `--model.options.num_layers 2`; the others
    are kept. `--help` prints every key with its help text, type and default, and exits.

    Args:
        config_class: Dataclass whose fields are plain values (see `setting`) or dataclasses of the same kind.
        arguments: Words of the command line, without the program's name.
        prog: Name of the program, for `--help`.
        values: Values of further keys, which override all others. They are written as in YAML files, but entries of
            dicts as on a command line.

    Returns:
        An instance of `config_class`.

    Raises:
        ConfigError: An unknown key (the message suggests the nearest), a wrong type, a missing value, a key given twice
            in a file, or an unreadable file. Messages name the file and line, the key, its value and what is allowed.

    Example:

    >>> config = parse(TranslateConfig, ["--config", "multi30k_tiny.yaml", "--seed", "2"])
    """
    keys = {key.name: key for key in _keys(config_class)}
    groups = {name[: dot.start()] for name in keys for dot in re.finditer(r"\.", name)}
    if any(word in ("-h", "--help") for word in arguments):
        print(_help(list(keys.values()), prog).removesuffix("\n"))
        raise SystemExit(0)
    found = {name: copy.deepcopy(key.default) for name, key in keys.items() if key.default is not _REQUIRED}
    taking = {key.words: key.name for key in keys.values() if key.words}
    files, words = split_words(arguments, first=taking.get("first"), again=taking.get("again"))
    if "rest" in taking:
        others = {name: given for name, given in words.items() if _find(name, keys) is None}
        found[taking["rest"]] = {**({"config": files} if files else {}), **others}
        files, words = [], {name: given for name, given in words.items() if name not in others}
    for file in files:
        for name, (value, origin) in read_yaml(_config_file(file), groups).items():
            if name not in keys:
                raise ConfigError(f"{origin}: {_unknown_key(name, keys, groups)}")
            found[name] = _typed(keys[name], value, origin)
    # those first that say what entries are added to
    deciding = {other for key in keys.values() for other in _deciding_keys(key)}
    steps = [(name, given, True) for name, given in words.items()]
    steps += [(name, value, False) for name, value in (values or {}).items()]
    for name, given, are_words in sorted(steps, key=lambda step: step[0] not in deciding):
        key = _find(name, keys)
        if key is None:
            raise ConfigError(_unknown_key(name, keys, groups, dashes="--" if are_words else ""))
        if found.get(key.name) is None and key.name != name:
            is_default = all(found[other] == keys[other].default for other in _deciding_keys(key))
            found[key.name] = copy.deepcopy((is_default and key.null_means) or {})
        if are_words:
            found[key.name] = _typed_words(key, given) if key.name == name else _with_words(key, found, name, given)
        else:
            value = given if key.name == name else _with_entry(key, found, name, given)
            found[key.name] = _typed(key, value, "given")
    for name, value in found.items():
        _check(keys[name], value)
    missing = ", ".join(f"--{name}" for name in keys if name not in found)
    if missing:
        raise ConfigError(f"no value given for: {missing}")
    return _build(config_class, found)


def save(config: Any, path: str | os.PathLike) -> None:
    """Writes a config as YAML, atomically; `parse(type(config), ["--config", path])` gives an equal config.

    Args:
        config: A config (see `parse`).
        path: File to write.
    """
    zoo.storage.write_text_atomically(path, dump_yaml(dataclasses.asdict(config)))


def _as_yaml(config: Any) -> str:
    """The text that `--config` reads as the same config."""
    rest = next((key.name for key in _keys(type(config)) if key.words == "rest"), None)
    if rest is not None:
        raise ConfigError(f"--print_config must be given to the recipe itself: --config is one of the keys of {rest}")
    return dump_yaml(dataclasses.asdict(config))


def differences(old: Any, new: Any, *, may_change: bool = True) -> dict[str, tuple[Any, Any]]:
    """Returns the keys in which two configs of one class differ.

    Args:
        old: A config.
        new: Another config of the same class.
        may_change: Whether keys count that a resumed run may change, marked with `setting(..., may_change=True)`.

    Returns:
        Dotted key to (old value, new value), in the order of the fields.

    Raises:
        TypeError: The configs are of different classes.

    Example:

    >>> differences(Config(seed=1), Config(seed=2))
    {'seed': (1, 2)}
    """
    if type(old) is not type(new):
        raise TypeError(f"Only configs of one class can be compared; got {type(old).__name__}, {type(new).__name__}.")
    chosen = [key.name for key in _keys(type(old)) if may_change or not key.may_change]
    pairs = {name: tuple(map(operator.attrgetter(name), (old, new))) for name in chosen}
    return {name: pair for name, pair in pairs.items() if pair[0] != pair[1]}


def paths_in(config: Any) -> dict[str, list[str]]:
    """Returns the files and folders, or names of data sets, that a config holds, by key.

    Args:
        config: A config.

    Example:

    >>> paths_in(ClassifyConfig())["data.train"]
    ['date_languages']
    """
    values = {key.name: operator.attrgetter(key.name)(config) for key in _keys(type(config)) if key.offers == "paths"}
    return {name: [value] if isinstance(value, str) else list(value or ()) for name, value in values.items()}


def _keys(config_class: type, prefix: str = "", group_default: Any = None) -> Iterator[_Key]:
    """The leaves of a config class; a group's default instance, where it has one, gives the defaults of its keys."""
    annotations = typing.get_type_hints(config_class)
    group = " ".join((config_class.__doc__ or "").strip().split("\n\n")[0].split())
    for field in dataclasses.fields(config_class):
        name, annotation = prefix + field.name, annotations[field.name]
        if group_default is not None:
            default = getattr(group_default, field.name)
        elif field.default_factory is not _REQUIRED:
            default = field.default_factory()
        else:
            default = field.default
        if dataclasses.is_dataclass(annotation):
            yield from _keys(annotation, name + ".", None if default is _REQUIRED else default)
        else:
            options = {**field.metadata, "bounds": _bounds(config_class, field.name)}
            yield _Key(name, annotation, default, group, **options)


def _deciding_keys(key: _Key) -> list[str]:
    """The names of the keys that decide what null stands for."""
    group = key.name.rpartition(".")[0]
    return [f"{group}.{other}" if group else other for other in key.unless_changed]


def _bounds(config_class: type, name: str) -> Mapping[str, float]:
    """Those of a field; where it names none, those of the class whose field it replaces."""
    fields = (vars(kind).get("__dataclass_fields__", {}).get(name) for kind in config_class.__mro__)
    return next((field.metadata["bounds"] for field in fields if field and field.metadata.get("bounds")), {})


def _config_file(name: str) -> str:
    """The file that `--config` names."""
    path = config_path(name)
    if not os.path.exists(path):
        near = nearest(name.removesuffix(".yaml"), configs())
        raise ConfigError(
            f"cannot read the config file {name!r}: there is no such file, and no config of this name comes with the "
            f"recipes; {f'did you mean {near!r}?' if near else '`zoo configs` lists them'}"
        )
    return path


def _build(config_class: type, values: Mapping[str, Any], prefix: str = "") -> Any:
    annotations = typing.get_type_hints(config_class)
    arguments = {}
    for field in dataclasses.fields(config_class):
        name = prefix + field.name
        group = dataclasses.is_dataclass(annotations[field.name])
        arguments[field.name] = _build(annotations[field.name], values, name + ".") if group else values[name]
    return config_class(**arguments)


def _unknown_key(name: str, keys: Mapping[str, _Key], groups: set[str], dashes: str = "") -> str:
    if name in groups:
        members = ", ".join(dashes + key for key in keys if key.startswith(name + "."))
        return f"{dashes}{name} is a group of keys, not a key; its keys: {members}"
    near = nearest(name, keys)
    hint = f"did you mean {dashes}{near}?" if near else "--help lists the known keys"
    return f"unknown key {dashes}{shown(name)[1:-1]}; {hint}"


def _check(key: _Key, value: Any) -> None:
    """Raises an error for a number out of bounds, and for text that no file can hold."""
    holds = {"at least": operator.ge, "above": operator.gt, "at most": operator.le, "below": operator.lt}
    for part in value if isinstance(value, list | tuple) else [value]:
        if not isinstance(part, int | float) or isinstance(part, bool) or key.annotation is Any:
            continue
        if not math.isfinite(part) or not all(holds[word](part, bound) for word, bound in key.bounds.items()):
            allowed = " and ".join(f"{word} {bound}" for word, bound in key.bounds.items()) or "finite"
            raise ConfigError(f"{key.name} must be {allowed}, got {shown(value)}")
    for text in _texts(value):
        if "\0" in text or _SURROGATES.search(text):
            hint = ""
            if _UNDECODED.search(text) and not sys.flags.utf8_mode:
                hint = "; with the environment variable PYTHONUTF8=1, Python reads words in UTF-8"
            raise ConfigError(f"{key.name} must be text without NUL and half characters, got {shown(value)}{hint}")


def _find(name: str, keys: Mapping[str, _Key]) -> _Key | None:
    """The key of that name, or the one whose value, a dict, has an entry of that name."""
    if name in keys:
        return keys[name]
    parents = (keys.get(name[: dot.start()]) for dot in re.finditer(r"\.", name))
    return next((key for key in parents if key is not None and _takes(key.annotation, dict)), None)


def _with_words(key: _Key, found: Mapping[str, Any], name: str, words: list[str]) -> dict[str, Any]:
    """See `_with_entry`; the entries of a `dict[str, list[str]]` are words."""
    is_words = key.annotation == dict[str, list[str]]
    entry = words if is_words else _typed_words(dataclasses.replace(key, name=name, annotation=Any), words)
    return _typed(key, _with_entry(key, found, name, entry), "command line")


def _with_entry(key: _Key, found: Mapping[str, Any], name: str, entry: Any) -> dict[str, Any]:
    """The value of a key, a dict, with one entry in place of what it had there; `name` is that of key and entry."""
    *path, last = name.removeprefix(key.name + ".").split(".")
    result = entries = dict(found.get(key.name) or {})
    for part in path:
        if not isinstance(entries.get(part) or {}, dict):
            raise ConfigError(f"{name}: {part} is {shown(entries[part])}, which has no entries")
        entries[part] = entries = dict(entries.get(part) or {})
    entries[last] = entry
    return result


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
        allowed = (value is not None or _takes(key.annotation, type(None), Any)) and _texts(value) == _texts(given)
    except (argparse.ArgumentError, ArithmeticError, AttributeError, LookupError, RuntimeError, TypeError, ValueError):
        # what comes of dates and numbers of odd form is not always an ArgumentError
        allowed = False
    if not allowed:
        types_text = type_in_words(key.annotation)
        raise ConfigError(f"{origin}: {key.name}: value {shown(given, 200)} is not allowed; allowed: {types_text}")
    return value


def _typed_words(key: _Key, words: list[str]) -> Any:
    origin, annotation = "command line", key.annotation
    if words == ["null"] and _takes(annotation, type(None), Any):
        return _typed(key, None, origin)
    has_dict = _takes(annotation, dict)
    is_list = typing.get_origin(annotation) is list or (_takes(annotation, list, tuple) and not has_dict)
    if not is_list and len(words) != 1:
        raise ConfigError(f"{origin}: --{key.name} takes one value ({type_in_words(annotation)}), got {shown(words)}")
    is_text = _takes(annotation, str, Literal) and not has_dict
    values = words if is_text else [read_word(word, f"{origin}: {key.name}") for word in words]
    # a list may be one word, too: "[0, 1]"
    return _typed(
        key, values if is_list and not (len(values) == 1 and isinstance(values[0], list)) else values[0], origin
    )


def _takes(annotation: Any, *kinds: Any) -> bool:
    """Whether a type is one of these, or holds one; what a dict holds does not count."""
    origin = typing.get_origin(annotation)
    inner = () if origin is dict else typing.get_args(annotation)
    return annotation in kinds or origin in kinds or any(_takes(member, *kinds) for member in inner)


def _offered(key: _Key) -> list[str] | None:
    """The words that shells offer for the values of a key; None for paths."""
    if key.offers == "paths":
        return None
    words = list(presets() if key.offers == "presets" else key.offers)
    return [*words, "null"] if words and _takes(key.annotation, type(None)) else words or _choices(key.annotation)


def _choices(annotation: Any) -> list[str]:
    """The words that a key of a few values takes; none for text and numbers."""
    origin = typing.get_origin(annotation)
    if origin is Literal:
        return [str(value) for value in typing.get_args(annotation)]
    if annotation is bool:
        return ["true", "false"]
    if annotation is type(None):
        return ["null"]
    members = typing.get_args(annotation) if origin in (types.UnionType, typing.Union) else ()
    found = [_choices(member) for member in members]
    return [choice for choices in found for choice in choices] if all(found) else []


def _help(keys: Sequence[_Key], prog: str | None) -> str:
    first = next((key for key in keys if key.words == "first"), None)
    usage = f"%(prog)s {'' if first is None else first.name.upper() + ' '}[--config FILE.yaml] [--key value ...]"
    summary = next(key.group for key in keys if "." not in key.name)
    parser = jsonargparse.ArgumentParser(prog=prog, usage=usage, description=summary)
    parser.add_argument("--config", metavar="FILE.yaml", default=argparse.SUPPRESS, help="The keys below override it.")
    for switch, text in SWITCHES.items():
        parser.add_argument(switch, action="store_true", default=argparse.SUPPRESS, help=text)
    groups: dict[str, Any] = {"": parser}
    for key in keys:
        name = key.name.rpartition(".")[0]
        if name not in groups:
            groups[name] = parser.add_argument_group(name, key.group)
        metavar = "VALUE ..." if _takes(key.annotation, list, tuple) else "VALUE"
        more = {"required": True} if key.default is _REQUIRED else {"default": key.default}
        added = groups[name].add_argument(f"--{key.name}", type=key.annotation, metavar=metavar, help=key.help, **more)
        # without jsonargparse's `--key+`, which adds to a list
        added.option_strings = added.option_strings[:1]
    return parser.format_help()
