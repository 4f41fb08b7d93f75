"""OLMo and OLMo 2 (model types "olmo" and "olmo2")."""

import dataclasses
from typing import Any

from zoo.config import NormConfig, TransformerConfig
from zoo.huggingface import llama
from zoo.huggingface.config_reader import ConfigReader

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
