"""gpt-oss (model type "gpt_oss")."""

import dataclasses
from typing import Any

from zoo.config import FeedForwardConfig, TransformerConfig
from zoo.huggingface import llama
from zoo.huggingface.config_reader import ConfigReader
from zoo.huggingface.family import types_of_layers, window_of_layers
from zoo.huggingface.rotary import rotary_position
from zoo.huggingface.weights import Stored, Table

# what a configuration without rotary parameters means
SCALING = {
    "rope_type": "yarn",
    "factor": 32.0,
    "beta_fast": 32.0,
    "beta_slow": 1.0,
    "truncate": False,
    "original_max_position_embeddings": 4096,
}


def table(config: TransformerConfig) -> Table:
    """Returns the names of the weights: experts are stacked, the columns of gate and up take turns."""
    experts = {"transposed": False, "weight": "", "bias": "_bias"}
    return {
        **{ours: theirs for ours, theirs in llama.TABLE.items() if ".feed_forward." not in ours},
        "decoder.{}.attention.sinks": Stored("layers.{}.self_attn.sinks", bias=""),
        "decoder.{}.feed_forward.router": "layers.{}.mlp.router",
        ("decoder.{}.feed_forward.experts.gate", "decoder.{}.feed_forward.experts.up"): Stored(
            "layers.{}.mlp.experts.gate_up_proj", groups=config.feed_forward.intermediate_dim, **experts
        ),
        "decoder.{}.feed_forward.experts.down": Stored("layers.{}.mlp.experts.down_proj", **experts),
    }


def read(reader: ConfigReader) -> TransformerConfig:
    """Returns the configuration of a gpt-oss."""

    def attention(reader: ConfigReader) -> dict[str, Any]:
        layers = reader.take("num_hidden_layers")
        types = reader.take("layer_types", None) or [
            "full_attention" if index % 2 else "sliding_attention" for index in range(layers)
        ]
        window = llama.read_window(reader, 128)["window"]
        return {
            "use_bias": reader.take("attention_bias", True),
            "sinks": True,
            **window_of_layers(types, layers, window),
        }

    # in published files, and never read: others of the same meaning are
    reader.skip("experts_per_token", "initial_context_length", "output_router_logits")
    reader.take_only("swiglu_alpha", 1.702)
    config = llama.read(
        reader,
        attention,
        head_dim=64,
        max_position_embeddings=131072,
        num_key_value_heads=8,
        rms_norm_eps=1e-5,
        rope_theta=150000.0,
    )
    if not any(reader.values.get(key) for key in ("rope_parameters", "rope_scaling")):
        parameters = {**SCALING, "rope_theta": config.position.base}
        position = rotary_position(parameters, config.head_dim, config.max_length)
        config = dataclasses.replace(config, position=position)
    network = FeedForwardConfig(
        config.feed_forward.intermediate_dim,
        "quick_gelu",  # whatever hidden_act says
        gated=True,
        gate_limit=float(reader.take("swiglu_limit", 7.0)),
        up_offset=1.0,
        num_experts=reader.take("num_local_experts", 128),
        experts_per_token=reader.take("num_experts_per_tok", 4),
        normalize_weights=True,
        router_bias=True,
        load_balance_weight=reader.take("router_aux_loss_coef", 0.001),
    )
    return dataclasses.replace(config, feed_forward=network)


def write(config: TransformerConfig) -> dict[str, Any]:
    """Returns the configuration of the Transformers library."""
    network = config.feed_forward
    values = {
        **llama.write(config),
        "hidden_act": "silu",  # what all files have
        "attention_bias": bool(config.attention.use_bias),
        "layer_types": types_of_layers(config),
        "sliding_window": llama.size_of_window(config) or 128,
        "num_local_experts": network.num_experts,
        "num_experts_per_tok": network.experts_per_token,
        "router_aux_loss_coef": network.load_balance_weight,
        "swiglu_limit": network.gate_limit,
    }
    if config.position.scaling is None:
        values["rope_scaling"] = {"rope_type": "default"}  # a missing one means another
    return values


llama.register("gpt_oss", "GptOss", read, write, table)
