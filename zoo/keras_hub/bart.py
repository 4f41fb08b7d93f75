"""KerasHub's BART."""

import dataclasses
from typing import ClassVar

from zoo.config import NormConfig, TransformerConfig
from zoo.keras_hub.family import LearnedPositionArguments, Table, register_backbone

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
class BartArguments(LearnedPositionArguments):
    """`keras_hub.models.BartBackbone`."""

    class_name: ClassVar[str] = "BartBackbone"
    table: ClassVar[Table] = TABLE

    def config(self) -> TransformerConfig:
        return self.transformer("encoder_decoder", NormConfig("layer", "post", epsilon=1e-5, embedding=True), "gelu")
