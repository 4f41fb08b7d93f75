"""The text model of Gemma 3 (model type "gemma3_text")."""

import dataclasses
from typing import Any

from zoo.config import PositionConfig, TransformerConfig
from zoo.huggingface import gemma, llama
from zoo.huggingface.config_reader import ConfigReader
from zoo.huggingface.rotary import read_rotary_by_layer, write_rotary

TABLE = {
    **gemma.TABLE,
    "decoder.{}.attention.query_norm": "layers.{}.self_attn.q_norm",
    "decoder.{}.attention.key_norm": "layers.{}.self_attn.k_norm",
}
# the key of the base of each kind of layer in older files, and what a missing one means
BASES = {"full_attention": ("rope_theta", 1e6), "sliding_attention": ("rope_local_base_freq", 1e4)}


def read(reader: ConfigReader) -> TransformerConfig:
    """Returns the configuration of the text model of a Gemma 3."""
    reader.skip("_sliding_window_pattern", "attn_logit_softcapping")  # written, and never read
    positions = []

    def rotary(reader: ConfigReader, head_dim: int, max_length: int) -> PositionConfig:
        positions.append(read_rotary_by_layer(reader, head_dim, max_length, BASES))
        # only layers with a window have a base of their own
        return dataclasses.replace(positions[0], local_base=None, local_scaling=True)

    config = gemma.read(
        reader,
        max_length=131072,
        full_every=reader.take("sliding_window_pattern", 6),
        soft_caps=None,
        rotary=rotary,
        query_key_norm="rms",
    )
    return config if config.attention.window is None else dataclasses.replace(config, position=positions[0])


def write(config: TransformerConfig) -> dict[str, Any]:
    """Returns the configuration of the Transformers library."""
    values, position = gemma.write(config), config.position
    local = position.base if position.local_base is None else position.local_base
    values["rope_local_base_freq"] = local
    if position.local_scaling and position.scaling is not None:
        # older versions cannot say it
        scaling = write_rotary(position, config.head_dim)["rope_scaling"]
        for key in ("rope_theta", "rope_scaling", "rope_local_base_freq"):
            del values[key]
        bases = {"full_attention": position.base, "sliding_attention": local}
        values["rope_parameters"] = {kind: {**scaling, "rope_theta": base} for kind, base in bases.items()}
    return values


llama.register(
    "gemma3_text",
    "Gemma3",
    read,
    write,
    TABLE,
    base="Gemma3Text",
    classifiers={"Sequence": "Gemma3TextForSequenceClassification"},
)
