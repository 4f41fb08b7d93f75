"""Gemma and Gemma 2 (model types "gemma" and "gemma2")."""

import dataclasses
from collections.abc import Callable
from typing import Any

from zoo.config import (
    AttentionConfig,
    EmbeddingConfig,
    FeedForwardConfig,
    NormConfig,
    PositionConfig,
    TransformerConfig,
)
from zoo.config.checks import require
from zoo.huggingface import llama
from zoo.huggingface.config_reader import ACTIVATION_NAMES, ACTIVATIONS, ConfigReader
from zoo.huggingface.decoder_heads import decoder_heads, take_head_keys
from zoo.huggingface.family import Family, register_family, sliding_but_every, types_of_layers, window_of_layers
from zoo.huggingface.rotary import read_rotary, write_rotary

TABLE = {
    **llama.TABLE,
    "decoder.{}.attention_norm_after": "layers.{}.post_attention_layernorm",
    "decoder.{}.feed_forward_norm": "layers.{}.pre_feedforward_layernorm",
    "decoder.{}.feed_forward_norm_after": "layers.{}.post_feedforward_layernorm",
}


def read(
    reader: ConfigReader,
    *,
    max_length: int = 8192,
    full_every: int = 2,
    soft_caps: tuple[float, float] | None = (50.0, 30.0),
    rotary: Callable[[ConfigReader, int, int], PositionConfig] = read_rotary,
    **attention: Any,
) -> TransformerConfig:
    """Returns the configuration of a Gemma 2, or of a Gemma 3 with what differs.

    Args:
        reader: The configuration.
        max_length: What a missing `max_position_embeddings` means.
        full_every: Which layers see all positions where no types are given: each that is a multiple of this number.
        soft_caps: What missing soft caps of the scores and the logits mean; None for no cap of the scores, whatever the
            configuration says, and for none of the logits where it says nothing.
        rotary: Returns the positions, from the configuration, the width of a head and the longest sequence.
        **attention: Further arguments of `AttentionConfig`.
    """
    heads, layers = reader.take("num_attention_heads"), reader.take("num_hidden_layers")
    head_dim, max_length = reader.take_number("head_dim", 256), reader.take("max_position_embeddings", max_length)
    activation = reader.take_activation("hidden_activation", "gelu_pytorch_tanh")
    reader.skip("hidden_act", "sliding_window_size")  # older keys that the library does not read
    reader.take_only("use_bidirectional_attention", None, False)
    take_head_keys(reader)
    size = reader.take("sliding_window", 4096)
    require(size is not None, "sliding_window", size, "a number")
    types = reader.take("layer_types", None) or sliding_but_every(layers, full_every)
    return TransformerConfig(
        "decoder",
        reader.take("vocab_size"),
        hidden_dim=reader.take("hidden_size"),
        num_layers=layers,
        max_length=max_length,
        attention=AttentionConfig(
            heads,
            num_key_value_heads=reader.take("num_key_value_heads", 4),
            head_dim=head_dim,
            use_bias=reader.take("attention_bias", False),
            scale=reader.take("query_pre_attn_scalar", 256) ** -0.5,
            logit_soft_cap=None if soft_caps is None else reader.take("attn_logit_softcapping", soft_caps[0]),
            dropout=reader.take_number("attention_dropout", 0.0),
            **window_of_layers(types, layers, llama.sliding(size)),
            **attention,
        ),
        position=rotary(reader, head_dim, max_length),
        norm=NormConfig("rms", "sandwich", epsilon=reader.take("rms_norm_eps", 1e-6), unit_offset=True),
        feed_forward=FeedForwardConfig(reader.take("intermediate_size"), activation, gated=True, use_bias=False),
        embedding=EmbeddingConfig(
            scale=True,
            tie_output=reader.take("tie_word_embeddings", True),
            logit_soft_cap=reader.take("final_logit_softcapping", soft_caps and soft_caps[1]),
        ),
        dropout=0.0,
        initializer_range=reader.take("initializer_range", 0.02),
    )


def write(config: TransformerConfig) -> dict[str, Any]:
    """Returns the configuration of the Transformers library."""
    attention = config.attention
    return {
        "vocab_size": config.vocabulary_size,
        "hidden_size": config.hidden_dim,
        "intermediate_size": config.feed_forward.intermediate_dim,
        "num_hidden_layers": config.num_layers,
        "num_attention_heads": attention.num_heads,
        "num_key_value_heads": attention.num_key_value_heads or attention.num_heads,
        "head_dim": config.head_dim,
        "hidden_activation": ACTIVATION_NAMES[config.feed_forward.activation],
        "max_position_embeddings": config.max_length,
        "rms_norm_eps": config.norm.epsilon,
        "attention_bias": bool(attention.use_bias),
        "attention_dropout": attention.dropout,
        "query_pre_attn_scalar": config.head_dim if attention.scale is None else round(attention.scale**-2),
        "attn_logit_softcapping": attention.logit_soft_cap,
        "final_logit_softcapping": config.embedding.logit_soft_cap,
        "sliding_window": 4096 if attention.window is None else attention.window[0] + 1,
        "layer_types": types_of_layers(config),
        "tie_word_embeddings": config.embedding.tie_output,
        "initializer_range": config.initializer_range or 0.02,
        **write_rotary(config.position, config.head_dim),
    }


register_family(
    Family(
        "gemma2",
        read,
        write,
        TABLE,
        architecture="Gemma2Model",
        prefix="model.",
        outside=("lm_head.",),
        heads=decoder_heads("Gemma2ForCausalLM", "Gemma2ForSequenceClassification", "Gemma2ForTokenClassification"),
        ignored=(r"layers\.\d+\.self_attn\.rotary_emb\.inv_freq",),
        copies={"lm_head.weight": "embed_tokens.weight"},
    )
)


def read_gemma(reader: ConfigReader) -> TransformerConfig:
    """Returns the configuration of a Gemma."""
    reader.take_only("use_bidirectional_attention", None, False)
    config = llama.read(
        reader,
        lambda reader: {"use_bias": reader.take("attention_bias", False)},
        head_dim=256,
        hidden_act="gelu_pytorch_tanh",
        max_position_embeddings=8192,
        num_key_value_heads=16,
        tie_word_embeddings=True,
    )
    # the first files say "gelu" and mean its approximation; newer ones have a second key that says so
    activation = "gelu_tanh" if config.feed_forward.activation == "gelu" else config.feed_forward.activation
    other = reader.take("hidden_activation", None)
    require(
        other is None or ACTIVATIONS.get(other) == activation, "hidden_activation", other, "that of hidden_act or null"
    )
    return dataclasses.replace(
        config,
        norm=dataclasses.replace(config.norm, unit_offset=True),
        feed_forward=dataclasses.replace(config.feed_forward, activation=activation),
        embedding=dataclasses.replace(config.embedding, scale=True),
    )


def write_gemma(config: TransformerConfig) -> dict[str, Any]:
    """Returns the configuration of the Transformers library."""
    return {**llama.write(config), "attention_bias": bool(config.attention.use_bias)}


llama.register("gemma", "Gemma", read_gemma, write_gemma)
