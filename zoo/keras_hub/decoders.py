"""KerasHub's Llama, Mistral, Qwen 2 and Qwen 3."""

import dataclasses
from typing import Any, ClassVar

from zoo.config import (
    AttentionConfig,
    EmbeddingConfig,
    FeedForwardConfig,
    NormConfig,
    PositionConfig,
    TransformerConfig,
)
from zoo.config.checks import require
from zoo.keras_hub.family import Arguments, Table, register_backbone

LAYER = "transformer_layer_{}"
GATED_BLOCK = {
    "token_embedding": "token_embedding",
    # stored as `(hidden_dim, vocabulary_size)`, as a kernel is
    "output_projection": "token_embedding/reverse_embeddings",
    "decoder.{}.attention.query": f"{LAYER}/self_attention/query",
    "decoder.{}.attention.key": f"{LAYER}/self_attention/key",
    "decoder.{}.attention.value": f"{LAYER}/self_attention/value",
    "decoder.{}.attention.output": f"{LAYER}/self_attention/attention_output",
    "decoder.{}.attention_norm": f"{LAYER}/self_attention_layernorm",
    "decoder.{}.feed_forward.gate": f"{LAYER}/feedforward_gate_dense",
    "decoder.{}.feed_forward.up": f"{LAYER}/feedforward_intermediate_dense",
    "decoder.{}.feed_forward.down": f"{LAYER}/feedforward_output_dense",
    "decoder.{}.feed_forward_norm": f"{LAYER}/feedforward_layernorm",
    "decoder.final_norm": "sequence_output_layernorm",
}
# not among the arguments of the classes with rotary positions
MAX_LENGTH = 4096


@dataclasses.dataclass(frozen=True)
class GatedArguments(Arguments):
    """What the classes with rotary positions and gated networks have in common."""

    vocabulary_size: int
    num_layers: int
    num_query_heads: int
    hidden_dim: int
    intermediate_dim: int
    num_key_value_heads: int
    rope_max_wavelength: float = 10000.0
    layer_norm_epsilon: float = 1e-6
    dropout: float = 0.0

    table: ClassVar[Table] = GATED_BLOCK

    def scaling(self) -> dict[str, Any] | None:
        """Returns the rotary scaling."""
        return None

    def attention(self) -> dict[str, Any]:
        """Returns the arguments of `AttentionConfig` in which the classes differ."""
        return {"use_bias": False}

    def network(self) -> FeedForwardConfig:
        """Returns the feed-forward network."""
        return FeedForwardConfig(self.intermediate_dim, "silu", gated=True, use_bias=False)

    def is_tied(self) -> bool:
        """Whether the output projection is the embedding."""
        return False

    def config(self) -> TransformerConfig:
        return TransformerConfig(
            "decoder",
            self.vocabulary_size,
            hidden_dim=self.hidden_dim,
            num_layers=self.num_layers,
            max_length=MAX_LENGTH,
            attention=AttentionConfig(
                self.num_query_heads,
                num_key_value_heads=self.num_key_value_heads,
                dropout=self.dropout,
                **self.attention(),
            ),
            position=PositionConfig("rotary", base=float(self.rope_max_wavelength), scaling=self.scaling()),
            norm=NormConfig("rms", "pre", epsilon=self.layer_norm_epsilon),
            feed_forward=self.network(),
            embedding=EmbeddingConfig(tie_output=self.is_tied()),
            dropout=0.0,
            initializer_range=0.02,
        )

    @classmethod
    def of(cls, config: TransformerConfig) -> "GatedArguments":
        attention = config.attention
        return cls(
            vocabulary_size=config.vocabulary_size,
            num_layers=config.num_layers,
            num_query_heads=attention.num_heads,
            hidden_dim=config.hidden_dim,
            intermediate_dim=config.feed_forward.intermediate_dim,
            num_key_value_heads=attention.num_key_value_heads or attention.num_heads,
            rope_max_wavelength=config.position.base,
            layer_norm_epsilon=config.norm.epsilon,
            dropout=attention.dropout,
            **cls.more(config),
        )


@register_backbone
@dataclasses.dataclass(frozen=True)
class LlamaArguments(GatedArguments):
    """`keras_hub.models.LlamaBackbone`; its files do not say whether the output is tied, and load only where not."""

    rope_position_scaling_factor: float = 1.0
    rope_frequency_adjustment_factor: float | None = None
    rope_low_freq_factor: float | None = None
    rope_high_freq_factor: float | None = None
    rope_pretraining_sequence_length: int | None = None

    class_name: ClassVar[str] = "LlamaBackbone"

    def scaling(self) -> dict[str, Any] | None:
        require(
            self.rope_position_scaling_factor == 1,
            "rope_position_scaling_factor",
            self.rope_position_scaling_factor,
            "1.0: KerasHub itself computes nothing with it",
        )
        if self.rope_frequency_adjustment_factor is None:
            return None
        return {
            "kind": "llama3",
            "factor": self.rope_frequency_adjustment_factor,
            "low_freq_factor": self.rope_low_freq_factor,
            "high_freq_factor": self.rope_high_freq_factor,
            "original_max_position_embeddings": self.rope_pretraining_sequence_length,
        }

    @classmethod
    def more(cls, config: TransformerConfig) -> dict[str, Any]:
        scaling = config.position.scaling or {}
        if scaling.get("kind") != "llama3":
            return {}
        return {
            "rope_frequency_adjustment_factor": scaling["factor"],
            "rope_low_freq_factor": scaling["low_freq_factor"],
            "rope_high_freq_factor": scaling["high_freq_factor"],
            "rope_pretraining_sequence_length": scaling["original_max_position_embeddings"],
        }


@register_backbone
@dataclasses.dataclass(frozen=True)
class Llama3Arguments(LlamaArguments):
    """`keras_hub.models.Llama3Backbone`."""

    class_name: ClassVar[str] = "Llama3Backbone"


@dataclasses.dataclass(frozen=True)
class LinearlyScaledArguments(GatedArguments):
    """Those with one factor of all positions."""

    rope_scaling_factor: float = 1.0

    def scaling(self) -> dict[str, Any] | None:
        return None if self.rope_scaling_factor == 1 else {"kind": "linear", "factor": self.rope_scaling_factor}

    @classmethod
    def more(cls, config: TransformerConfig) -> dict[str, Any]:
        return {"rope_scaling_factor": (config.position.scaling or {}).get("factor", 1.0)}


def window(size: int | None) -> dict[str, Any]:
    """Returns the argument of `AttentionConfig` for a window of a number of positions; None for none."""
    return {} if size is None else {"window": (size - 1, 0)}


def size_of_window(config: TransformerConfig) -> int | None:
    """Returns the number of positions that a position sees; None for all."""
    return None if config.attention.window is None else config.attention.window[0] + 1


@register_backbone
@dataclasses.dataclass(frozen=True)
class MistralArguments(LinearlyScaledArguments):
    """`keras_hub.models.MistralBackbone`."""

    sliding_window: int | None = 512
    head_dim: int | None = None

    class_name: ClassVar[str] = "MistralBackbone"

    def attention(self) -> dict[str, Any]:
        return {"use_bias": False, "head_dim": self.head_dim, **window(self.sliding_window)}

    @classmethod
    def more(cls, config: TransformerConfig) -> dict[str, Any]:
        return {
            **super().more(config),
            "sliding_window": size_of_window(config),
            "head_dim": config.attention.head_dim,
        }


@register_backbone
@dataclasses.dataclass(frozen=True)
class QwenArguments(LinearlyScaledArguments):
    """`keras_hub.models.QwenBackbone`: Qwen 2 and 2.5."""

    tie_word_embeddings: bool = True
    use_sliding_window_attention: bool = False
    sliding_window_size: int = 32768

    class_name: ClassVar[str] = "QwenBackbone"

    def is_tied(self) -> bool:
        return self.tie_word_embeddings

    def attention(self) -> dict[str, Any]:
        size = self.sliding_window_size if self.use_sliding_window_attention else None
        return {"use_bias": ("query", "key", "value"), **window(size)}

    @classmethod
    def more(cls, config: TransformerConfig) -> dict[str, Any]:
        size = size_of_window(config)
        return {
            **super().more(config),
            "tie_word_embeddings": config.embedding.tie_output,
            "use_sliding_window_attention": size is not None,
            **({} if size is None else {"sliding_window_size": size}),
        }


@register_backbone
@dataclasses.dataclass(frozen=True)
class Qwen3Arguments(LinearlyScaledArguments):
    """`keras_hub.models.Qwen3Backbone`.

    KerasHub 0.32 gives the norms of queries and keys an epsilon of 1e-5, whatever `layer_norm_epsilon` is; here they
    have this, as in the published models.
    """

    head_dim: int | None = None
    tie_word_embeddings: bool = True
    sliding_window_size: int | None = None

    class_name: ClassVar[str] = "Qwen3Backbone"
    table: ClassVar[Table] = {
        **GATED_BLOCK,
        "decoder.{}.attention.query_norm": f"{LAYER}/self_attention/query_dense_layernorm",
        "decoder.{}.attention.key_norm": f"{LAYER}/self_attention/key_dense_layernorm",
    }

    def is_tied(self) -> bool:
        return self.tie_word_embeddings

    def attention(self) -> dict[str, Any]:
        return {
            "use_bias": False,
            "head_dim": self.head_dim,
            "query_key_norm": "rms",
            **window(self.sliding_window_size),
        }

    @classmethod
    def more(cls, config: TransformerConfig) -> dict[str, Any]:
        return {
            **super().more(config),
            "head_dim": config.head_dim,
            "tie_word_embeddings": config.embedding.tie_output,
            "sliding_window_size": size_of_window(config),
        }
