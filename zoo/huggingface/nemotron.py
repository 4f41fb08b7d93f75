"""Nemotron and Minitron (model type "nemotron")."""

import dataclasses
from typing import Any

from zoo.config import NormConfig, TransformerConfig
from zoo.huggingface import llama
from zoo.huggingface.config_reader import ConfigReader

TABLE = {ours: theirs for ours, theirs in llama.TABLE.items() if "feed_forward.gate" not in ours}


def read(reader: ConfigReader) -> TransformerConfig:
    """Returns the configuration of a Nemotron: a squared ReLU without a gate, factors of norms stored minus one."""

    def attention(reader: ConfigReader) -> dict[str, Any]:
        return {"use_bias": reader.take("attention_bias", False)}

    config = llama.read(reader, attention, hidden_act="relu2", max_position_embeddings=4096, partial_rotary_factor=0.5)
    return dataclasses.replace(
        config,
        norm=NormConfig("layer", "pre", epsilon=reader.take("norm_eps", 1e-5), unit_offset=True),
        feed_forward=dataclasses.replace(config.feed_forward, gated=False),
    )


def write(config: TransformerConfig) -> dict[str, Any]:
    """Returns the configuration of the Transformers library."""
    values = {
        "partial_rotary_factor": 1.0,  # a missing one means half of a head
        **llama.write(config),
        "norm_eps": config.norm.epsilon,
        "attention_bias": bool(config.attention.use_bias),
        "mlp_bias": config.feed_forward.use_bias,
    }
    del values["rms_norm_eps"]
    return values


llama.register("nemotron", "Nemotron", read, write, TABLE, answerer_prefix="transformer.")
