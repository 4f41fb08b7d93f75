"""The text model of Gemma 3 (model type "gemma3_text")."""

import dataclasses
from typing import Any

from zoo.config import PositionConfig, TransformerConfig
from zoo.config.checks import require
from zoo.huggingface import gemma, llama
from zoo.huggingface.config_reader import ConfigReader
from zoo.huggingface.rotary import merged, rotary_position, write_rotary
from zoo.storage import require_type

TABLE = {
    **gemma.TABLE,
    "decoder.{}.attention.query_norm": "layers.{}.self_attn.q_norm",
    "decoder.{}.attention.key_norm": "layers.{}.self_attn.k_norm",
}
# the key of the base of each kind of layer in older files, and what a missing one means
BASES = {"full_attention": ("rope_theta", 1e6), "sliding_attention": ("rope_local_base_freq", 1e4)}


def _read_rotary(reader: ConfigReader, head_dim: int, max_length: int) -> PositionConfig:
    """The positions: layers that see all positions have a base and a scaling of their own."""
    given, scaling = reader.take("rope_parameters", None) or {}, reader.take("rope_scaling", None)
    require_type(given, dict[str, dict[str, Any] | None], "rope_parameters")
    require(set(given) <= set(BASES), "rope_parameters", given, f"an object with the keys {sorted(BASES)}")
    positions = {}
    for kind, (key, base) in BASES.items():
        places = {"": {key: reader.take(key, base)}, f"rope_parameters.{kind}": given.get(kind)}
        if kind == "full_attention":
            places["rope_scaling"] = scaling  # of older files
        parameters, names = merged(places)
        bases = {"rope_theta": parameters.pop(key), "partial_rotary_factor": 1.0}
        names.setdefault("rope_theta", key)
        turned = parameters.get("partial_rotary_factor", 1)
        require(turned in (None, 1), f"rope_parameters.{kind}.partial_rotary_factor", turned, "1 in this family")
        parameters = bases | {name: value for name, value in parameters.items() if value is not None}
        positions[kind] = rotary_position(parameters, head_dim, max_length, names, f"rope_parameters.{kind}")
    position, local = positions["full_attention"], positions["sliding_attention"]
    require(
        local.scaling in (None, position.scaling),
        "rope_parameters.sliding_attention",
        given.get("sliding_attention"),
        "without scaling, or with that of full_attention",
    )
    return dataclasses.replace(position, local_base=local.base, local_scaling=local.scaling == position.scaling)


def read(reader: ConfigReader) -> TransformerConfig:
    """Returns the configuration of the text model of a Gemma 3."""
    reader.skip("_sliding_window_pattern", "attn_logit_softcapping")  # written, and never read
    positions = []

    def rotary(reader: ConfigReader, head_dim: int, max_length: int) -> PositionConfig:
        positions.append(_read_rotary(reader, head_dim, max_length))
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
