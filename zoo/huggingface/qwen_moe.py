"""Qwen 2 and Qwen 3 with experts (model types "qwen2_moe" and "qwen3_moe")."""

import dataclasses
from typing import Any

from zoo.config import TransformerConfig
from zoo.huggingface import llama
from zoo.huggingface.config_reader import ConfigReader
from zoo.huggingface.family import shortest_pattern, types_of_layers, window_of_layers
from zoo.huggingface.weights import Stored

_EXPERTS = {
    f"decoder.{{}}.feed_forward.experts.{part}": Stored(f"layers.{{}}.mlp.experts.{{}}.{part}_proj")
    for part in ("gate", "up", "down")
}
QWEN3_TABLE = {**llama.TABLE, "decoder.{}.feed_forward.router": "layers.{}.mlp.gate", **_EXPERTS}
QWEN2_TABLE = {
    **QWEN3_TABLE,
    **{
        f"decoder.{{}}.feed_forward.shared.{part}": f"layers.{{}}.mlp.shared_expert.{part}_proj"
        for part in ("gate", "up", "down")
    },
    "decoder.{}.feed_forward.shared_gate": "layers.{}.mlp.shared_expert_gate",
}


def with_experts(
    reader: ConfigReader, config: TransformerConfig, *, normalize: bool = False, **defaults: int
) -> TransformerConfig:
    """Returns the configuration with experts in some of its layers.

    Args:
        reader: The configuration.
        config: Ours without experts.
        normalize: What a missing `norm_topk_prob` means.
        **defaults: What missing keys mean.
    """
    reader.skip("output_router_logits")
    layers, step = config.num_layers, reader.take("decoder_sparse_step", 1)
    dense = reader.take("mlp_only_layers", None) or []
    sizes = {key: reader.take(key, default) for key, default in defaults.items()}
    normalize, weight = reader.take("norm_topk_prob", normalize), reader.take("router_aux_loss_coef", 0.001)
    flags = [index not in dense and (index + 1) % step == 0 for index in range(layers)]
    if not any(flags):
        return config
    network = dataclasses.replace(
        config.feed_forward,
        intermediate_dim=sizes["moe_intermediate_size"],
        num_experts=sizes["num_experts"],
        experts_per_token=sizes["num_experts_per_tok"],
        normalize_weights=normalize,
        load_balance_weight=weight,
    )
    if not all(flags):
        network = dataclasses.replace(
            network,
            expert_layers=shortest_pattern(flags),
            dense_intermediate_dim=config.feed_forward.intermediate_dim,
        )
    return dataclasses.replace(config, feed_forward=network)


def write_experts(config: TransformerConfig) -> dict[str, Any]:
    """Returns the keys that `with_experts` takes."""
    network, layers = config.feed_forward, range(config.num_layers)
    return {
        "decoder_sparse_step": 1,
        "mlp_only_layers": [index for index in layers if not network.has_experts(index)],
        "intermediate_size": network.dense_intermediate_dim or network.intermediate_dim,
        "moe_intermediate_size": network.intermediate_dim,
        "num_experts": network.num_experts or 1,
        "num_experts_per_tok": network.experts_per_token,
        "norm_topk_prob": network.experts_per_token > 1
        if network.normalize_weights is None
        else network.normalize_weights,
        "router_aux_loss_coef": network.load_balance_weight,
    }


def with_shared_expert(reader: ConfigReader, config: TransformerConfig, default: int) -> TransformerConfig:
    """Returns the configuration with an expert that all tokens share, where it has experts.

    Args:
        reader: The configuration.
        config: Ours with experts.
        default: What a missing width means.
    """
    shared = reader.take("shared_expert_intermediate_size", default)
    if config.feed_forward.num_experts is None:
        return config
    network = dataclasses.replace(config.feed_forward, shared_intermediate_dim=shared, shared_gate=True)
    return dataclasses.replace(config, feed_forward=network)


def _read_qwen2_moe(reader: ConfigReader) -> TransformerConfig:
    def attention(reader: ConfigReader) -> dict[str, Any]:
        layers, is_used = reader.take("num_hidden_layers"), reader.take("use_sliding_window", False)
        size, first = reader.take("sliding_window", 4096), reader.take("max_window_layers", 28)
        types = reader.take("layer_types", None) or [
            "sliding_attention" if is_used and (index + 1) % 2 and index < first else "full_attention"
            for index in range(layers)
        ]
        window = llama.sliding(size) if is_used else None
        has_bias = reader.take("qkv_bias", True)
        return {
            "use_bias": ("query", "key", "value") if has_bias else False,
            **window_of_layers(types, layers, window),
        }

    config = llama.read(reader, attention, max_position_embeddings=32768, num_key_value_heads=16)
    config = with_experts(reader, config, moe_intermediate_size=1408, num_experts=60, num_experts_per_tok=4)
    return with_shared_expert(reader, config, 5632)


def _write_qwen2_moe(config: TransformerConfig) -> dict[str, Any]:
    size = llama.size_of_window(config)
    return {
        **llama.write(config, has_head_dim=False),
        **write_experts(config),
        "shared_expert_intermediate_size": config.feed_forward.shared_intermediate_dim or 1,
        "qkv_bias": bool(config.attention.use_bias),
        "use_sliding_window": size is not None,
        "sliding_window": size,
        "layer_types": types_of_layers(config),
    }


def _read_qwen3_moe(reader: ConfigReader) -> TransformerConfig:
    def attention(reader: ConfigReader) -> dict[str, Any]:
        is_used, size = reader.take("use_sliding_window", False), reader.take("sliding_window", 4096)
        return {
            "use_bias": reader.take("attention_bias", False),
            "query_key_norm": "rms",
            "window": None if size is None or not is_used else llama.sliding(size),
        }

    reader.skip("max_window_layers")  # in published files, and never read
    config = llama.read(reader, attention, max_position_embeddings=32768, num_key_value_heads=4)
    experts = reader.take("num_local_experts", 128)  # the newer name
    return with_experts(reader, config, moe_intermediate_size=768, num_experts=experts, num_experts_per_tok=8)


def _write_qwen3_moe(config: TransformerConfig) -> dict[str, Any]:
    size = llama.size_of_window(config)
    return {
        **llama.write(config),
        **write_experts(config),
        "attention_bias": bool(config.attention.use_bias),
        "use_sliding_window": size is not None,
        "sliding_window": size,
    }


llama.register("qwen2_moe", "Qwen2Moe", _read_qwen2_moe, _write_qwen2_moe, QWEN2_TABLE, answerer_prefix="model.")
llama.register("qwen3_moe", "Qwen3Moe", _read_qwen3_moe, _write_qwen3_moe, QWEN3_TABLE, answerer_prefix="transformer.")
