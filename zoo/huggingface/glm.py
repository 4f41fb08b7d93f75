"""GLM-4 (model types "glm" and "glm4")."""

import dataclasses
from typing import Any

from zoo.config import TransformerConfig
from zoo.huggingface import llama
from zoo.huggingface.config_reader import ConfigReader
from zoo.huggingface.rotary import write_rotary
from zoo.huggingface.weights import Table

TABLE: Table = {
    **{
        ours: theirs
        for ours, theirs in llama.TABLE.items()
        if not ours.endswith(("feed_forward.gate", "feed_forward.up"))
    },
    ("decoder.{}.feed_forward.gate", "decoder.{}.feed_forward.up"): "layers.{}.mlp.gate_up_proj",
}
GLM4_TABLE: Table = {
    **TABLE,
    "decoder.{}.attention_norm_after": "layers.{}.post_self_attn_layernorm",
    "decoder.{}.feed_forward_norm_after": "layers.{}.post_mlp_layernorm",
}


def read(reader: ConfigReader) -> TransformerConfig:
    """Returns the configuration of a GLM: a Llama that rotates neighbours in a part of each head."""

    def attention(reader: ConfigReader) -> dict[str, Any]:
        return {"use_bias": ("query", "key", "value") if reader.take("attention_bias", True) else False}

    config = llama.read(
        reader,
        attention,
        head_dim=128,
        max_position_embeddings=131072,
        num_key_value_heads=2,
        partial_rotary_factor=0.5,
        rms_norm_eps=1.5625e-7,
    )
    return dataclasses.replace(config, position=dataclasses.replace(config.position, layout="interleaved"))


def write(config: TransformerConfig) -> dict[str, Any]:
    """Returns the configuration of the Transformers library."""
    return {
        **llama.write(config),
        "partial_rotary_factor": 1.0,
        **write_rotary(config.position, config.head_dim),
        "attention_bias": bool(config.attention.use_bias),
    }


def _read_glm4(reader: ConfigReader) -> TransformerConfig:
    config = read(reader)  # with norms after the sublayers, too
    return dataclasses.replace(config, norm=dataclasses.replace(config.norm, placement="sandwich"))


llama.register("glm", "Glm", read, write, TABLE)
llama.register("glm4", "Glm4", _read_glm4, write, GLM4_TABLE)
