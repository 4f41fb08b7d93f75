"""Choices of how positions enter a Transformer."""

import dataclasses
import inspect
from typing import Any

from layers.constructor_arguments import constructor_arguments
from layers.positions import position_class, position_kinds
from zoo.config.checks import (
    in_pattern,
    require,
    require_in_use,
    require_pattern,
    require_positive,
    require_types,
    shorten,
)


@dataclasses.dataclass(frozen=True)
class PositionConfig:
    """How positions enter the model.

    Two kinds of `scaling` depend on the length of the text. "longrope" has two sets of frequencies. The number of
    tokens of a text decides which it gets, whether the text is alone, padded or packed. A text that grows beyond the
    trained length during decoding is computed again once, with the other set. "dynamic_ntk" has different frequencies
    for each length. It always uses those for the `max_length` of the model.

    Args:
        kind: Added to the embedding: "sinusoidal" or "learned". Rotating queries and keys: "rotary" or "xpos". Added to
            the scores: "relative_bias" (T5), "alibi" or "disentangled" (DeBERTa). Added to keys and values: "shaw". Or
            "none", or the name of your own encoding, see `layers.positions.register_position`.
        base: Base of the frequencies of "sinusoidal", "rotary" and "xpos".
        local_base: Base of "rotary" and "xpos" in layers with a window; None for `base`.
        layout: Order of the features: "interleaved" or "concatenated" for "sinusoidal", "half_split" or "interleaved"
            for "rotary" and "xpos"; None for the first of each.
        rotary_dim: Number of features of a head that are rotated; None for all.
        scaling: Rotary scaling, for example `{"kind": "linear", "factor": 2.0}`; None for none.
        local_scaling: Whether layers with a window are scaled too; in Gemma 3 they are not.
        skips_padding: For "learned" and "sinusoidal", whether positions count only the real tokens of a row, so that
            left padding does not shift them (OPT).
        layers: A repeating pattern of the layers that have the encoding, for example `(True, True, True, False)` for
            three out of four (SmolLM 3); None for all. For encodings that act in attention.
        shared: Whether all layers of a stack share the weights of "relative_bias" or "disentangled"; False for weights
            of their own in each layer (UMT5).
        num_buckets: Number of buckets of "relative_bias", or of "disentangled" in each direction.
        max_distance: Distance from which on all share a bucket ("relative_bias", "disentangled"), or clipping distance
            ("shaw").
        offset: For "learned" and "sinusoidal", added to each position: 2 in BART, RoBERTa and M2M-100.
        options: Further arguments of the encoding, for example `{"scale_base": 256.0}` for "xpos".
    """

    kind: str = "sinusoidal"
    base: float = 10000.0
    local_base: float | None = None
    layout: str | None = None
    rotary_dim: int | None = None
    scaling: dict[str, Any] | None = None
    local_scaling: bool = True
    skips_padding: bool = False
    layers: tuple[bool, ...] | None = None
    shared: bool = True
    num_buckets: int = 32
    max_distance: int = 128
    offset: int = 0
    options: dict[str, Any] | None = None

    def __post_init__(self) -> None:
        require_types(self, "position.")
        require(self.kind in _kinds(), "position.kind", self.kind, f"one of {_kinds()}")
        require_positive(self, "position.", "base", "local_base", "rotary_dim", "num_buckets", "max_distance")
        require(self.offset >= 0, "position.offset", self.offset, "at least 0")
        require_pattern("position.layers", self.layers)
        require_in_use(self, "position.", ("local_scaling", self.scaling is not None, "without position.scaling"))
        for name in (field.name for field in dataclasses.fields(self) if field.name not in ("kind", "options")):
            kinds = _kinds_with(name)
            where = f"with position.kind={self.kind!r}: it is an option of {kinds}"
            require_in_use(self, "position.", (name, self.kind in kinds, where))
        names = _options(self.kind) - {field.name for field in dataclasses.fields(self)}
        for name, value in (self.options or {}).items():
            allowed = f"left out with position.kind={self.kind!r}, which has the options {sorted(names)}"
            require(name in names, f"position.options[{shorten(name)}]", value, allowed)

    def of_kind(self, kind: str) -> "PositionConfig":
        """Returns the configuration of another kind of encoding, with the choices that both kinds have.

        Args:
            kind: The kind. Choices that it does not have are set to their defaults.

        Raises:
            ValueError: If the kind is unknown.

        Example:

        >>> PositionConfig("rotary", base=160000.0).of_kind("alibi").base
        10000.0
        """
        if kind not in _kinds():
            return dataclasses.replace(self, kind=kind)
        options = {name: value for name, value in (self.options or {}).items() if name in _options(kind)}
        defaults = {
            field.name: field.default
            for field in dataclasses.fields(self)
            if field.name not in ("kind", "options") and kind not in _kinds_with(field.name)
        }
        return dataclasses.replace(self, kind=kind, options=options or None, **defaults)

    def layer_options(self, has_window: bool = False) -> dict[str, Any]:
        """Returns the arguments of the encoding. Our defaults are left out if the encoding has its own.

        Args:
            has_window: Whether the encoding is for a layer with a window, which may have another base and no scaling.
        """
        values = {field.name: getattr(self, field.name) for field in dataclasses.fields(self)}
        if has_window and self.local_base is not None:
            values["base"] = self.local_base
        if has_window and not self.local_scaling:
            values["scaling"] = None
        parameters = constructor_arguments(position_class(self.kind))
        chosen = {
            field.name: values[field.name]
            for field in dataclasses.fields(self)
            if field.name in parameters
            and (values[field.name] != field.default or parameters[field.name].default is inspect.Parameter.empty)
        }
        if (values["scaling"] or {}).get("kind") == "longrope":
            chosen["sequence_length"] = None  # that of each text, not that of the model
        return chosen | (self.options or {})

    def is_shared(self) -> bool:
        """Returns whether the attention of all layers of a stack has one encoding."""
        return self.kind != "none" and position_class(self.kind).shared_by_blocks and self.shared

    def acts_on_embeddings(self) -> bool:
        """Returns whether the encoding acts on the embedded tokens."""
        return self.kind != "none" and position_class(self.kind).acts_on_embeddings()

    def acts_in_attention(self) -> bool:
        """Returns whether the encoding acts in the attention of any layer."""
        return self.kind != "none" and position_class(self.kind).acts_in_attention()

    def acts_in_layer(self, index: int) -> bool:
        """Returns whether the encoding acts in the attention of the layer of this number."""
        return self.acts_in_attention() and in_pattern(self.layers, index)


def _kinds() -> tuple[str, ...]:
    return ("none", *position_kinds())


def _options(kind: str) -> frozenset[str]:
    return frozenset() if kind == "none" else frozenset(constructor_arguments(position_class(kind)))


def _kinds_with(option: str) -> tuple[str, ...]:
    """The kinds of positions that have an option; what concerns some layers only acts in their attention."""
    if option == "skips_padding":
        return tuple(kind for kind in position_kinds() if not position_class(kind).acts_in_attention())
    if option == "shared":
        # those that blocks share by themselves, in attention, with weights
        kinds = _kinds_with("embeddings_initializer")
        classes = {kind: position_class(kind) for kind in kinds}
        return tuple(kind for kind, each in classes.items() if each.shared_by_blocks and each.acts_in_attention())
    if option in ("layers", "local_base", "local_scaling"):
        kinds = position_kinds() if option == "layers" else _kinds_with(option.removeprefix("local_"))
        return tuple(kind for kind in kinds if position_class(kind).acts_in_attention())
    return tuple(kind for kind in position_kinds() if option in _options(kind))
