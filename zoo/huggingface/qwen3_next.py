"""Qwen 3 Next (model type "qwen3_next")."""

import dataclasses
from typing import Any

from zoo.config import MixerConfig, TransformerConfig
from zoo.huggingface import llama
from zoo.huggingface.config_reader import ConfigReader
from zoo.huggingface.family import require_layer_types, shortest_pattern
from zoo.huggingface.qwen_moe import QWEN2_TABLE, with_experts, with_shared_expert, write_experts
from zoo.huggingface.weights import Stored, Table

_KINDS = ("full_attention", "linear_attention")


def table(config: TransformerConfig) -> Table:
    """Returns the names of the weights; projections of each head stand together."""
    query, mixer, prefix = "decoder.{}.attention.query", "decoder.{}.mixer", "layers.{}.linear_attn"
    names: dict[Any, Any] = {ours: theirs for ours, theirs in QWEN2_TABLE.items() if ours != query}
    names[query, "decoder.{}.attention.gate"] = Stored("layers.{}.self_attn.q_proj", groups=config.attention.num_heads)
    if config.mixer is None:
        return names
    groups = config.mixer.num_key_heads or config.mixer.num_heads
    return {
        **names,
        tuple(f"{mixer}.{part}" for part in ("query", "key", "value", "gate")): Stored(
            f"{prefix}.in_proj_qkvz", groups=groups
        ),
        tuple(f"{mixer}.{part}" for part in ("strength", "decay")): Stored(f"{prefix}.in_proj_ba", groups=groups),
        f"{mixer}.convolution": Stored(f"{prefix}.conv1d", middle_axis=True),
        f"{mixer}.log_rate": Stored(f"{prefix}.A_log", bias=""),
        f"{mixer}.decay_bias": Stored(f"{prefix}.dt_bias", bias=""),
        f"{mixer}.norm": f"{prefix}.norm",
        f"{mixer}.output": f"{prefix}.out_proj",
    }


def read(reader: ConfigReader) -> TransformerConfig:
    """Returns the configuration: a Qwen with experts, most layers of which have gated delta rules."""
    layers, period = reader.take("num_hidden_layers"), reader.take("full_attention_interval", 4)
    types = reader.take("layer_types", None)
    if types is None:
        types = ["linear_attention" if (index + 1) % period else "full_attention" for index in range(layers)]
    require_layer_types(types, layers, _KINDS)
    # other activations would also be behind the convolutions; biases in the gates of attention
    for key, value in (("hidden_act", "silu"), ("attention_bias", False), ("mlp_bias", False)):
        reader.take_only(key, value)
    config = llama.read(
        reader,
        lambda reader: {"use_bias": False, "query_key_norm": "rms", "output_gate": True},
        head_dim=256,
        intermediate_size=5632,
        max_position_embeddings=32768,
        num_key_value_heads=2,
        partial_rotary_factor=0.25,
    )
    pattern = shortest_pattern([kind == "linear_attention" for kind in types])
    mixer = MixerConfig(
        "gated_delta_rule",
        None if pattern == (True,) or True not in pattern else pattern,
        kernel_size=reader.take("linear_conv_kernel_dim", 4),
        num_heads=reader.take("linear_num_value_heads", 32),
        num_key_heads=reader.take("linear_num_key_heads", 16),
        key_dim=reader.take("linear_key_head_dim", 128),
        value_dim=reader.take("linear_value_head_dim", 128),
        epsilon=config.norm.epsilon,
    )
    config = dataclasses.replace(
        config,
        norm=dataclasses.replace(config.norm, unit_offset=True),
        mixer=mixer if True in pattern else None,
    )
    config = with_experts(
        reader, config, normalize=True, moe_intermediate_size=512, num_experts=512, num_experts_per_tok=10
    )
    return with_shared_expert(reader, config, 512)


def write(config: TransformerConfig) -> dict[str, Any]:
    """Returns the configuration of the Transformers library."""
    values = {
        "partial_rotary_factor": 1.0,  # a missing one means a quarter of a head
        **llama.write(config),
        **write_experts(config),
        "shared_expert_intermediate_size": config.feed_forward.shared_intermediate_dim or 1,
        "attention_bias": bool(config.attention.use_bias),
        "layer_types": [_KINDS[config.has_mixer(index)] for index in range(config.num_layers)],
    }
    mixer = config.mixer
    if mixer is None:
        return values
    return values | {
        "linear_conv_kernel_dim": mixer.kernel_size,
        "linear_num_value_heads": mixer.num_heads,
        "linear_num_key_heads": mixer.num_key_heads or mixer.num_heads,
        "linear_key_head_dim": mixer.key_dim,
        "linear_value_head_dim": mixer.value_dim or mixer.key_dim,
    }


# the library, too, passes over the layer that predicts further tokens
llama.register("qwen3_next", "Qwen3Next", read, write, table, answerer_prefix="transformer.", ignored=(r"mtp\..*",))
