"""KerasHub's ALBERT and ELECTRA, whose embeddings are narrower than their hidden states."""

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
from zoo.keras_hub.encoders import BLOCK, LAYER
from zoo.keras_hub.family import Arguments, Table, register_backbone

EMBEDDING = {
    "token_embedding": "token_embedding",
    "segment_embedding": "segment_embedding",
    "encoder.position": "position_embedding",
    "encoder.embedding_norm": "embeddings_layer_norm",
    "pooler": "pooled_dense",
}


class FactorisedArguments(Arguments):
    """What the two have in common: BERT with another embedding, in the approximation of GELU."""

    def transformer(self, vocabulary_size: int, is_factorised: bool, **choices: Any) -> TransformerConfig:
        """Returns our configuration.

        Args:
            vocabulary_size: Number of tokens.
            is_factorised: Whether a linear map leads from the embedding to the hidden states.
            **choices: Further choices of `TransformerConfig`.
        """
        factor = {"factor_dim": self.embedding_dim, "factor_bias": True, "factor_after_norm": True}
        return TransformerConfig(
            "encoder",
            vocabulary_size,
            hidden_dim=self.hidden_dim,
            num_layers=self.num_layers,
            max_length=self.max_sequence_length,
            attention=AttentionConfig(self.num_heads, dropout=self.dropout),
            position=PositionConfig("learned"),
            norm=NormConfig("layer", "post", epsilon=1e-12, embedding=True),
            feed_forward=FeedForwardConfig(self.intermediate_dim, "gelu_tanh"),
            embedding=EmbeddingConfig(num_segments=self.num_segments, **(factor if is_factorised else {})),
            dropout=self.dropout,
            pooler=True,
            initializer_range=0.02,
            **choices,
        )

    @classmethod
    def of(cls, config: TransformerConfig) -> "FactorisedArguments":
        return cls(
            num_layers=config.num_layers,
            num_heads=config.attention.num_heads,
            embedding_dim=config.embedding_dim,
            hidden_dim=config.hidden_dim,
            intermediate_dim=config.feed_forward.intermediate_dim,
            dropout=config.dropout,
            max_sequence_length=config.max_length,
            num_segments=config.embedding.num_segments,
            **cls.more(config),
        )


@register_backbone
@dataclasses.dataclass(frozen=True)
class AlbertArguments(FactorisedArguments):
    """`keras_hub.models.AlbertBackbone`."""

    vocabulary_size: int
    num_layers: int
    num_heads: int
    embedding_dim: int
    hidden_dim: int
    intermediate_dim: int
    num_groups: int = 1
    num_inner_repetitions: int = 1
    dropout: float = 0.0
    max_sequence_length: int = 512
    num_segments: int = 2

    class_name: ClassVar[str] = "AlbertBackbone"
    table: ClassVar[Table] = {
        **EMBEDDING,
        "token_factor": "embedding_projection",
        **{ours: theirs.replace(LAYER, "group_{}_inner_layer_0") for ours, theirs in BLOCK.items()},
    }

    def config(self) -> TransformerConfig:
        require(self.num_inner_repetitions == 1, "num_inner_repetitions", self.num_inner_repetitions, "1")
        return self.transformer(self.vocabulary_size, True, layer_groups=self.num_groups)

    @classmethod
    def more(cls, config: TransformerConfig) -> dict[str, Any]:
        return {
            "vocabulary_size": config.vocabulary_size,
            "num_groups": config.num_layers if config.layer_groups is None else config.layer_groups,
        }


@register_backbone
@dataclasses.dataclass(frozen=True)
class ElectraArguments(FactorisedArguments):
    """`keras_hub.models.ElectraBackbone`."""

    vocab_size: int
    num_layers: int
    num_heads: int
    hidden_dim: int
    embedding_dim: int
    intermediate_dim: int
    dropout: float = 0.1
    max_sequence_length: int = 512
    num_segments: int = 2

    class_name: ClassVar[str] = "ElectraBackbone"
    table: ClassVar[Table] = {**EMBEDDING, "token_factor": "embeddings_projection", **BLOCK}

    def config(self) -> TransformerConfig:
        return self.transformer(self.vocab_size, self.embedding_dim != self.hidden_dim)

    @classmethod
    def more(cls, config: TransformerConfig) -> dict[str, Any]:
        return {"vocab_size": config.vocabulary_size}
