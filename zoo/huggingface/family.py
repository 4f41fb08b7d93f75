"""A family of models of the Transformers library: what its configuration means and where its weights are."""

import dataclasses
import difflib
import re
from collections.abc import Callable, Mapping
from typing import Any

import numpy as np

from zoo.config import TransformerConfig
from zoo.config.checks import require
from zoo.huggingface.config_keys import is_integer
from zoo.huggingface.config_reader import ConfigReader
from zoo.huggingface.weights import Table
from zoo.storage import quote

_FAMILIES: dict[str, "Family"] = {}
# models of more than text
_PARTLY_TEXT = {"gemma3": "gemma3_text"}


@dataclasses.dataclass(frozen=True)
class Head:
    """The head of a task.

    Args:
        architecture: Name of the class with this head in the Transformers library.
        table: Names of the weights, by the attributes of the task's `head`.
        options: Function from their configuration to arguments of the task's constructor.
        write: Function from the arguments of the task to keys of their configuration.
        others: Names of further classes that have this head besides other heads, which are ignored.
        prefix: Prefix of the names of the base model in this class; None for that of the family.
    """

    architecture: str
    table: Table = dataclasses.field(default_factory=dict)
    options: Callable[[ConfigReader], dict[str, Any]] = lambda reader: {}
    write: Callable[[dict[str, Any]], dict[str, Any]] = lambda options: {}
    prefix: str | None = None
    others: tuple[str, ...] = ()


@dataclasses.dataclass(frozen=True)
class Constant:
    """A tensor that the configuration determines, and that files hold beside the weights.

    Args:
        pattern: Regular expression of its names in files, without prefix.
        value: Its value.
        names: The names under which it is written; none where the library makes it by itself.
    """

    pattern: str
    value: np.ndarray
    names: tuple[str, ...] = ()


@dataclasses.dataclass(frozen=True)
class Family:
    """One `model_type` of the Transformers library.

    Args:
        model_type: Its name.
        read: Function from their configuration to ours.
        write: Function from our configuration to theirs, without bookkeeping keys. It need not check every choice,
            because its result is read back and compared.
        table: Names of the weights of the base model, without `prefix`; or a function from a configuration to these.
        architecture: Name of the class of the base model.
        prefix: Prefix of the names of the base model in classes with a head.
        outside: Names in `table` that have no prefix, because they are outside of the base model.
        heads: Heads by the name of our task.
        ignored: Regular expressions for tensors to ignore: constants, and tensors that only training needs.
        constants: Function from a configuration to the constants that are written, and checked where they are read.
        copies: Tensors that some files have twice, with the tensor that each is a copy of.
        renamed: Beginnings of names in other files, with their form in `table`.
        encoder_architecture: Name of the class of its encoder alone; None if there is none.
        modules: Names of linear maps in memory, if they differ from those in files. Adapters use these names.
        needs_segments: Whether it has segments in any case: a model without any is written with one of zeros.
    """

    model_type: str
    read: Callable[[ConfigReader], TransformerConfig]
    write: Callable[[TransformerConfig], dict[str, Any]]
    table: Table | Callable[[TransformerConfig], Table]
    architecture: str
    prefix: str = ""
    outside: tuple[str, ...] = ()
    heads: Mapping[str, Head] = dataclasses.field(default_factory=dict)
    ignored: tuple[str, ...] = ()
    constants: Callable[[TransformerConfig], tuple[Constant, ...]] = lambda config: ()
    copies: Mapping[str, str] = dataclasses.field(default_factory=dict)
    renamed: Mapping[str, str] = dataclasses.field(default_factory=dict)
    encoder_architecture: str | None = None
    modules: Table | None = None
    needs_segments: bool = False

    def table_of(self, config: TransformerConfig) -> Table:
        """Returns the names of the weights of a base model with this configuration."""
        return self.table(config) if callable(self.table) else self.table

    def plain_name(self, name: str) -> str:
        """Returns the name of a tensor without prefix, in the form of newer files."""
        prefixes = (self.prefix, *(head.prefix or "" for head in self.heads.values()))
        name = name.removeprefix(next((prefix for prefix in prefixes if prefix and name.startswith(prefix)), ""))
        for theirs, ours in self.renamed.items():
            if name.startswith(theirs):
                name = ours + name.removeprefix(theirs)
        # files that came from TensorFlow
        return re.sub(r"LayerNorm\.(gamma|beta)$", lambda match: f"LayerNorm.{_TORCH_NAMES[match[1]]}", name)

    def stored_name(self, name: str, head: Head) -> str:
        """Returns the name of a tensor of the base model in a file of a class with a head."""
        prefix = self.prefix if head.prefix is None else head.prefix
        return name if name.startswith(self.outside) and self.outside else prefix + name

    def is_ignored(self, name: str) -> bool:
        """Returns whether a tensor is ignored."""
        return any(re.fullmatch(pattern, name) for pattern in self.ignored)

    def head_prefixes(self) -> tuple[str, ...]:
        """Returns the prefixes of the names of tensors that belong to a head."""
        tables = [head.table for head in self.heads.values()]
        names = {getattr(name, "name", name).split(".")[0] + "." for table in tables for name in table.values()}
        return (*names, "qa_outputs.", "classification_head.", "sop_classifier.", "contact_head.")


_TORCH_NAMES = {"gamma": "weight", "beta": "bias"}


def register_family(family: Family) -> None:
    """Registers a family.

    Raises:
        ValueError: If a family of this name is registered.
    """
    if family.model_type in _FAMILIES:
        raise ValueError(f"The family {family.model_type!r} exists already.")
    _FAMILIES[family.model_type] = family


def get_family(model_type: Any) -> Family:
    """Returns the family of a `model_type`.

    Raises:
        ValueError: If it is not supported.
    """
    if not isinstance(model_type, str) or model_type not in _FAMILIES:
        name = model_type if isinstance(model_type, str) else ""
        part, near = _PARTLY_TEXT.get(name), difflib.get_close_matches(name[:100], _FAMILIES, n=1)
        hint = f" Of this one the text model alone is supported, saved as {part!r}." if part else ""
        if near and not part:
            hint = f" The nearest by name is {near[0]!r}, which is another architecture unless this is misspelt."
        raise ValueError(
            f"model_type must be that of a supported family, got {quote(model_type)}.{hint} The page 'Families' of the "
            f"documentation says what the others need. Supported are {', '.join(sorted(_FAMILIES))}."
        )
    return _FAMILIES[model_type]


def all_families(first: str | None = None) -> list[Family]:
    """Returns all families.

    Args:
        first: The `model_type` of that which comes first; None for the order in which they are registered.
    """
    return sorted(_FAMILIES.values(), key=lambda family: family.model_type != first)


def shortest_pattern(flags: list[bool]) -> tuple[bool, ...]:
    """Returns the shortest beginning that gives all of it when it is repeated and cut.

    Example:

    >>> shortest_pattern([True, False, True, False, True])
    (True, False)
    """
    # how much of its beginning each beginning ends with (Knuth, Morris and Pratt)
    ends = [0] * len(flags)
    for index in range(1, len(flags)):
        length = ends[index - 1]
        while length and flags[index] != flags[length]:
            length = ends[length - 1]
        ends[index] = length + (flags[index] == flags[length])
    return tuple(flags[: len(flags) - ends[-1]]) if flags else ()


def window_of_layers(layer_types: list[str], layers: int, window: tuple[int | None, int | None]) -> dict[str, Any]:
    """Returns the arguments of `AttentionConfig` for layers of which some see a window only.

    Args:
        layer_types: "full_attention" or "sliding_attention" for each layer.
        layers: Number of layers.
        window: The window.

    Raises:
        ValueError: If there is another type, or another number of them.
    """
    require_layer_types(layer_types, layers, ("full_attention", "sliding_attention"))
    pattern = shortest_pattern([kind == "sliding_attention" for kind in layer_types])
    if True not in pattern:
        return {}
    return {"window": window, "window_layers": None if pattern == (True,) else pattern}


def require_layer_types(layer_types: list[str], layers: int, kinds: tuple[str, str]) -> None:
    """Checks the types of layers.

    Args:
        layer_types: One of `kinds` for each layer.
        layers: Number of layers.
        kinds: The types that a family has.

    Raises:
        ValueError: If there is another type, or another number of them.
    """
    if len(layer_types) != layers:
        raise ValueError(f"layer_types must have an entry for each of {layers} layers, got {len(layer_types)}.")
    if not set(layer_types) <= set(kinds):
        allowed = " or ".join(map(repr, kinds))
        raise ValueError(f"layer_types must be {allowed}, got {quote(sorted(set(layer_types)))}.")


def sliding_but_every(layers: int, period: Any) -> list[str]:
    """Returns "sliding_attention" for each layer, and "full_attention" for each whose number is a multiple of `period`.

    Args:
        layers: Number of layers.
        period: What `sliding_window_pattern` says.

    Raises:
        ValueError: If it is no number.

    Example:

    >>> sliding_but_every(3, 2)
    ['sliding_attention', 'full_attention', 'sliding_attention']
    """
    allowed = "an integer of at least 1 where there are no layer_types"
    require(is_integer(period) and period >= 1, "sliding_window_pattern", period, allowed)
    return ["sliding_attention" if (index + 1) % period else "full_attention" for index in range(layers)]


def types_of_layers(config: TransformerConfig) -> list[str]:
    """Returns "full_attention" or "sliding_attention" for each layer of a configuration."""
    return [
        "sliding_attention" if config.attention.has_window(index) else "full_attention"
        for index in range(config.num_layers)
    ]
