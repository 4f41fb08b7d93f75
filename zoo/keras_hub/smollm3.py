"""KerasHub's SmolLM 3."""

import dataclasses
from typing import Any, ClassVar

from zoo.config import AttentionConfig, FeedForwardConfig, NormConfig, PositionConfig, TransformerConfig
from zoo.config.checks import require
from zoo.huggingface.family import shortest_pattern
from zoo.keras_hub.family import Arguments, Table, register_backbone

LAYER = "transformer_layer_{}"


@register_backbone
@dataclasses.dataclass(frozen=True)
class SmolLM3Arguments(Arguments):
    """`keras_hub.models.SmolLM3Backbone`."""

    vocabulary_size: int
    hidden_dim: int
    intermediate_dim: int
    num_layers: int
    num_attention_heads: int
    num_key_value_heads: int
    attention_bias: bool
    attention_dropout: float
    rope_layer_enabled_list: list[bool | int]
    layer_types: list[str]
    mlp_bias: bool
    layer_norm_epsilon: float
    max_position_embeddings: int
    rope_theta: float
    partial_rotary_factor: float

    class_name: ClassVar[str] = "SmolLM3Backbone"
    table: ClassVar[Table] = {
        "token_embedding": "token_embedding",
        **{
            f"decoder.{{}}.attention.{part}": f"{LAYER}/self_attn/{part[0]}_proj"
            for part in ("query", "key", "value", "output")
        },
        **{f"decoder.{{}}.feed_forward.{part}": f"{LAYER}/mlp/{part}_proj" for part in ("gate", "up", "down")},
        "decoder.{}.attention_norm": f"{LAYER}/input_layernorm",
        "decoder.{}.feed_forward_norm": f"{LAYER}/post_attention_layernorm",
        "decoder.final_norm": "sequence_output_layernorm",
    }

    @staticmethod
    def variables(theirs: Any) -> dict[str, Any]:
        # those of all layers have the same names; the frequencies follow from the arguments
        found = {
            variable.path: variable
            for variable in theirs.weights
            if variable.path not in ("o_proj/kernel", "rotary_emb/inv_freq")
        }
        for index, layer in enumerate(theirs.transformer_layers):
            found[f"{LAYER.replace('{}', str(index))}/self_attn/o_proj/kernel"] = layer.self_attn.o_proj.kernel
        return found

    def config(self) -> TransformerConfig:
        others = sorted(set(self.layer_types) - {"full_attention"})
        require(not others, "layer_types", others, "'full_attention': KerasHub knows no other")
        count = len(self.rope_layer_enabled_list)
        require(count == self.num_layers, "rope_layer_enabled_list", count, f"{self.num_layers} entries, one a layer")
        turned = shortest_pattern([bool(flag) for flag in self.rope_layer_enabled_list])
        partial, head_dim = self.partial_rotary_factor, self.hidden_dim // self.num_attention_heads
        require(partial == 1, "partial_rotary_factor", partial, "1.0: nothing else works in KerasHub")
        return TransformerConfig(
            "decoder",
            self.vocabulary_size,
            hidden_dim=self.hidden_dim,
            num_layers=self.num_layers,
            max_length=self.max_position_embeddings,
            attention=AttentionConfig(
                self.num_attention_heads,
                num_key_value_heads=self.num_key_value_heads,
                head_dim=head_dim,
                use_bias=("query", "key", "value") if self.attention_bias else False,
                dropout=self.attention_dropout,
            ),
            position=PositionConfig(
                "rotary", base=float(self.rope_theta), layers=None if turned == (True,) else turned
            ),
            norm=NormConfig("rms", "pre", epsilon=self.layer_norm_epsilon),
            feed_forward=FeedForwardConfig(self.intermediate_dim, "silu", gated=True, use_bias=self.mlp_bias),
            dropout=0.0,
            initializer_range=0.02,
        )

    @classmethod
    def of(cls, config: TransformerConfig) -> "SmolLM3Arguments":
        attention, layers = config.attention, range(config.num_layers)
        return cls(
            vocabulary_size=config.vocabulary_size,
            hidden_dim=config.hidden_dim,
            intermediate_dim=config.feed_forward.intermediate_dim,
            num_layers=config.num_layers,
            num_attention_heads=attention.num_heads,
            num_key_value_heads=attention.num_key_value_heads or attention.num_heads,
            attention_bias=bool(attention.use_bias),
            attention_dropout=attention.dropout,
            rope_layer_enabled_list=[config.position.acts_in_layer(index) for index in layers],
            layer_types=["full_attention" for _ in layers],
            mlp_bias=config.feed_forward.use_bias,
            layer_norm_epsilon=config.norm.epsilon,
            max_position_embeddings=config.max_length,
            rope_theta=config.position.base,
            partial_rotary_factor=1.0,
        )
