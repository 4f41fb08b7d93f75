"""StableLM (model type "stablelm")."""

import dataclasses
from typing import Any

from zoo.config import NormConfig, TransformerConfig
from zoo.config.checks import require
from zoo.huggingface import llama
from zoo.huggingface.config_reader import ConfigReader
from zoo.huggingface.rotary import write_rotary


def read(reader: ConfigReader) -> TransformerConfig:
    """Returns the configuration of a StableLM: a Llama with layer norms, and sublayers that may be parallel."""
    is_parallel, has_bias = reader.take("use_parallel_residual", False), reader.take("use_qkv_bias", False)
    reader.take_only("qk_layernorm", False)  # norms without an offset beside those with one
    reader.take_only("hidden_dropout", 0.0)  # of the feed-forward networks alone
    config = llama.read(
        reader,
        lambda reader: {"use_bias": ("query", "key", "value") if has_bias else False},
        even_rotation=True,
        max_position_embeddings=4096,
        num_key_value_heads=32,
        partial_rotary_factor=0.25,
    )
    usual = config.hidden_dim // config.attention.num_heads
    require(config.head_dim == usual, "head_dim", config.head_dim, f"hidden_size / num_attention_heads = {usual}")
    norm = NormConfig("layer", "parallel" if is_parallel else "pre", epsilon=reader.take("layer_norm_eps", 1e-5))
    return dataclasses.replace(config, norm=norm)


def write(config: TransformerConfig) -> dict[str, Any]:
    """Returns the configuration of the Transformers library."""
    values = {
        **llama.write(config, has_head_dim=False),
        "layer_norm_eps": config.norm.epsilon,
        "partial_rotary_factor": 1.0,
        **write_rotary(config.position, config.head_dim),
        "use_parallel_residual": config.norm.placement == "parallel",
        "use_qkv_bias": bool(config.attention.use_bias),
    }
    del values["rms_norm_eps"]
    return values


llama.register("stablelm", "StableLm", read, write)
