"""KerasHub's BART."""

import dataclasses
from typing import ClassVar

from zoo.config import AttentionConfig, FeedForwardConfig, NormConfig, PositionConfig, TransformerConfig
from zoo.keras_hub.family import Arguments, Table, register_backbone

TABLE = {"token_embedding": "token_embedding"}
for side in ("encoder", "decoder"):
    ours, theirs = f"{side}.{{}}", f"transformer_{side}_layer_{{}}"
    TABLE[f"{side}.position"] = f"{side}_position_embedding"
    TABLE[f"{side}.embedding_norm"] = f"{side}_embeddings_layer_norm"
    parts = {"attention": "self_attention_layer" if side == "encoder" else "self_attention"}
    if side == "decoder":
        parts["cross_attention"] = "cross_attention"
    for part, name in parts.items():
        for projection in ("query", "key", "value"):
            TABLE[f"{ours}.{part}.{projection}"] = f"{theirs}/{name}/{projection}"
        TABLE[f"{ours}.{part}.output"] = f"{theirs}/{name}/attention_output"
        TABLE[f"{ours}.{part}_norm"] = f"{theirs}/{name.removesuffix('_layer')}_layer_norm"
    TABLE[f"{ours}.feed_forward.up"] = f"{theirs}/feedforward_intermediate_dense"
    TABLE[f"{ours}.feed_forward.down"] = f"{theirs}/feedforward_output_dense"
    TABLE[f"{ours}.feed_forward_norm"] = f"{theirs}/feedforward_layer_norm"


@register_backbone
@dataclasses.dataclass(frozen=True)
class BartArguments(Arguments):
    """`keras_hub.models.BartBackbone`."""

    vocabulary_size: int
    num_layers: int
    num_heads: int
    hidden_dim: int
    intermediate_dim: int
    dropout: float = 0.1
    max_sequence_length: int = 1024

    class_name: ClassVar[str] = "BartBackbone"
    table: ClassVar[Table] = TABLE

    def config(self) -> TransformerConfig:
        return TransformerConfig(
            "encoder_decoder",
            self.vocabulary_size,
            hidden_dim=self.hidden_dim,
            num_layers=self.num_layers,
            max_length=self.max_sequence_length,
            attention=AttentionConfig(self.num_heads, dropout=self.dropout),
            position=PositionConfig("learned"),
            norm=NormConfig("layer", "post", epsilon=1e-5, embedding=True),
            feed_forward=FeedForwardConfig(self.intermediate_dim, "gelu"),
            dropout=self.dropout,
            initializer_range=0.02,
        )

    @classmethod
    def of(cls, config: TransformerConfig) -> "BartArguments":
        return cls(
            config.vocabulary_size,
            config.num_layers,
            config.attention.num_heads,
            config.hidden_dim,
            config.feed_forward.intermediate_dim,
            config.dropout,
            config.max_length,
        )
