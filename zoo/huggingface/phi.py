"""Phi-3 and Phi-4 (model type "phi3")."""

import dataclasses
from typing import Any

from zoo.config import TransformerConfig
from zoo.huggingface import llama
from zoo.huggingface.config_reader import ConfigReader
from zoo.huggingface.rotary import LENGTH

_SEPARATE = {
    f"decoder.{{}}.{name}"
    for name in ("attention.query", "attention.key", "attention.value", "feed_forward.gate", "feed_forward.up")
}
TABLE = {
    **{ours: theirs for ours, theirs in llama.TABLE.items() if ours not in _SEPARATE},
    (
        "decoder.{}.attention.query",
        "decoder.{}.attention.key",
        "decoder.{}.attention.value",
    ): "layers.{}.self_attn.qkv_proj",
    ("decoder.{}.feed_forward.gate", "decoder.{}.feed_forward.up"): "layers.{}.mlp.gate_up_proj",
}


def read(reader: ConfigReader) -> TransformerConfig:
    """Returns the configuration of a Phi-3.

    Its "longrope" takes `short_factor` for texts of up to `original_max_position_embeddings` tokens. Here each text of
    a batch counts for itself; there the longest one, padding included, decides for all.
    """

    def attention(reader: ConfigReader) -> dict[str, Any]:
        return {"use_bias": reader.take_only("attention_bias", False), **llama.read_window(reader, None)}

    for key in ("lm_head_bias", "mlp_bias"):
        reader.take_only(key, False)
    for key in ("full_attn_mod", "interpolate_factor"):
        reader.take_only(key, 1)
    reader.skip("auto_map")  # code of the time when the library did not have it
    config = llama.read(
        reader,
        attention,
        max_position_embeddings=4096,
        original_max_position_embeddings=4096,
        partial_rotary_factor=1.0,
        rms_norm_eps=1e-5,
    )
    return dataclasses.replace(
        config,
        embedding=dataclasses.replace(config.embedding, dropout=reader.take("embd_pdrop", 0.0)),
        dropout=reader.take("resid_pdrop", 0.0),
    )


def write(config: TransformerConfig) -> dict[str, Any]:
    """Returns the configuration of the Transformers library."""
    values = {
        **llama.write(config, has_head_dim=False),
        "sliding_window": llama.size_of_window(config),
        "embd_pdrop": config.dropout if config.embedding.dropout is None else config.embedding.dropout,
        "resid_pdrop": config.dropout,
        LENGTH: config.max_length,
    }
    scaling = values.get("rope_scaling")
    if scaling and LENGTH in scaling:
        # older versions take no other keys than these, and put the length outside
        values[LENGTH] = scaling.pop(LENGTH)
        scaling["type"] = scaling.pop("rope_type")
        if scaling.get("factor") == max(1.0, config.max_length / values[LENGTH]):
            del scaling["factor"]
    return values


llama.register("phi3", "Phi3", read, write, TABLE)
