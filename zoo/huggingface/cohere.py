"""Command R of Cohere (model types "cohere" and "cohere2")."""

import dataclasses
from collections.abc import Callable
from typing import Any

from zoo.config import NormConfig, TransformerConfig
from zoo.config.checks import require
from zoo.huggingface import llama
from zoo.huggingface.config_reader import ConfigReader
from zoo.huggingface.family import sliding_but_every, types_of_layers, window_of_layers

TABLE = {ours: theirs for ours, theirs in llama.TABLE.items() if ours != "decoder.{}.feed_forward_norm"}


def read(reader: ConfigReader, attention: Callable[[ConfigReader], dict[str, Any]], base: float) -> TransformerConfig:
    """Returns the configuration of both.

    Args:
        reader: The configuration.
        attention: Returns the arguments of `AttentionConfig` in which they differ.
        base: What a missing `rope_theta` means.
    """

    def choices(reader: ConfigReader) -> dict[str, Any]:
        return {"use_bias": reader.take("attention_bias", False), **attention(reader)}

    reader.skip("model_max_length")  # of the tokenizer
    config = llama.read(reader, choices, max_position_embeddings=8192, rope_theta=base, tie_word_embeddings=True)
    scale = reader.take("logit_scale", 0.0625)
    require(scale is not None, "logit_scale", scale, "a number above 0")
    return dataclasses.replace(
        config,
        position=dataclasses.replace(config.position, layout="interleaved"),
        norm=NormConfig("layer", "parallel", epsilon=reader.take("layer_norm_eps", 1e-5), use_bias=False),
        embedding=dataclasses.replace(config.embedding, output_scale=None if scale == 1 else float(scale)),
    )


def write(config: TransformerConfig) -> dict[str, Any]:
    """Returns what the configurations of both have."""
    scale = config.embedding.output_scale
    values = {
        **llama.write(config, has_head_dim=False),
        "attention_bias": bool(config.attention.use_bias),
        "layer_norm_eps": config.norm.epsilon,
        "logit_scale": 1.0 if scale is None else scale,
    }
    del values["rms_norm_eps"]
    return values


def _read_cohere(reader: ConfigReader) -> TransformerConfig:
    def attention(reader: ConfigReader) -> dict[str, Any]:
        has_norms = reader.take_number("use_qk_norm", False)
        return {"query_key_norm": "layer", "query_key_norm_scope": "per_head"} if has_norms else {}

    return read(reader, attention, base=5e5)


def _write_cohere(config: TransformerConfig) -> dict[str, Any]:
    return {**write(config), "use_qk_norm": config.attention.query_key_norm is not None}


def _read_cohere2(reader: ConfigReader) -> TransformerConfig:
    def attention(reader: ConfigReader) -> dict[str, Any]:
        layers, size = reader.take("num_hidden_layers"), reader.take("sliding_window", 4096)
        require(size is not None, "sliding_window", size, "a number")
        full_every = reader.take("sliding_window_pattern", 4)
        types = reader.take("layer_types", None) or sliding_but_every(layers, full_every)
        return window_of_layers(types, layers, llama.sliding(size))

    # in published files, and never read
    reader.skip("_sliding_window_pattern", "layer_switch", "order_of_interleaved_layers")
    reader.take_only("position_embedding_type", "rope_gptj")
    reader.take_only("rotary_pct", 1.0)
    reader.take_only("use_gated_activation", True)
    reader.take_only("use_parallel_block", True)
    reader.take_only("use_parallel_embedding", False)
    reader.take_only("use_qk_norm", False)
    config = read(reader, attention, base=1e4)
    attention_config = config.attention
    # layers that see all positions do not know them
    layers = (False,) if attention_config.window is None else attention_config.window_layers
    return dataclasses.replace(config, position=dataclasses.replace(config.position, layers=layers))


def _write_cohere2(config: TransformerConfig) -> dict[str, Any]:
    return {
        **write(config),
        "sliding_window": llama.size_of_window(config) or 4096,
        "layer_types": types_of_layers(config),
    }


llama.register("cohere", "Cohere", _read_cohere, _write_cohere, TABLE, classifiers={})
llama.register("cohere2", "Cohere2", _read_cohere2, _write_cohere2, TABLE, classifiers={})
