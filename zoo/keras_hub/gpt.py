"""KerasHub's GPT-2, OPT and GPT-NeoX."""

import dataclasses
from typing import ClassVar

from zoo.config import AttentionConfig, NormConfig, PositionConfig, TransformerConfig
from zoo.keras_hub.family import LearnedPositionArguments, Place, Table, register_backbone

LAYER = "transformer_layer_{}"
BLOCK = {
    "decoder.{}.attention.query": f"{LAYER}/self_attention/query",
    "decoder.{}.attention.key": f"{LAYER}/self_attention/key",
    "decoder.{}.attention.value": f"{LAYER}/self_attention/value",
    "decoder.{}.attention.output": f"{LAYER}/self_attention/attention_output",
    "decoder.{}.attention_norm": f"{LAYER}/self_attention_layer_norm",
    "decoder.{}.feed_forward.up": f"{LAYER}/feedforward_intermediate_dense",
    "decoder.{}.feed_forward.down": f"{LAYER}/feedforward_output_dense",
    "decoder.{}.feed_forward_norm": f"{LAYER}/feedforward_layer_norm",
    "decoder.final_norm": "layer_norm",
}


@register_backbone
@dataclasses.dataclass(frozen=True)
class GPT2Arguments(LearnedPositionArguments):
    """`keras_hub.models.GPT2Backbone`."""

    class_name: ClassVar[str] = "GPT2Backbone"
    table: ClassVar[Table] = {
        "token_embedding": "token_embedding",
        "decoder.position": "position_embedding",
        **BLOCK,
    }

    def config(self) -> TransformerConfig:
        return self.transformer("decoder", NormConfig("layer", "pre", epsilon=1e-5), "gelu_tanh")


@register_backbone
@dataclasses.dataclass(frozen=True)
class OPTArguments(LearnedPositionArguments):
    """`keras_hub.models.OPTBackbone`; its positions count padding, too."""

    max_sequence_length: int = 2048

    class_name: ClassVar[str] = "OPTBackbone"
    table: ClassVar[Table] = {
        "token_embedding": "embeddings/token_embedding",
        "decoder.position": "embeddings/position_embedding",
        **BLOCK,
    }

    def config(self) -> TransformerConfig:
        return self.transformer("decoder", NormConfig("layer", "pre", epsilon=1e-5), "relu")


@register_backbone
@dataclasses.dataclass(frozen=True)
class GPTNeoXArguments(LearnedPositionArguments):
    """`keras_hub.models.GPTNeoXBackbone`; its output is tied to the embedding, that of published models is not."""

    dropout: float = 0.0
    rotary_percentage: float = 0.25
    rotary_max_wavelength: float = 10000.0
    layer_norm_epsilon: float = 1e-5

    class_name: ClassVar[str] = "GPTNeoXBackbone"

    @property
    def table(self) -> Table:  # type: ignore[override]  # a constant in the base class
        projections = tuple(f"decoder.{{}}.attention.{part}" for part in ("query", "key", "value"))
        fused = Place(f"{LAYER}/self_attention/query_key_value", groups=self.num_heads)
        rest = {ours: theirs for ours, theirs in BLOCK.items() if ours not in projections}
        return {"token_embedding": "token_embedding", projections: fused, **rest}

    def config(self) -> TransformerConfig:
        norm = NormConfig("layer", "parallel", epsilon=self.layer_norm_epsilon, shared=False)
        head_dim = self.hidden_dim // self.num_heads
        turned = int(head_dim * self.rotary_percentage)
        return dataclasses.replace(
            self.transformer("decoder", norm, "gelu_tanh"),
            attention=AttentionConfig(self.num_heads, dropout=self.dropout),
            position=PositionConfig(
                "rotary", base=float(self.rotary_max_wavelength), rotary_dim=None if turned == head_dim else turned
            ),
        )

    @classmethod
    def more(cls, config: TransformerConfig) -> dict[str, float]:
        turned, head_dim = config.position.rotary_dim, config.head_dim
        share = 1.0 if turned is None else turned / head_dim
        return {
            # KerasHub rounds down what it gets of it
            "rotary_percentage": share if int(head_dim * share) == (turned or head_dim) else share + 1e-9,
            "rotary_max_wavelength": config.position.base,
            "layer_norm_epsilon": config.norm.epsilon,
        }
