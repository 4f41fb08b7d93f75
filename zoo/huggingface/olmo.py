"""OLMo 1 to 3 (model types "olmo", "olmo2" and "olmo3")."""

import dataclasses
from typing import Any

from zoo.config import NormConfig, PositionConfig, TransformerConfig
from zoo.config.checks import require
from zoo.huggingface import llama
from zoo.huggingface.config_reader import ConfigReader
from zoo.huggingface.family import types_of_layers, window_of_layers
from zoo.huggingface.rotary import read_rotary_by_layer, write_rotary

TABLE = {
    **{
        ours: theirs for ours, theirs in llama.TABLE.items() if not ours.startswith("decoder.{}.") or "norm" not in ours
    },
    "decoder.{}.attention.query_norm": "layers.{}.self_attn.q_norm",
    "decoder.{}.attention.key_norm": "layers.{}.self_attn.k_norm",
    "decoder.{}.attention_norm_after": "layers.{}.post_attention_layernorm",
    "decoder.{}.feed_forward_norm_after": "layers.{}.post_feedforward_layernorm",
}


def read(reader: ConfigReader) -> TransformerConfig:
    """Returns the configuration of an OLMo 2: norms after the sublayers, and one of the queries of all heads."""

    def attention(reader: ConfigReader) -> dict[str, Any]:
        return {
            "use_bias": reader.take("attention_bias", False),
            "query_key_norm": "rms",
            "query_key_norm_scope": "width",
        }

    config = llama.read(reader, attention, rms_norm_eps=1e-5)
    return dataclasses.replace(config, norm=dataclasses.replace(config.norm, placement="res_post"))


def write(config: TransformerConfig) -> dict[str, Any]:
    """Returns the configuration of the Transformers library."""
    return {**llama.write(config, has_head_dim=False), "attention_bias": bool(config.attention.use_bias)}


def read_attention(reader: ConfigReader) -> dict[str, Any]:
    """The arguments of `AttentionConfig` of models whose queries, keys and values may be clipped."""
    return {
        "use_bias": reader.take("attention_bias", False),
        "projection_limit": reader.take("clip_qkv", None),
    }


def write_attention(config: TransformerConfig) -> dict[str, Any]:
    """The keys that `read_attention` takes."""
    return {"attention_bias": bool(config.attention.use_bias), "clip_qkv": config.attention.projection_limit}


def _read_olmo(reader: ConfigReader) -> TransformerConfig:
    """Returns the configuration of an OLMo: a Llama whose norms have no weights."""
    reader.take_only("mlp_bias", False)
    norm = NormConfig("layer", "pre", epsilon=1e-5, use_bias=False, options={"scale": False})
    return dataclasses.replace(llama.read(reader, read_attention), norm=norm)


def _write_olmo(config: TransformerConfig) -> dict[str, Any]:
    values = {**llama.write(config, has_head_dim=False), **write_attention(config)}
    del values["rms_norm_eps"]
    return values


llama.register("olmo", "Olmo", _read_olmo, _write_olmo, classifiers={"Sequence": "OlmoForSequenceClassification"})
llama.register("olmo2", "Olmo2", read, write, TABLE, classifiers={"Sequence": "Olmo2ForSequenceClassification"})


# older files have one base for all layers
BASES = {"full_attention": ("rope_theta", 5e5), "sliding_attention": ("rope_theta", 5e5)}


def _read_olmo3(reader: ConfigReader) -> TransformerConfig:
    """Returns the configuration of an OLMo 3: an OLMo 2, some layers of which have a window and plain positions."""
    positions = []

    def attention(reader: ConfigReader) -> dict[str, Any]:
        layers, size = reader.take("num_hidden_layers"), reader.take("sliding_window", 4096)
        require(size is not None, "sliding_window", size, "a number")
        types = reader.take("layer_types", None) or [
            "sliding_attention" if (index + 1) % 4 else "full_attention" for index in range(layers)
        ]
        return {
            "use_bias": reader.take("attention_bias", False),
            "query_key_norm": "rms",
            "query_key_norm_scope": "width",
            **window_of_layers(types, layers, llama.sliding(size)),
        }

    def rotary(reader: ConfigReader, head_dim: int, max_length: int, **defaults: Any) -> PositionConfig:
        positions.append(read_rotary_by_layer(reader, head_dim, max_length, BASES))
        # only layers with a window have positions of their own
        return dataclasses.replace(positions[0], local_base=None, local_scaling=True)

    reader.take_only("mlp_bias", False)
    config = llama.read(reader, attention, rotary, rms_norm_eps=1e-5)
    position = config.position if config.attention.window is None else positions[0]
    return dataclasses.replace(config, norm=dataclasses.replace(config.norm, placement="res_post"), position=position)


def _write_olmo3(config: TransformerConfig) -> dict[str, Any]:
    position = config.position
    local = dataclasses.replace(
        position,
        base=position.base if position.local_base is None else position.local_base,
        local_base=None,
        scaling=position.scaling if position.local_scaling else None,
        local_scaling=True,
    )
    written = (write_rotary(each, config.head_dim) for each in (position, local))
    parameters = [
        {"rope_type": "default", "rope_theta": each["rope_theta"], **each.get("rope_scaling", {})} for each in written
    ]
    return {
        **write(config),
        "layer_types": types_of_layers(config),
        "sliding_window": llama.size_of_window(config) or 4096,
        # newer versions take the older keys for layers without a window alone
        "rope_parameters": dict(zip(BASES, parameters, strict=True)),
    }


llama.register(
    "olmo3",
    "Olmo3",
    _read_olmo3,
    _write_olmo3,
    TABLE,
    classifiers={"Sequence": "Olmo3ForSequenceClassification"},
)
