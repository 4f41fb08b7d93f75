"""OLMoE (model type "olmoe")."""

import dataclasses
from typing import Any

from zoo.config import TransformerConfig
from zoo.huggingface import llama, olmo, qwen_moe
from zoo.huggingface.config_reader import ConfigReader


def read(reader: ConfigReader) -> TransformerConfig:
    """Returns the configuration of an OLMoE: experts in all layers, and one norm of the queries of all heads."""

    def attention(reader: ConfigReader) -> dict[str, Any]:
        return {**olmo.read_attention(reader), "query_key_norm": "rms", "query_key_norm_scope": "width"}

    reader.skip("output_router_logits")
    reader.take_only("mlp_bias", False)
    reader.take_only("sliding_window", None)
    config = llama.read(reader, attention, max_position_embeddings=4096, rms_norm_eps=1e-5)
    network = dataclasses.replace(
        config.feed_forward,
        num_experts=reader.take("num_experts", reader.take("num_local_experts", 64)),
        experts_per_token=reader.take("num_experts_per_tok", 8),
        normalize_weights=reader.take("norm_topk_prob", False),
        load_balance_weight=reader.take("router_aux_loss_coef", 0.01),
    )
    return dataclasses.replace(config, feed_forward=network)


def write(config: TransformerConfig) -> dict[str, Any]:
    """Returns the configuration of the Transformers library."""
    network = config.feed_forward
    return {
        **llama.write(config, has_head_dim=False),
        **olmo.write_attention(config),
        "num_experts": network.num_experts,
        "num_experts_per_tok": network.experts_per_token,
        "norm_topk_prob": network.experts_per_token > 1
        if network.normalize_weights is None
        else network.normalize_weights,
        "router_aux_loss_coef": network.load_balance_weight,
    }


llama.register("olmoe", "Olmoe", read, write, qwen_moe.QWEN3_TABLE, classifiers={})
