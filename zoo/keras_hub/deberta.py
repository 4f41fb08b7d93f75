"""KerasHub's DeBERTa of version 3."""

import dataclasses
from typing import ClassVar

from zoo.config import AttentionConfig, NormConfig, PositionConfig, TransformerConfig
from zoo.keras_hub.encoders import BLOCK, LAYER
from zoo.keras_hub.family import LearnedPositionArguments, Table, register_backbone

EPSILON = 1e-7


@register_backbone
@dataclasses.dataclass(frozen=True)
class DebertaV3Arguments(LearnedPositionArguments):
    """`keras_hub.models.DebertaV3Backbone`."""

    bucket_size: int = 256

    class_name: ClassVar[str] = "DebertaV3Backbone"
    table: ClassVar[Table] = {
        "token_embedding": "token_embedding",
        "encoder.embedding_norm": "embeddings_layer_norm",
        "encoder.position": "rel_embedding/rel_embedding",
        "encoder.position_norm": "rel_embedding/rel_embeddings_layer_norm",
        **{ours: theirs.replace(LAYER, "disentangled_attention_encoder_layer_{}") for ours, theirs in BLOCK.items()},
    }

    def config(self) -> TransformerConfig:
        norm = NormConfig("layer", "post", epsilon=EPSILON, embedding=True)
        # the score of the contents and two with positions are divided by the root of their number
        scale = (3 * (self.hidden_dim // self.num_heads)) ** -0.5
        return dataclasses.replace(
            self.transformer("encoder", norm, "gelu"),
            attention=AttentionConfig(self.num_heads, scale=scale, dropout=self.dropout),
            position=PositionConfig(
                "disentangled",
                num_buckets=self.bucket_size,
                max_distance=self.max_sequence_length,
                options={"norm_epsilon": EPSILON},
            ),
        )

    @classmethod
    def more(cls, config: TransformerConfig) -> dict[str, int]:
        return {"bucket_size": config.position.num_buckets}
