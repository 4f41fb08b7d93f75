"""LFM2 (model type "lfm2")."""

import dataclasses
from typing import Any

from zoo.config import MixerConfig, TransformerConfig
from zoo.huggingface import llama
from zoo.huggingface.config_reader import ConfigReader
from zoo.huggingface.family import require_layer_types, shortest_pattern
from zoo.huggingface.weights import Stored

TABLE = {
    "token_embedding": "embed_tokens",
    "decoder.{}.attention_norm": "layers.{}.operator_norm",
    "decoder.{}.attention.query": "layers.{}.self_attn.q_proj",
    "decoder.{}.attention.key": "layers.{}.self_attn.k_proj",
    "decoder.{}.attention.value": "layers.{}.self_attn.v_proj",
    "decoder.{}.attention.output": "layers.{}.self_attn.out_proj",
    "decoder.{}.attention.query_norm": "layers.{}.self_attn.q_layernorm",
    "decoder.{}.attention.key_norm": "layers.{}.self_attn.k_layernorm",
    (
        "decoder.{}.mixer.input_gate",
        "decoder.{}.mixer.output_gate",
        "decoder.{}.mixer.value",
    ): "layers.{}.conv.in_proj",
    "decoder.{}.mixer.convolution": Stored("layers.{}.conv.conv", middle_axis=True),
    "decoder.{}.mixer.output": "layers.{}.conv.out_proj",
    "decoder.{}.feed_forward_norm": "layers.{}.ffn_norm",
    "decoder.{}.feed_forward.gate": "layers.{}.feed_forward.w1",
    "decoder.{}.feed_forward.up": "layers.{}.feed_forward.w3",
    "decoder.{}.feed_forward.down": "layers.{}.feed_forward.w2",
    "decoder.final_norm": "embedding_norm",
    "output_projection": "lm_head",
}
# of the program that the models were trained with; the library reads none of them
_OF_TRAINING = """
    block_dim block_mlp_init_scale block_norm_eps block_out_init_scale block_use_swiglu block_use_xavier_init conv_dim
    conv_dim_out conv_use_xavier_init num_heads theta use_pos_enc
""".split()


def read(reader: ConfigReader) -> TransformerConfig:
    """Returns the configuration: a Llama, some layers of which have short convolutions in the place of attention."""
    layers, indices = reader.take("num_hidden_layers"), reader.take("full_attn_idxs", None)
    types = reader.take("layer_types", None)
    if types is None:
        indices = range(layers) if indices is None else indices
        types = ["full_attention" if index in indices else "conv" for index in range(layers)]
    require_layer_types(types, layers, ("full_attention", "conv"))
    pattern = shortest_pattern([kind == "conv" for kind in types])
    size, bias = reader.take("conv_L_cache", 3), reader.take("conv_bias", False)
    mixer = MixerConfig("short_convolution", None if pattern == (True,) else pattern, size, bias)
    # the library has one value for each of these, whatever the file says
    for key, value in (("hidden_act", "silu"), ("mlp_bias", False), ("attention_dropout", 0.0)):
        reader.take_only(key, value)
    config = llama.read(
        reader,
        lambda reader: {"use_bias": False, "query_key_norm": "rms"},
        intermediate_size=12288,
        max_position_embeddings=128_000,
        num_key_value_heads=8,
        rope_theta=1e6,
        tie_word_embeddings=True,
    )
    tied = reader.take("tie_embedding", config.embedding.tie_output)  # the older name goes first
    reader.skip(*_OF_TRAINING)
    return dataclasses.replace(
        config,
        norm=dataclasses.replace(config.norm, epsilon=reader.take("norm_eps", 1e-5)),
        feed_forward=dataclasses.replace(config.feed_forward, intermediate_dim=_width(reader, config)),
        embedding=dataclasses.replace(config.embedding, tie_output=tied),
        mixer=mixer if True in pattern else None,
    )


def _width(reader: ConfigReader, config: TransformerConfig) -> int:
    """Width of the feed-forward networks: two thirds of what the file says, rounded up to a multiple, unless it is said
    exactly."""
    width = reader.take_number("block_ff_dim", config.feed_forward.intermediate_dim)  # the older name goes first
    multiple, factor = reader.take("block_multiple_of", 256), reader.take("block_ffn_dim_multiplier", 1.0)
    if not reader.take("block_auto_adjust_ff_dim", True):
        return width
    width = int(2 * width / 3)
    return width if factor is None else -(-int(factor * width) // multiple) * multiple


def write(config: TransformerConfig) -> dict[str, Any]:
    """Returns the configuration of the Transformers library."""
    values = {
        **llama.write(config, has_head_dim=False),
        "norm_eps": config.norm.epsilon,
        "block_auto_adjust_ff_dim": False,
        "layer_types": ["conv" if config.has_mixer(index) else "full_attention" for index in range(config.num_layers)],
    }
    if config.mixer is not None:
        values |= {"conv_L_cache": config.mixer.kernel_size, "conv_bias": config.mixer.use_bias}
    for key in ("rms_norm_eps", "hidden_act", "attention_dropout"):
        del values[key]
    return values


llama.register("lfm2", "Lfm2", read, write, TABLE, classifiers={})
