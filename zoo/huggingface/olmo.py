"""OLMo 2 (model type "olmo2")."""

import dataclasses
from typing import Any

from zoo.config import TransformerConfig
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


llama.register("olmo2", "Olmo2", read, write, TABLE, classifiers={"Sequence": "Olmo2ForSequenceClassification"})
