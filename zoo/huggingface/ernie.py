"""ERNIE 4.5 (model type "ernie4_5")."""

import dataclasses
from typing import Any

from zoo.config import TransformerConfig
from zoo.huggingface import llama
from zoo.huggingface.config_reader import ConfigReader


def read(reader: ConfigReader) -> TransformerConfig:
    """Returns the configuration of an ERNIE 4.5: a Llama that rotates neighbouring features."""
    use_bias = reader.take("use_bias", False)
    config = llama.read(
        reader,
        lambda reader: {"use_bias": use_bias},
        head_dim=128,
        max_position_embeddings=131072,
        num_key_value_heads=2,
        rms_norm_eps=1e-5,
        rope_theta=500000.0,
        tie_word_embeddings=True,
    )
    return dataclasses.replace(
        config,
        position=dataclasses.replace(config.position, layout="interleaved"),
        feed_forward=dataclasses.replace(config.feed_forward, use_bias=use_bias),
    )


def write(config: TransformerConfig) -> dict[str, Any]:
    """Returns the configuration of the Transformers library."""
    values = {**llama.write(config), "use_bias": bool(config.attention.use_bias)}
    del values["attention_dropout"]
    return values


llama.register("ernie4_5", "Ernie4_5", read, write, classifiers={})
