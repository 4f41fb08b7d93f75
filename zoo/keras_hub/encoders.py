"""KerasHub's BERT, RoBERTa, XLM-RoBERTa and DistilBERT."""

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
from zoo.keras_hub.family import Arguments, Table, register_backbone

LAYER = "transformer_layer_{}"
BLOCK = {
    "encoder.{}.attention.query": f"{LAYER}/self_attention_layer/query",
    "encoder.{}.attention.key": f"{LAYER}/self_attention_layer/key",
    "encoder.{}.attention.value": f"{LAYER}/self_attention_layer/value",
    "encoder.{}.attention.output": f"{LAYER}/self_attention_layer/attention_output",
    "encoder.{}.attention_norm": f"{LAYER}/self_attention_layer_norm",
    "encoder.{}.feed_forward.up": f"{LAYER}/feedforward_intermediate_dense",
    "encoder.{}.feed_forward.down": f"{LAYER}/feedforward_output_dense",
    "encoder.{}.feed_forward_norm": f"{LAYER}/feedforward_layer_norm",
}


@dataclasses.dataclass(frozen=True)
class EncoderArguments(Arguments):
    """What these classes have in common; in what they differ are constants of their code.

    Attributes:
        epsilon: Epsilon of the norms.
        activation: Activation of the feed-forward network.
    """

    vocabulary_size: int
    num_layers: int
    num_heads: int
    hidden_dim: int
    intermediate_dim: int
    dropout: float = 0.1
    max_sequence_length: int = 512

    epsilon: ClassVar[float]
    activation: ClassVar[str] = "gelu"

    def config(self) -> TransformerConfig:
        return TransformerConfig(
            "encoder",
            self.vocabulary_size,
            hidden_dim=self.hidden_dim,
            num_layers=self.num_layers,
            max_length=self.max_sequence_length,
            attention=AttentionConfig(self.num_heads, dropout=self.dropout),
            position=PositionConfig("learned"),
            norm=NormConfig("layer", "post", epsilon=self.epsilon, embedding=True),
            feed_forward=FeedForwardConfig(self.intermediate_dim, self.activation),
            dropout=self.dropout,
            initializer_range=0.02,
        )

    @classmethod
    def of(cls, config: TransformerConfig) -> "EncoderArguments":
        return cls(**_shared(config))


def _shared(config: TransformerConfig) -> dict[str, Any]:
    return {
        "vocabulary_size": config.vocabulary_size,
        "num_layers": config.num_layers,
        "num_heads": config.attention.num_heads,
        "hidden_dim": config.hidden_dim,
        "intermediate_dim": config.feed_forward.intermediate_dim,
        "dropout": config.dropout,
        "max_sequence_length": config.max_length,
    }


@register_backbone
@dataclasses.dataclass(frozen=True)
class BertArguments(EncoderArguments):
    """`keras_hub.models.BertBackbone`."""

    num_segments: int = 2

    class_name: ClassVar[str] = "BertBackbone"
    epsilon: ClassVar[float] = 1e-12
    # the published weights were trained with the exact function; KerasHub computes its approximation
    activation: ClassVar[str] = "gelu_tanh"
    table: ClassVar[Table] = {
        "token_embedding": "token_embedding",
        "segment_embedding": "segment_embedding",
        "encoder.position": "position_embedding",
        "encoder.embedding_norm": "embeddings_layer_norm",
        "pooler": "pooled_dense",
        **BLOCK,
    }

    def config(self) -> TransformerConfig:
        embedding = EmbeddingConfig(num_segments=self.num_segments)
        return dataclasses.replace(super().config(), embedding=embedding, pooler=True)

    @classmethod
    def of(cls, config: TransformerConfig) -> "BertArguments":
        return cls(**_shared(config), num_segments=config.embedding.num_segments)


@register_backbone
@dataclasses.dataclass(frozen=True)
class RobertaArguments(EncoderArguments):
    """`keras_hub.models.RobertaBackbone`."""

    class_name: ClassVar[str] = "RobertaBackbone"
    epsilon: ClassVar[float] = 1e-5
    table: ClassVar[Table] = {
        "token_embedding": "embeddings/token_embedding",
        "encoder.position": "embeddings/position_embedding",
        "encoder.embedding_norm": "embeddings_layer_norm",
        **BLOCK,
    }


@register_backbone
@dataclasses.dataclass(frozen=True)
class XLMRobertaArguments(RobertaArguments):
    """`keras_hub.models.XLMRobertaBackbone`."""

    class_name: ClassVar[str] = "XLMRobertaBackbone"


@register_backbone
@dataclasses.dataclass(frozen=True)
class DistilBertArguments(EncoderArguments):
    """`keras_hub.models.DistilBertBackbone`."""

    class_name: ClassVar[str] = "DistilBertBackbone"
    epsilon: ClassVar[float] = 1e-12
    table: ClassVar[Table] = {
        "token_embedding": "token_and_position_embedding/token_embedding",
        "encoder.position": "token_and_position_embedding/position_embedding",
        "encoder.embedding_norm": "embeddings_layer_norm",
        **BLOCK,
    }
