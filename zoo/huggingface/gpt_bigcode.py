"""SantaCoder and StarCoder 1 (model type "gpt_bigcode")."""

import dataclasses
from typing import Any

from zoo.config import TransformerConfig
from zoo.config.checks import require
from zoo.huggingface import gpt2
from zoo.huggingface.config_reader import ConfigReader
from zoo.huggingface.decoder_heads import decoder_heads
from zoo.huggingface.family import Family, register_family
from zoo.huggingface.weights import Stored, Table


def _has_one_key(config: TransformerConfig) -> bool:
    """Whether all heads share their keys and values (multi-query attention)."""
    return (config.attention.num_key_value_heads or config.attention.num_heads) == 1


def table(config: TransformerConfig) -> Table:
    """Returns the names of the weights: those of GPT-2; where heads have keys of their own, head by head."""
    groups = 1 if _has_one_key(config) else config.attention.num_heads
    return {
        ours: Stored(theirs.name, groups=groups if isinstance(ours, tuple) else 1)
        if isinstance(theirs, Stored)
        else theirs
        for ours, theirs in gpt2.TABLE.items()
    }


def read(reader: ConfigReader) -> TransformerConfig:
    """Returns the configuration of a StarCoder 1: a GPT-2 whose heads share their keys and values."""
    has_one_key = reader.take("multi_query", True)
    for key in ("reorder_and_upcast_attn", "scale_attn_by_inverse_layer_idx"):
        reader.take_only(key, False)  # those of GPT-2
    # scores are float32 here in any case
    reader.skip("attention_softmax_in_fp32", "scale_attention_softmax_in_fp32")
    # in published files, and never read
    reader.skip(
        "inference_runner",
        "max_batch_size",
        "max_sequence_length",
        "pad_key_length",
        "pre_allocate_kv_cache",
        "validate_runner_input",
    )
    config = gpt2.read(reader)
    heads = 1 if has_one_key else config.attention.num_heads
    again = reader.take("num_key_value_heads", heads)
    require(again == heads, "num_key_value_heads", again, f"{heads} with multi_query={has_one_key}")
    return dataclasses.replace(config, attention=dataclasses.replace(config.attention, num_key_value_heads=heads))


def write(config: TransformerConfig) -> dict[str, Any]:
    """Returns the configuration of the Transformers library."""
    values = {
        **gpt2.write(config),
        "multi_query": _has_one_key(config),
        "num_key_value_heads": config.attention.num_key_value_heads or config.attention.num_heads,
    }
    del values["scale_attn_by_inverse_layer_idx"]
    return values


register_family(
    Family(
        "gpt_bigcode",
        read,
        write,
        table,
        architecture="GPTBigCodeModel",
        prefix="transformer.",
        outside=("lm_head.",),
        heads=decoder_heads(
            "GPTBigCodeForCausalLM",
            "GPTBigCodeForSequenceClassification",
            "GPTBigCodeForTokenClassification",
            tokens="classifier",
        ),
        ignored=(r"h\.\d+\.attn\.(masked_)?bias",),  # the causal mask
        copies={"lm_head.weight": "wte.weight"},
    )
)
