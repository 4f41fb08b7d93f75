"""KerasHub's Gemma, Gemma 2 and the text model of Gemma 3."""

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
from zoo.keras_hub.decoders import MAX_LENGTH, size_of_window, window
from zoo.keras_hub.family import Arguments, Place, Table, register_backbone

BLOCK = "decoder_block_{}"
TABLE = {
    "token_embedding": "token_embedding",
    **{
        f"decoder.{{}}.attention.{part}": Place(f"{BLOCK}/attention/{part}", heads_first=True)
        for part in ("query", "key", "value")
    },
    "decoder.{}.attention.output": f"{BLOCK}/attention/attention_output",
    "decoder.{}.attention_norm": f"{BLOCK}/pre_attention_norm",
    "decoder.{}.attention_norm_after": f"{BLOCK}/post_attention_norm",
    "decoder.{}.feed_forward.gate": f"{BLOCK}/ffw_gating",
    "decoder.{}.feed_forward.up": f"{BLOCK}/ffw_gating_2",
    "decoder.{}.feed_forward.down": f"{BLOCK}/ffw_linear",
    "decoder.{}.feed_forward_norm": f"{BLOCK}/pre_ffw_norm",
    "decoder.{}.feed_forward_norm_after": f"{BLOCK}/post_ffw_norm",
    "decoder.final_norm": "final_normalization",
}


@register_backbone
@dataclasses.dataclass(frozen=True)
class GemmaArguments(Arguments):
    """`keras_hub.models.GemmaBackbone`: Gemma and Gemma 2.

    KerasHub 0.32 divides scores by the root of `head_dim`, whatever `query_head_dim_normalize` is, and gives the norms
    of the blocks an epsilon of 1e-6, whatever `layer_norm_epsilon` is.
    """

    vocabulary_size: int
    num_layers: int
    num_query_heads: int
    num_key_value_heads: int
    hidden_dim: int
    intermediate_dim: int
    head_dim: int
    query_head_dim_normalize: bool = True
    use_post_ffw_norm: bool = False
    use_post_attention_norm: bool = False
    attention_logit_soft_cap: float | None = None
    final_logit_soft_cap: float | None = None
    use_sliding_window_attention: bool = False
    sliding_window_size: int = 4096
    layer_norm_epsilon: float = 1e-6
    dropout: float = 0.0

    class_name: ClassVar[str] = "GemmaBackbone"
    table: ClassVar[Table] = TABLE
    # which layers have the window, and by how much the network is narrower than its argument
    window_layers: ClassVar[tuple[bool, ...]] = (True, False)
    network_share: ClassVar[int] = 2

    def position(self) -> PositionConfig:
        """Returns the positions."""
        return PositionConfig("rotary")

    def attention(self) -> dict[str, Any]:
        """Returns the arguments of `AttentionConfig` in which the classes differ."""
        return {}

    def config(self) -> TransformerConfig:
        epsilon = self.layer_norm_epsilon
        require(epsilon == 1e-6, "layer_norm_epsilon", epsilon, "1e-06: KerasHub has no other in the blocks")
        allowed = "true, or a head_dim that is hidden_dim / num_query_heads: KerasHub computes nothing with it"
        is_same = self.head_dim == self.hidden_dim // self.num_query_heads
        require(self.query_head_dim_normalize or is_same, "query_head_dim_normalize", False, allowed)
        after = (self.use_post_attention_norm, self.use_post_ffw_norm)
        require(after[0] == after[1], "use_post_ffw_norm", after[1], f"that of use_post_attention_norm, {after[0]}")
        sliding = {"window_layers": self.window_layers, **window(self.sliding_window_size)}
        return TransformerConfig(
            "decoder",
            self.vocabulary_size,
            hidden_dim=self.hidden_dim,
            num_layers=self.num_layers,
            max_length=MAX_LENGTH,
            attention=AttentionConfig(
                self.num_query_heads,
                num_key_value_heads=self.num_key_value_heads,
                head_dim=self.head_dim,
                use_bias=False,
                logit_soft_cap=self.attention_logit_soft_cap,
                dropout=self.dropout,
                **(sliding if self.use_sliding_window_attention else {}),
                **self.attention(),
            ),
            position=self.position(),
            norm=NormConfig("rms", "sandwich" if after[0] else "pre", epsilon=epsilon, unit_offset=True),
            feed_forward=FeedForwardConfig(
                self.intermediate_dim // self.network_share, "gelu_tanh", gated=True, use_bias=False
            ),
            embedding=EmbeddingConfig(scale=True, logit_soft_cap=self.final_logit_soft_cap),
            dropout=self.dropout,
        )

    @classmethod
    def of(cls, config: TransformerConfig) -> "GemmaArguments":
        attention, has_norms_after = config.attention, config.norm.placement == "sandwich"
        size = size_of_window(config)
        return cls(
            vocabulary_size=config.vocabulary_size,
            num_layers=config.num_layers,
            num_query_heads=attention.num_heads,
            num_key_value_heads=attention.num_key_value_heads or attention.num_heads,
            hidden_dim=config.hidden_dim,
            intermediate_dim=config.feed_forward.intermediate_dim * cls.network_share,
            head_dim=config.head_dim,
            use_post_ffw_norm=has_norms_after,
            use_post_attention_norm=has_norms_after,
            attention_logit_soft_cap=attention.logit_soft_cap,
            final_logit_soft_cap=config.embedding.logit_soft_cap,
            use_sliding_window_attention=size is not None,
            **({} if size is None else {"sliding_window_size": size}),
            layer_norm_epsilon=config.norm.epsilon,
            dropout=attention.dropout,
            **cls.more(config),
        )


@register_backbone
@dataclasses.dataclass(frozen=True)
class Gemma3Arguments(GemmaArguments):
    """`keras_hub.models.Gemma3Backbone`, the text model alone."""

    image_size: int | None = None
    use_query_key_norm: bool = True
    local_rope_scaling_factor: float = 1.0
    global_rope_scaling_factor: float = 1.0
    vision_encoder: dict[str, Any] | None = None
    use_bidirectional_attention: bool = False
    is_embedding_model: bool = False
    pooling_intermediate_dim: int | None = None
    embedding_dim: int | None = None
    sliding_window_size: int = 1024

    class_name: ClassVar[str] = "Gemma3Backbone"
    table: ClassVar[Table] = {
        **TABLE,
        "decoder.{}.attention.query_norm": f"{BLOCK}/attention/query_norm",
        "decoder.{}.attention.key_norm": f"{BLOCK}/attention/key_norm",
    }
    window_layers: ClassVar[tuple[bool, ...]] = (True, True, True, True, True, False)
    network_share: ClassVar[int] = 1

    def position(self) -> PositionConfig:
        factor, local = self.global_rope_scaling_factor, self.local_rope_scaling_factor
        scaling = None if factor == 1 else {"kind": "linear", "factor": factor}
        if not self.use_sliding_window_attention:
            return PositionConfig("rotary", base=1e6, scaling=scaling)
        allowed = f"1.0 or that of global_rope_scaling_factor, {factor}"
        require(local in (1, factor), "local_rope_scaling_factor", local, allowed)
        return PositionConfig("rotary", base=1e6, local_base=1e4, scaling=scaling, local_scaling=local == factor)

    def attention(self) -> dict[str, Any]:
        for name in ("use_bidirectional_attention", "is_embedding_model"):
            require(not getattr(self, name), name, True, "false: nothing else is supported")
        allowed = "null: only the text model is supported"
        require(self.vision_encoder is None, "vision_encoder", self.vision_encoder, allowed)
        return {"query_key_norm": "rms"} if self.use_query_key_norm else {}

    @classmethod
    def more(cls, config: TransformerConfig) -> dict[str, Any]:
        position = config.position
        factor = (position.scaling or {}).get("factor", 1.0)
        return {
            "use_query_key_norm": config.attention.query_key_norm is not None,
            "global_rope_scaling_factor": factor,
            "local_rope_scaling_factor": factor if position.local_scaling else 1.0,
        }
