"""Configurations: every choice of a model by name, validated, to JSON and back."""

import dataclasses
import difflib
import json
import types
import typing
from typing import Any

ARCHITECTURES = ("encoder", "decoder", "encoder_decoder")
POSITIONS = ("none", "sinusoidal", "learned", "rotary", "relative_bias", "alibi", "shaw")


# The options of a position that only some kinds have.
POSITION_OPTIONS = {
    "base": ("sinusoidal", "rotary"),
    "local_base": ("rotary",),
    "layout": ("sinusoidal", "rotary"),
    "rotary_dim": ("rotary",),
    "scaling": ("rotary",),
    "num_buckets": ("relative_bias",),
    "max_distance": ("relative_bias", "shaw"),
    "offset": ("learned",),
}


def _require(holds: bool, argument: str, value: Any, allowed: str) -> None:
    if not holds:
        raise ValueError(f"{argument} must be {allowed}, got {value!r}.")


def _require_positive(config: Any, prefix: str, *names: str) -> None:
    for name in names:
        value = getattr(config, name)
        _require(value is None or value > 0, prefix + name, value, "above 0")


def _require_types(config: Any, prefix: str = "") -> None:
    for name, hint in typing.get_type_hints(type(config)).items():
        value = getattr(config, name)
        kind = hint.__name__ if isinstance(hint, type) else hint
        _require(_is_of_type(value, hint), prefix + name, value, f"of type {kind}")


def _is_of_type(value: Any, hint: Any) -> bool:
    if isinstance(hint, types.UnionType):
        return any(_is_of_type(value, option) for option in typing.get_args(hint))
    if typing.get_origin(hint) is tuple:
        options = typing.get_args(hint)
        if not isinstance(value, tuple):
            return False
        if options[-1] is Ellipsis:
            return all(_is_of_type(entry, options[0]) for entry in value)
        return len(value) == len(options) and all(map(_is_of_type, value, options))
    if hint in (int, float):
        return isinstance(value, int if hint is int else (int, float)) and not isinstance(value, bool)
    return isinstance(value, typing.get_origin(hint) or hint)


@dataclasses.dataclass(frozen=True)
class AttentionConfig:
    """The choices of `layers.MultiHeadAttention`.

    Args:
        num_heads: Number of query heads.
        num_key_value_heads: Number of key-value heads; None for `num_heads`.
        head_dim: Width of a head; None for `hidden_dim // num_heads`.
        use_bias: Whether the projections have biases: True, False or the names of those that do.
        scale: Factor on the scores; None for `head_dim ** -0.5`.
        logit_soft_cap: Soft cap on the scores; None for none.
        query_key_norm: Kind of norm on query and key heads; None for none.
        sinks: Whether each head has an attention sink.
        output_gate: Whether heads are gated before the output projection.
        window: Sliding window `(left, right)`; None for none.
        window_layers: Which layers of a repeating pattern have the window, for example `(True, False)` for every other
            layer; None for all.
        dropout: Rate of the dropout on attention weights.
    """

    num_heads: int = 8
    num_key_value_heads: int | None = None
    head_dim: int | None = None
    use_bias: bool | tuple[str, ...] = True
    scale: float | None = None
    logit_soft_cap: float | None = None
    query_key_norm: str | None = None
    sinks: bool = False
    output_gate: bool = False
    window: tuple[int | None, int | None] | None = None
    window_layers: tuple[bool, ...] | None = None
    dropout: float = 0.0

    def __post_init__(self) -> None:
        _require_types(self, "attention.")
        _require_positive(self, "attention.", "num_heads", "head_dim", "scale", "logit_soft_cap")
        heads = self.num_key_value_heads
        _require(
            heads is None or (heads >= 1 and self.num_heads % heads == 0),
            "attention.num_key_value_heads",
            heads,
            f"None or a divisor of num_heads={self.num_heads}",
        )
        _require(0 <= self.dropout < 1, "attention.dropout", self.dropout, "in [0, 1)")
        _require(
            all(side is None or side >= 0 for side in self.window or ()),
            "attention.window",
            self.window,
            "a pair of numbers of positions of at least 0, or None for no limit",
        )
        _require(
            self.window_layers is None or self.window is not None,
            "attention.window_layers",
            self.window_layers,
            "None where there is no window",
        )
        _require(self.window_layers != (), "attention.window_layers", self.window_layers, "None or not empty")


@dataclasses.dataclass(frozen=True)
class PositionConfig:
    """How positions enter the model.

    Args:
        kind: "none", "sinusoidal" or "learned" (added to the embedding), "rotary" (turns queries and keys),
            "relative_bias" (T5) or "alibi" (added to the scores), "shaw" (added to keys and values).
        base: Wave length base of "sinusoidal" and "rotary".
        local_base: Base of "rotary" in layers with a window; None for `base`.
        layout: Order of the coordinates: "interleaved" or "concatenated" for "sinusoidal", "half_split" or
            "interleaved" for "rotary"; None for the first of each.
        rotary_dim: Number of coordinates of a head that are turned; None for all.
        scaling: Rotary scaling, for example `{"kind": "linear", "factor": 2.0}`; None for none.
        num_buckets: Buckets of "relative_bias".
        max_distance: Distance from which all are one bucket ("relative_bias"), or clipping distance ("shaw").
        offset: Added to each position before it is looked up ("learned"): 2 in BART and RoBERTa.
    """

    kind: str = "sinusoidal"
    base: float = 10000.0
    local_base: float | None = None
    layout: str | None = None
    rotary_dim: int | None = None
    scaling: dict[str, Any] | None = None
    num_buckets: int = 32
    max_distance: int = 128
    offset: int = 0

    def __post_init__(self) -> None:
        _require_types(self, "position.")
        _require(self.kind in POSITIONS, "position.kind", self.kind, f"one of {POSITIONS}")
        _require_positive(self, "position.", "base", "local_base", "rotary_dim", "num_buckets", "max_distance")
        _require(self.offset >= 0, "position.offset", self.offset, "at least 0")
        for field in dataclasses.fields(self):
            value, kinds = getattr(self, field.name), POSITION_OPTIONS.get(field.name, POSITIONS)
            _require(
                self.kind in kinds or value == field.default,
                f"position.{field.name}",
                value,
                f"{field.default!r} with position.kind={self.kind!r}: it is an option of {kinds}",
            )


@dataclasses.dataclass(frozen=True)
class NormConfig:
    """Norms and where they are.

    Args:
        kind: "layer", "rms", "scale", "dynamic_tanh" or "batch".
        placement: "post", "pre", "sandwich" or "parallel", see `layers.TransformerBlock`.
        epsilon: Added to the variance.
        unit_offset: Whether the weight of "rms" is stored minus one.
        final: Whether a norm follows the last block; None for: with all placements but "post".
        embedding: Whether a norm follows the embedding.
    """

    kind: str = "layer"
    placement: str = "post"
    epsilon: float = 1e-6
    unit_offset: bool = False
    final: bool | None = None
    embedding: bool = False

    def __post_init__(self) -> None:
        _require_types(self, "norm.")
        _require_positive(self, "norm.", "epsilon")
        kinds = ("layer", "rms", "scale", "dynamic_tanh", "batch")
        _require(self.kind in kinds, "norm.kind", self.kind, f"one of {kinds}")
        placements = ("post", "pre", "sandwich", "parallel")
        _require(self.placement in placements, "norm.placement", self.placement, f"one of {placements}")
        _require(
            self.kind == "rms" or not self.unit_offset,
            "norm.unit_offset",
            self.unit_offset,
            f"False with norm.kind={self.kind!r}: only 'rms' has it",
        )


@dataclasses.dataclass(frozen=True)
class FeedForwardConfig:
    """The position-wise network.

    Args:
        intermediate_dim: Width of the inner layer.
        activation: Name of the activation, see `layers.FeedForward`.
        gated: Whether the activation gates a second projection (GLU family).
        use_bias: Whether the projections have biases.
        dropout: Rate of the dropout on the inner layer.
    """

    intermediate_dim: int = 2048
    activation: str = "relu"
    gated: bool = False
    use_bias: bool = True
    dropout: float = 0.0

    def __post_init__(self) -> None:
        _require_types(self, "feed_forward.")
        _require_positive(self, "feed_forward.", "intermediate_dim")
        _require(0 <= self.dropout < 1, "feed_forward.dropout", self.dropout, "in [0, 1)")


@dataclasses.dataclass(frozen=True)
class EmbeddingConfig:
    """Token and segment embedding, and the projection back to the vocabulary.

    Args:
        scale: Whether embeddings are multiplied by `sqrt(hidden_dim)`.
        factor_dim: Inner width of a factorised embedding; None for not factorised.
        num_segments: Number of segment ids; 0 for no segment embedding.
        tie_output: Whether the output projection is the transposed embedding.
        output_bias: Whether the output projection has a bias.
        output_scale: Factor on the last hidden state before the output projection; None for none.
        logit_soft_cap: Soft cap on the logits; None for none.
    """

    scale: bool = False
    factor_dim: int | None = None
    num_segments: int = 0
    tie_output: bool = True
    output_bias: bool = False
    output_scale: float | None = None
    logit_soft_cap: float | None = None

    def __post_init__(self) -> None:
        _require_types(self, "embedding.")
        _require_positive(self, "embedding.", "factor_dim", "output_scale", "logit_soft_cap")
        _require(self.num_segments >= 0, "embedding.num_segments", self.num_segments, "at least 0")


@dataclasses.dataclass(frozen=True)
class TransformerConfig:
    """A Transformer: encoder-only, decoder-only or encoder-decoder.

    Args:
        architecture: "encoder", "decoder" or "encoder_decoder".
        vocabulary_size: Number of tokens.
        hidden_dim: Width of the model (d_model).
        num_layers: Number of blocks of each stack.
        num_decoder_layers: Number of blocks of the decoder of an encoder-decoder; None for `num_layers`.
        max_length: Longest sequence that the model is made for, in tokens.
        attention, position, norm, feed_forward, embedding: The choices of each part.
        dropout: Rate of the dropout on sublayer outputs and on the embedding (residual dropout).
        residual_scale: Factor on residual branches (DeepNorm).
        initializer_range: Standard deviation of truncated-normal initial weights; None for Glorot-uniform ones and
            embeddings of deviation `hidden_dim ** -0.5`.

    Raises:
        ValueError: If a choice is out of range, naming it, its value and what is allowed.

    Example:

    >>> config = TransformerConfig("decoder", vocabulary_size=1000, hidden_dim=64, num_layers=2,
    ...                            norm=NormConfig(kind="rms", placement="pre"), position=PositionConfig("rotary"))
    >>> TransformerConfig.from_json(config.to_json()) == config
    True
    """

    architecture: str
    vocabulary_size: int
    hidden_dim: int = 512
    num_layers: int = 6
    num_decoder_layers: int | None = None
    max_length: int = 512
    attention: AttentionConfig = AttentionConfig()
    position: PositionConfig = PositionConfig()
    norm: NormConfig = NormConfig()
    feed_forward: FeedForwardConfig = FeedForwardConfig()
    embedding: EmbeddingConfig = EmbeddingConfig()
    dropout: float = 0.1
    residual_scale: float = 1.0
    initializer_range: float | None = None

    def __post_init__(self) -> None:
        _require_types(self)
        _require(self.architecture in ARCHITECTURES, "architecture", self.architecture, f"one of {ARCHITECTURES}")
        _require_positive(
            self,
            "",
            "vocabulary_size",
            "hidden_dim",
            "num_layers",
            "num_decoder_layers",
            "max_length",
            "residual_scale",
            "initializer_range",
        )
        _require(
            self.residual_scale == 1 or self.norm.placement == "post",
            "residual_scale",
            self.residual_scale,
            f"1.0 with norm.placement={self.norm.placement!r}: DeepNorm is defined for 'post'",
        )
        _require(
            self.position.local_base is None or self.attention.window is not None,
            "position.local_base",
            self.position.local_base,
            "None without attention.window",
        )
        _require(0 <= self.dropout < 1, "dropout", self.dropout, "in [0, 1)")
        _require(
            self.num_decoder_layers is None or self.architecture == "encoder_decoder",
            "num_decoder_layers",
            self.num_decoder_layers,
            f"None with architecture={self.architecture!r}",
        )
        _require(
            self.attention.head_dim is not None or self.hidden_dim % self.attention.num_heads == 0,
            "attention.num_heads",
            self.attention.num_heads,
            f"a divisor of hidden_dim={self.hidden_dim} where attention.head_dim is not given",
        )

    @property
    def head_dim(self) -> int:
        """Width of one attention head."""
        return self.attention.head_dim or self.hidden_dim // self.attention.num_heads

    def to_dict(self) -> dict[str, Any]:
        """Returns the configuration as nested dictionaries of plain values."""
        return {"kind": "transformer", **dataclasses.asdict(self)}

    def to_json(self) -> str:
        """Returns the configuration as JSON text."""
        return json.dumps(self.to_dict(), indent=2)

    @classmethod
    def from_dict(cls, values: dict[str, Any]) -> "TransformerConfig":
        """Returns the configuration of nested dictionaries.

        Raises:
            ValueError: If a key is unknown (naming the nearest) or a value out of range.
        """
        _require(isinstance(values, dict), "The configuration", values, "a dictionary")
        values = dict(values)
        kind = values.pop("kind", "transformer")
        _require(kind == "transformer", "kind", kind, "'transformer'")
        return _from_dict(cls, values, "")

    @classmethod
    def from_json(cls, text: str) -> "TransformerConfig":
        """Returns the configuration of JSON text as `to_json` writes it; errors as for `from_dict`."""
        return cls.from_dict(json.loads(text))


def _from_dict(cls: type, values: dict[str, Any], path: str) -> Any:
    fields = {field.name: field for field in dataclasses.fields(cls)}
    hints = typing.get_type_hints(cls)
    arguments = {}
    for key, value in values.items():
        if key not in fields:
            near = difflib.get_close_matches(key, fields, n=1)
            hint = f" Did you mean {path + near[0]!r}?" if near else ""
            raise ValueError(f"Unknown configuration key {path + key!r}.{hint} Known: {', '.join(sorted(fields))}.")
        hint = hints[key]
        if dataclasses.is_dataclass(hint):
            _require(isinstance(value, dict), path + key, value, "a dictionary")
            value = _from_dict(hint, value, f"{path}{key}.")
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
        raise ValueError(f"The configuration lacks {', '.join(path + name for name in missing)}.")
    return cls(**arguments)


def _admits_tuple(hint: Any) -> bool:
    if isinstance(hint, types.UnionType):
        return any(_admits_tuple(option) for option in typing.get_args(hint))
    return typing.get_origin(hint) is tuple
