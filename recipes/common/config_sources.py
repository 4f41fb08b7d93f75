"""Where the values of a config come from: YAML files, with the line of every value, and the command line."""

from __future__ import annotations

import contextlib
import os
import re
from collections.abc import Iterator, Sequence, Set
from typing import Any, NamedTuple

import yaml

from recipes.common.errors import ConfigError, shown

_MOST_BYTES = 1 << 20


class Located(NamedTuple):
    """A value of a config file and where it stands, `FILE:line`."""

    value: Any
    origin: str


class _Loader(yaml.SafeLoader):
    """YAML 1.2 scalars: `no` is a word (and a language), `5e-4` is a number; PyYAML reads both the other way."""

    yaml_implicit_resolvers = {}

    def compose_node(self, parent: yaml.Node | None, index: Any) -> yaml.Node:
        if self.check_event(yaml.AliasEvent):
            # a few lines of aliases of aliases stand for gigabytes
            raise yaml.YAMLError(f"line {self.peek_event().start_mark.line + 1}: aliases are not allowed")
        return super().compose_node(parent, index)

    def construct_mapping(self, node: yaml.Node, deep: bool = False) -> dict:
        values = super().construct_mapping(node, deep=True)
        if isinstance(node, yaml.MappingNode) and len(values) != len(node.value):
            raise yaml.YAMLError(f"line {node.start_mark.line + 1}: a key is given twice")
        return values


_FLOAT = re.compile(r"^[-+]?(\.[0-9]+|[0-9]+(\.[0-9]*)?)([eE][-+]?[0-9]+)?$")

# Order matters: the first pattern that matches decides, so integers come before floats.
_Loader.add_implicit_resolver(
    "tag:yaml.org,2002:bool", re.compile(r"^(true|True|TRUE|false|False|FALSE)$"), list("tTfF")
)
_Loader.add_implicit_resolver("tag:yaml.org,2002:null", re.compile(r"^(~|null|Null|NULL|)$"), ["~", "n", "N", ""])
_Loader.add_implicit_resolver("tag:yaml.org,2002:int", re.compile(r"^[-+]?(0|[1-9][0-9_]*)$"), list("-+0123456789"))
_Loader.add_implicit_resolver("tag:yaml.org,2002:float", _FLOAT, list("-+.0123456789"))


class _Dumper(yaml.SafeDumper):
    """Quotes what either YAML version would take for something else than text."""


def _represent_text(dumper: _Dumper, text: str) -> yaml.Node:
    # PyYAML turns unusual line separators into spaces unless it escapes them, which it does in double quotes.
    return dumper.represent_scalar("tag:yaml.org,2002:str", text, style=None if text.isprintable() else '"')


_Dumper.add_implicit_resolver("tag:yaml.org,2002:float", _FLOAT, list("-+.0123456789"))
_Dumper.add_representer(str, _represent_text)


def read_yaml(path: str | os.PathLike, groups: Set[str]) -> dict[str, Located]:
    """Reads a config file into dotted keys.

    Args:
        path: YAML file whose top level is a mapping.
        groups: Dotted keys whose value is a mapping of further keys; other mappings are values.

    Returns:
        Dotted key to its value and origin, in the order of the file.

    Raises:
        ConfigError: The file cannot be read, is not YAML, is not a mapping or holds a key twice.

    Example:

    >>> read_yaml("config.yaml", {"data"})["data.train"]
    Located(value=['train.en', 'train.de'], origin='config.yaml:2')
    """
    try:
        with open(path, "rb") as file:
            content = file.read(_MOST_BYTES + 1)
        text = content.decode("utf-8")
    except (OSError, ValueError) as error:
        raise ConfigError(f"cannot read the config file {str(path)!r}: {error}") from error
    if len(content) > _MOST_BYTES:
        raise ConfigError(f"cannot read the config file {str(path)!r}: it has more than {_MOST_BYTES:,} bytes")
    values: dict[str, Located] = {}
    with _errors_of(str(path)):
        loader = _Loader(text)
        node = loader.get_single_node()
        if node is not None:
            _collect(loader, node, "", path, groups, values)
    return values


def split_words(
    words: Sequence[str], *, first: str | None = None, again: str | None = None
) -> tuple[list[str], dict[str, list[str]]]:
    """Sorts the words of a command line.

    Args:
        words: `--config FILE.yaml`, `--key value`, `--key=value` or `--key value value ...`, in any order.
        first: The key that the words before all keys belong to; None where there may be none.
        again: The key whose words add up where it is given again.

    Returns:
        The config files; and for each key its words, the last ones where a key is given again.

    Raises:
        ConfigError: A word that follows no key, or a `--config` without its one file.

    Example:

    >>> split_words(["--config", "a.yaml", "--seed=2", "--data.train", "a.en", "a.de"])
    (['a.yaml'], {'seed': ['2'], 'data.train': ['a.en', 'a.de']})
    """
    files: list[list[str]] = []
    keys: dict[str, list[str]] = {}
    given: list[str] | None = None
    for word in words:
        if word.startswith("--"):
            name, equals, value = word[2:].partition("=")
            given = keys[name] if name == again and name in keys else []
            given += [value] if equals else []
            if name == "config":
                files.append(given)
            else:
                keys[name] = given
        elif given is None and first is not None:
            given = keys[first] = [word]
        elif given is None:
            raise ConfigError(f"unexpected word {shown(word)}; values follow a key: --key value")
        else:
            given.append(word)
    if any(len(given) != 1 for given in files):
        raise ConfigError("--config takes one file; give it again for a second one")
    return [file for (file,) in files], keys


def read_word(word: str, origin: str) -> Any:
    """Reads a word of the command line as the value of a key: a number, a list, a dict, null, true, false or text.

    Args:
        word: The word.
        origin: What errors begin with.

    Raises:
        ConfigError: The word is not YAML.

    Example:

    >>> read_word("{num_layers: 2}", "command line")
    {'num_layers': 2}
    """
    with _errors_of(origin):
        return _Loader(word).get_single_data()


@contextlib.contextmanager
def _errors_of(origin: str) -> Iterator[None]:
    """Turns the errors of PyYAML, and those that odd dates and numbers raise inside it, into a `ConfigError`."""
    try:
        yield
    except ConfigError:
        raise
    except RecursionError as error:
        raise ConfigError(f"{origin} is nested too deeply") from error
    except (yaml.YAMLError, ArithmeticError, AttributeError, LookupError, TypeError, ValueError) as error:
        mark = getattr(error, "problem_mark", None)
        where = "" if mark is None else f":{mark.line + 1}"
        problem = getattr(error, "problem", None) or " ".join(str(error).split())
        raise ConfigError(f"{origin}{where} is not valid YAML: {problem[:300]}") from error


def dump_yaml(values: dict[str, Any]) -> str:
    """Returns plain nested values as YAML text that `read_yaml` reads back as the same values.

    Args:
        values: Dicts, lists, strings, numbers, booleans and None.

    Returns:
        YAML text, keys in the order of the dicts.

    Example:

    >>> dump_yaml({"language": "no"})
    "language: 'no'\\n"
    """
    return yaml.dump(values, Dumper=_Dumper, sort_keys=False, allow_unicode=True, width=10_000)


def _collect(
    loader: _Loader, node: yaml.Node, prefix: str, path: Any, groups: Set[str], values: dict[str, Located]
) -> None:
    if not isinstance(node, yaml.MappingNode):
        what = prefix.rstrip(".") or "a config file"
        raise ConfigError(f"{_origin(path, node)}: {what} must hold keys with values, got {shown(node.value)}")
    for key_node, value_node in node.value:
        origin = _origin(path, key_node)
        if not isinstance(key_node, yaml.ScalarNode):
            raise ConfigError(f"{origin}: a key must be a word, got a {key_node.id}")
        name = prefix + key_node.value
        if name in groups:
            _collect(loader, value_node, name + ".", path, groups, values)
            continue
        if name in values:
            raise ConfigError(f"{origin}: key {name} is given twice, first at {values[name].origin}")
        try:
            values[name] = Located(loader.construct_object(value_node, deep=True), origin)
        except (ArithmeticError, AttributeError, LookupError, TypeError, ValueError) as error:
            raise ConfigError(f"{origin}: {name}: {shown(value_node.value)} cannot be read: {error!r:.200}") from error


def _origin(path: Any, node: yaml.Node) -> str:
    return f"{path}:{node.start_mark.line + 1}"
