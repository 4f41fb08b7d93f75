"""KerasHub's BERT, RoBERTa, XLM-RoBERTa and DistilBERT."""

import dataclasses
from typing import Any, ClassVar

from zoo.config import (
    EmbeddingConfig,
    NormConfig,
    TransformerConfig,
)
from zoo.keras_hub.family import LearnedPositionArguments, Table, register_backbone

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
class EncoderArguments(LearnedPositionArguments):
    """What these classes have in common; in what they differ are constants of their code.

    Attributes:
        epsilon: Epsilon of the norms.
        activation: Activation of the feed-forward network.
    """

    epsilon: ClassVar[float]
    activation: ClassVar[str] = "gelu"

    def config(self) -> TransformerConfig:
        norm = NormConfig("layer", "post", epsilon=self.epsilon, embedding=True)
        return self.transformer("encoder", norm, self.activation, **self.choices())

    def choices(self) -> dict[str, Any]:
        """Returns the choices of `TransformerConfig` in which the classes differ."""
        return {}


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

    def choices(self) -> dict[str, Any]:
        return {"embedding": EmbeddingConfig(num_segments=self.num_segments), "pooler": True}

    @classmethod
    def more(cls, config: TransformerConfig) -> dict[str, Any]:
        return {"num_segments": config.embedding.num_segments}


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
