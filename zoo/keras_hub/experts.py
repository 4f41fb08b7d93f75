"""KerasHub's decoders with experts: Mixtral, Qwen 2 and 3, gpt-oss."""

import dataclasses
import re
from typing import Any, ClassVar

from zoo.config import FeedForwardConfig, TransformerConfig
from zoo.config.checks import require
from zoo.huggingface.family import shortest_pattern
from zoo.keras_hub.decoders import GATED_BLOCK, LAYER, GatedArguments, LinearlyScaledArguments, size_of_window, window
from zoo.keras_hub.family import Place, Table, register_backbone

ATTENTION = {ours: theirs for ours, theirs in GATED_BLOCK.items() if ".feed_forward." not in ours}
EXPERTS = ("decoder.{}.feed_forward.experts.gate", "decoder.{}.feed_forward.experts.up")
ROUTER = {"decoder.{}.feed_forward.router": f"{LAYER}/mlp/sparse_feedforward_gate_dense"}
DOWN = {"decoder.{}.feed_forward.experts.down": f"{LAYER}/mlp/experts/expert_feedforward_output_dense"}
# both in one, the gates first
FUSED = {EXPERTS: f"{LAYER}/mlp/experts/expert_feedforward_gate_dense"}


class ExpertArguments(GatedArguments):
    """What those have in common whose networks KerasHub gives automatic names."""

    @staticmethod
    def variables(theirs: Any) -> dict[str, Any]:
        automatic = r"/(mixtral|qwen|qwen3)_(sparse_moe_block|moe_mlp)(_\d+)?/"
        return {re.sub(automatic, "/mlp/", variable.path): variable for variable in theirs.weights}


@register_backbone
@dataclasses.dataclass(frozen=True)
class MixtralArguments(ExpertArguments, LinearlyScaledArguments):
    """`keras_hub.models.MixtralBackbone`; KerasHub computes nothing with `sliding_window`."""

    num_experts: int = 8
    top_k: int = 2
    router_jitter_noise: float = 0.0
    router_aux_loss_coef: float = 0.02
    sliding_window: int | None = 512

    class_name: ClassVar[str] = "MixtralBackbone"
    table: ClassVar[Table] = {
        **ATTENTION,
        **ROUTER,
        EXPERTS[0]: f"{LAYER}/mlp/experts/expert_feedforward_gate_dense",
        EXPERTS[1]: f"{LAYER}/mlp/experts/expert_feedforward_intermediate_dense",
        **DOWN,
    }

    def network(self) -> FeedForwardConfig:
        return dataclasses.replace(
            super().network(),
            num_experts=self.num_experts,
            experts_per_token=self.top_k,
            normalize_weights=True,
            load_balance_weight=self.router_aux_loss_coef,
        )

    @classmethod
    def more(cls, config: TransformerConfig) -> dict[str, Any]:
        return {
            **super().more(config),
            "num_experts": config.feed_forward.num_experts,
            "top_k": config.feed_forward.experts_per_token,
            "router_aux_loss_coef": config.feed_forward.load_balance_weight,
        }


@dataclasses.dataclass(frozen=True)
class QwenExpertArguments(ExpertArguments, LinearlyScaledArguments):
    """What both generations have in common; `intermediate_dim` is that of layers without experts."""

    moe_intermediate_dim: int = 0
    num_experts: int = 0
    top_k: int = 4
    norm_top_k_prob: bool = False
    decoder_sparse_step: int = 1
    tie_word_embeddings: bool = False
    router_aux_loss_coefficient: float = 0.001
    mlp_only_layers: list[int] | None = None

    def is_tied(self) -> bool:
        return self.tie_word_embeddings

    def network(self) -> FeedForwardConfig:
        return dataclasses.replace(
            super().network(),
            intermediate_dim=self.moe_intermediate_dim,
            num_experts=self.num_experts,
            experts_per_token=self.top_k,
            normalize_weights=self.norm_top_k_prob,
            load_balance_weight=self.router_aux_loss_coefficient,
        )

    @classmethod
    def of(cls, config: TransformerConfig) -> "QwenExpertArguments":
        network = config.feed_forward
        dense = network.dense_intermediate_dim or network.intermediate_dim
        return dataclasses.replace(super().of(config), intermediate_dim=dense)

    @classmethod
    def more(cls, config: TransformerConfig) -> dict[str, Any]:
        network = config.feed_forward
        normalize = network.normalize_weights
        return {
            **super().more(config),
            "moe_intermediate_dim": network.intermediate_dim,
            "num_experts": network.num_experts,
            "top_k": network.experts_per_token,
            "norm_top_k_prob": network.experts_per_token > 1 if normalize is None else normalize,
            "tie_word_embeddings": config.embedding.tie_output,
            "router_aux_loss_coefficient": network.load_balance_weight,
        }


@register_backbone
@dataclasses.dataclass(frozen=True)
class QwenMoeArguments(QwenExpertArguments):
    """`keras_hub.models.QwenMoeBackbone`; KerasHub 0.32 gives all layers experts or none."""

    shared_expert_intermediate_dim: int = 0
    use_sliding_window_attention: bool = False
    sliding_window_size: int = 32768
    output_router_logits: bool = False

    class_name: ClassVar[str] = "QwenMoeBackbone"
    table: ClassVar[Table] = {
        **ATTENTION,
        **ROUTER,
        **FUSED,
        **DOWN,
        "decoder.{}.feed_forward.shared.gate": f"{LAYER}/mlp/shared_expert_dense/feedforward_gate_dense",
        "decoder.{}.feed_forward.shared.up": f"{LAYER}/mlp/shared_expert_dense/feedforward_intermediate_dense",
        "decoder.{}.feed_forward.shared.down": f"{LAYER}/mlp/shared_expert_dense/feedforward_output_dense",
        "decoder.{}.feed_forward.shared_gate": f"{LAYER}/mlp/shared_expert_gate_dense",
    }

    def attention(self) -> dict[str, Any]:
        size = self.sliding_window_size if self.use_sliding_window_attention else None
        return {"use_bias": ("query", "key", "value"), **window(size)}

    def network(self) -> FeedForwardConfig:
        step, dense = self.decoder_sparse_step, self.mlp_only_layers
        require(step == 1, "decoder_sparse_step", step, "1: nothing else is supported")
        require(not dense, "mlp_only_layers", dense, "[]: nothing else is supported")
        shared = self.shared_expert_intermediate_dim
        return dataclasses.replace(super().network(), shared_intermediate_dim=shared, shared_gate=True)

    @classmethod
    def more(cls, config: TransformerConfig) -> dict[str, Any]:
        size = size_of_window(config)
        return {
            **super().more(config),
            "shared_expert_intermediate_dim": config.feed_forward.shared_intermediate_dim,
            "use_sliding_window_attention": size is not None,
            **({} if size is None else {"sliding_window_size": size}),
            "mlp_only_layers": [],
        }


@register_backbone
@dataclasses.dataclass(frozen=True)
class Qwen3MoeArguments(QwenExpertArguments):
    """`keras_hub.models.Qwen3MoeBackbone`.

    KerasHub 0.32 gives the norms of queries and keys an epsilon of 1e-6, whatever `layer_norm_epsilon` is; here they
    have this, as in the published models.
    """

    head_dim: int | None = None
    sliding_window_size: int | None = 32768

    class_name: ClassVar[str] = "Qwen3MoeBackbone"
    table: ClassVar[Table] = {
        **ATTENTION,
        "decoder.{}.attention.query_norm": f"{LAYER}/self_attention/query_dense_layernorm",
        "decoder.{}.attention.key_norm": f"{LAYER}/self_attention/key_dense_layernorm",
        **ROUTER,
        **FUSED,
        **DOWN,
        "decoder.{}.feed_forward.gate": f"{LAYER}/mlp/feedforward_gate_dense",
        "decoder.{}.feed_forward.up": f"{LAYER}/mlp/feedforward_intermediate_dense",
        "decoder.{}.feed_forward.down": f"{LAYER}/mlp/feedforward_output_dense",
    }

    def attention(self) -> dict[str, Any]:
        return {
            "use_bias": False,
            "head_dim": self.head_dim,
            "query_key_norm": "rms",
            **window(self.sliding_window_size),
        }

    def network(self) -> FeedForwardConfig:
        dense, step = self.mlp_only_layers or [], self.decoder_sparse_step
        has_experts = [index not in dense and (index + 1) % step == 0 for index in range(self.num_layers)]
        if not any(has_experts) or not self.num_experts:
            return GatedArguments.network(self)
        if all(has_experts):
            return super().network()
        return dataclasses.replace(
            super().network(),
            expert_layers=shortest_pattern(has_experts),
            dense_intermediate_dim=self.intermediate_dim,
        )

    @classmethod
    def more(cls, config: TransformerConfig) -> dict[str, Any]:
        layers = range(config.num_layers)
        return {
            **super().more(config),
            "head_dim": config.head_dim,
            "sliding_window_size": size_of_window(config),
            "mlp_only_layers": [index for index in layers if not config.feed_forward.has_experts(index)],
        }


@register_backbone
@dataclasses.dataclass(frozen=True)
class GptOssArguments(GatedArguments):
    """`keras_hub.models.GptOssBackbone`.

    KerasHub 0.32 has the window in the layers of odd numbers, and one position wider than it says; the published
    models have it in the others.
    """

    num_experts: int = 0
    top_k: int = 2
    rope_scaling_factor: float = 1.0
    sliding_window: int | None = 4096
    head_dim: int | None = None
    output_router_logits: bool = False

    class_name: ClassVar[str] = "GptOssBackbone"

    @property
    def table(self) -> Table:  # type: ignore[override]  # a constant in the base class
        block = f"{LAYER}/sparse_moe_block"
        return {
            **ATTENTION,
            "decoder.{}.attention_norm": f"{LAYER}/input_layernorm",
            "decoder.{}.feed_forward_norm": f"{LAYER}/post_attention_layernorm",
            "decoder.{}.attention.sinks": f"{LAYER}/self_attention/sinks",
            "decoder.{}.feed_forward.router": f"{block}/router/router_dense",
            # their columns take turns
            EXPERTS: Place(f"{block}/experts/gate_up_proj", groups=self.intermediate_dim),
            "decoder.{}.feed_forward.experts.down": f"{block}/experts/down_proj",
        }

    def scaling(self) -> dict[str, Any]:
        return {
            "kind": "yarn",
            "factor": self.rope_scaling_factor,
            "beta_fast": 32.0,
            "beta_slow": 1.0,
            "truncate": False,
            "original_max_position_embeddings": 4096,
        }

    def attention(self) -> dict[str, Any]:
        size = self.sliding_window
        some = {} if not size else {**window(size + 1), "window_layers": (False, True)}
        return {"use_bias": True, "sinks": True, "head_dim": self.head_dim, **some}

    def network(self) -> FeedForwardConfig:
        return FeedForwardConfig(
            self.intermediate_dim,
            "quick_gelu",
            gated=True,
            gate_limit=7.0,
            up_offset=1.0,
            num_experts=self.num_experts,
            experts_per_token=self.top_k,
            normalize_weights=True,
            router_bias=True,
        )

    @classmethod
    def more(cls, config: TransformerConfig) -> dict[str, Any]:
        size = size_of_window(config)
        return {
            "num_experts": config.feed_forward.num_experts,
            "top_k": config.feed_forward.experts_per_token,
            "rope_scaling_factor": (config.position.scaling or {}).get("factor", 1.0),
            "sliding_window": None if size is None else size - 1,
            "head_dim": config.head_dim,
        }
