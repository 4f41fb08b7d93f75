"""DeepSeek V2 and V3 (model types "deepseek_v2" and "deepseek_v3")."""

import dataclasses
import math
from typing import Any

from zoo.config import TransformerConfig
from zoo.config.checks import require
from zoo.huggingface import llama
from zoo.huggingface.config_reader import ConfigReader
from zoo.huggingface.family import shortest_pattern
from zoo.huggingface.weights import Stored, Table

_PARTS = ("gate", "up", "down")
_LATENT = ("latent_dim", "shared_key_dim", "query_latent_dim")


def table(config: TransformerConfig) -> Table:
    """Returns the names of the weights: queries may be made of a latent or not."""
    attention, prefix = "decoder.{}.attention", "layers.{}.self_attn"
    key, value = f"{attention}.key", f"{attention}.value"
    names = {
        **{ours: theirs for ours, theirs in llama.TABLE.items() if ours not in (key, value)},
        (f"{attention}.latent", f"{attention}.shared_key"): f"{prefix}.kv_a_proj_with_mqa",
        f"{attention}.latent_norm": f"{prefix}.kv_a_layernorm",
        (key, value): Stored(f"{prefix}.kv_b_proj", groups=config.attention.num_heads),
        "decoder.{}.feed_forward.router": "layers.{}.mlp.gate",
        "decoder.{}.feed_forward.router_balance": Stored("layers.{}.mlp.gate.e_score_correction_bias", bias=""),
        **{
            f"decoder.{{}}.feed_forward.experts.{part}": Stored(f"layers.{{}}.mlp.experts.{{}}.{part}_proj")
            for part in _PARTS
        },
        **{
            f"decoder.{{}}.feed_forward.shared.{part}": f"layers.{{}}.mlp.shared_experts.{part}_proj" for part in _PARTS
        },
    }
    if config.attention.query_latent_dim is not None:
        names |= {
            f"{attention}.query_latent": f"{prefix}.q_a_proj",
            f"{attention}.query_latent_norm": f"{prefix}.q_a_layernorm",
            f"{attention}.query": f"{prefix}.q_b_proj",
        }
    return names


def _read(reader: ConfigReader, routing: dict[str, Any], layout: str, **defaults: float) -> TransformerConfig:
    """Returns the configuration of a DeepSeek.

    Args:
        reader: The configuration.
        routing: Choices of the router in which the versions differ.
        layout: Which features rotary positions turn together.
        **defaults: What missing keys mean.
    """
    sizes = {key: reader.take(key, default) for key, default in defaults.items()}
    turned, own = sizes["qk_rope_head_dim"], sizes["qk_nope_head_dim"]
    reader.take_only("head_dim", turned, None)
    reader.take_only("qk_head_dim", own + turned)
    reader.take_only("mlp_bias", False)
    reader.take_only("moe_layer_freq", 1)
    # of training, of several machines, of further heads that the library does not load, and of its own code
    reader.skip("seq_aux", "ep_size", "num_nextn_predict_layers", "output_router_logits", "auto_map")
    heads = reader.take("num_attention_heads")
    kept = reader.take_number("num_key_value_heads", heads)
    require(kept == heads, "num_key_value_heads", kept, f"num_attention_heads={heads}")
    length = sizes["max_position_embeddings"]
    config = llama.read(reader, lambda reader: {}, head_dim=turned, max_position_embeddings=length)
    bias = reader.take("attention_bias", False)
    scaling = config.position.scaling or {}
    factor, stretch = scaling.get("factor", 1.0), scaling.get("mscale_all_dim")
    magnitude = 0.1 * stretch * math.log(factor) + 1.0 if stretch and factor > 1 else 1.0
    attention = dataclasses.replace(
        config.attention,
        head_dim=own + turned,
        value_head_dim=sizes["v_head_dim"],
        latent_dim=sizes["kv_lora_rank"],
        shared_key_dim=turned,
        query_latent_dim=sizes["q_lora_rank"],
        scale=(own + turned) ** -0.5 * magnitude**2,
        use_bias=("latent", "output") if bias else False,
    )
    position = dataclasses.replace(config.position, rotary_dim=turned, layout=layout, options={"rotary_start": own})
    first, layers = min(sizes["first_k_dense_replace"], config.num_layers), config.num_layers
    load_balance_weight = reader.take_number("aux_loss_alpha", 0.001)
    network = config.feed_forward
    if first < layers:
        network = dataclasses.replace(
            network,
            intermediate_dim=sizes["moe_intermediate_size"],
            num_experts=sizes["n_routed_experts"],
            experts_per_token=sizes["num_experts_per_tok"],
            shared_intermediate_dim=sizes["moe_intermediate_size"] * sizes["n_shared_experts"],
            weight_scale=float(sizes["routed_scaling_factor"]),
            load_balance_weight=load_balance_weight,
            **routing,
        )
    if 0 < first < layers:
        flags = [index >= first for index in range(layers)]
        network = dataclasses.replace(
            network, expert_layers=shortest_pattern(flags), dense_intermediate_dim=config.feed_forward.intermediate_dim
        )
    return dataclasses.replace(config, attention=attention, position=position, feed_forward=network)


def _groups(reader: ConfigReader, groups: int | None, chosen: int | None) -> dict[str, int]:
    """The groups of experts, where not all of them are chosen."""
    groups, chosen = reader.take_number("n_group", groups), reader.take_number("topk_group", chosen)
    return {"expert_groups": groups, "groups_per_token": chosen} if groups != chosen else {}


def _read_v2(reader: ConfigReader) -> TransformerConfig:
    reader.take_only("scoring_func", "softmax")
    reader.skip("norm_topk_prob")  # never read there
    method, groups = reader.take_only("topk_method", "greedy", "group_limited_greedy"), _groups(reader, None, None)
    return _read(
        reader,
        {"normalize_weights": False, **(groups if method == "group_limited_greedy" else {})},
        "interleaved",
        first_k_dense_replace=0,
        kv_lora_rank=512,
        max_position_embeddings=2048,
        moe_intermediate_size=1407,
        n_routed_experts=64,
        n_shared_experts=2,
        num_experts_per_tok=6,
        q_lora_rank=1536,
        qk_nope_head_dim=128,
        qk_rope_head_dim=64,
        routed_scaling_factor=1.0,
        v_head_dim=128,
    )


def _read_v3(reader: ConfigReader) -> TransformerConfig:
    reader.take_only("scoring_func", "sigmoid")
    reader.take_only("topk_method", "noaux_tc")
    routing = {
        "scoring": "sigmoid",
        "bias_update_rate": 0.0,
        "normalize_weights": reader.take("norm_topk_prob", True),
        **_groups(reader, 8, 4),
    }
    return _read(
        reader,
        routing,
        "interleaved" if reader.take("rope_interleave", True) else "half_split",
        first_k_dense_replace=3,
        kv_lora_rank=512,
        max_position_embeddings=4096,
        moe_intermediate_size=2048,
        n_routed_experts=256,
        n_shared_experts=1,
        num_experts_per_tok=8,
        q_lora_rank=1536,
        qk_nope_head_dim=128,
        qk_rope_head_dim=64,
        routed_scaling_factor=2.5,
        v_head_dim=128,
    )


def _write(config: TransformerConfig) -> dict[str, Any]:
    attention, network = config.attention, config.feed_forward
    turned = attention.shared_key_dim
    plain = dataclasses.replace(
        config,
        attention=dataclasses.replace(attention, head_dim=turned, **dict.fromkeys(_LATENT)),
        position=dataclasses.replace(config.position, rotary_dim=None, options=None),
    )
    dense = [index for index in range(config.num_layers) if not network.has_experts(index)]
    inner = network.intermediate_dim
    return {
        **llama.write(plain),
        "kv_lora_rank": attention.latent_dim,
        "q_lora_rank": attention.query_latent_dim,
        "qk_nope_head_dim": config.head_dim - turned,
        "qk_rope_head_dim": turned,
        "v_head_dim": attention.value_head_dim or config.head_dim,
        "attention_bias": bool(attention.use_bias),
        "first_k_dense_replace": len(dense),
        "intermediate_size": network.dense_intermediate_dim or inner,
        "moe_intermediate_size": inner,
        "n_routed_experts": network.num_experts or 1,
        "num_experts_per_tok": network.experts_per_token if network.num_experts else 1,
        "n_shared_experts": max(1, (network.shared_intermediate_dim or 0) // inner),
        "n_group": network.expert_groups or 1,
        "topk_group": network.groups_per_token or 1,
        "routed_scaling_factor": network.weight_scale,
    }


def _write_v2(config: TransformerConfig) -> dict[str, Any]:
    return {
        **_write(config),
        "norm_topk_prob": False,
        "topk_method": "group_limited_greedy" if config.feed_forward.expert_groups else "greedy",
    }


def _write_v3(config: TransformerConfig) -> dict[str, Any]:
    normalize = config.feed_forward.normalize_weights
    return {
        **_write(config),
        "norm_topk_prob": config.feed_forward.experts_per_token > 1 if normalize is None else normalize,
        "rope_interleave": config.position.layout == "interleaved",
    }


# the classes of version 2 have no head for tokens
llama.register(
    "deepseek_v2",
    "DeepseekV2",
    _read_v2,
    _write_v2,
    table,
    classifiers={"Sequence": "DeepseekV2ForSequenceClassification"},
)
llama.register("deepseek_v3", "DeepseekV3", _read_v3, _write_v3, table)
