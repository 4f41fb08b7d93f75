"""Helium (model type "helium")."""

import dataclasses
from typing import Any

from zoo.config import TransformerConfig
from zoo.config.checks import require
from zoo.huggingface import llama
from zoo.huggingface.config_reader import ConfigReader


def read(reader: ConfigReader) -> TransformerConfig:
    """Returns the configuration of a Helium: a Llama that rotates neighbouring features."""

    def attention(reader: ConfigReader) -> dict[str, Any]:
        # the library makes the output without a bias, whatever the key says
        return {"use_bias": ("query", "key", "value") if reader.take("attention_bias", False) else False}

    config = llama.read(
        reader,
        attention,
        head_dim=128,
        max_position_embeddings=4096,
        num_key_value_heads=20,
        rms_norm_eps=1e-8,
        rope_theta=100000.0,
    )
    heads, width = config.attention.num_heads, config.hidden_dim
    allowed = f"hidden_size / num_attention_heads={width / heads:g}"
    require(config.head_dim * heads == width, "head_dim", config.head_dim, allowed)
    return dataclasses.replace(config, position=dataclasses.replace(config.position, layout="interleaved"))


def write(config: TransformerConfig) -> dict[str, Any]:
    """Returns the configuration of the Transformers library."""
    return {
        **llama.write(config),
        "attention_bias": bool(config.attention.use_bias),
        "mlp_bias": config.feed_forward.use_bias,
    }


llama.register("helium", "Helium", read, write)
