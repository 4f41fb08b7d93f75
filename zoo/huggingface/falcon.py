"""Falcon (model type "falcon")."""

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
from zoo.huggingface.config_reader import ACTIVATION_NAMES, ConfigReader
from zoo.huggingface.decoder_heads import decoder_heads, take_head_keys
from zoo.huggingface.family import Family, register_family
from zoo.huggingface.rotary import read_rotary, write_rotary
from zoo.huggingface.weights import Stored, Table


def table(config: TransformerConfig) -> Table:
    """Returns the names of the weights: queries that share a key stand before this key and its value."""
    attention, norm = config.attention, config.norm
    parallel = norm.placement == "parallel"
    names = ("input_layernorm", "post_attention_layernorm") if norm.shared or not parallel else ("ln_attn", "ln_mlp")
    return {
        "token_embedding": "word_embeddings",
        "decoder.{}.attention_norm": f"h.{{}}.{names[0]}",
        (
            "decoder.{}.attention.query",
            "decoder.{}.attention.key",
            "decoder.{}.attention.value",
        ): Stored("h.{}.self_attention.query_key_value", groups=attention.num_key_value_heads or attention.num_heads),
        "decoder.{}.attention.output": "h.{}.self_attention.dense",
        "decoder.{}.feed_forward_norm": f"h.{{}}.{names[1]}",
        "decoder.{}.feed_forward.up": "h.{}.mlp.dense_h_to_4h",
        "decoder.{}.feed_forward.down": "h.{}.mlp.dense_4h_to_h",
        "decoder.final_norm": "ln_f",
        "output_projection": "lm_head",
    }


def read(reader: ConfigReader) -> TransformerConfig:
    """Returns the configuration of a Falcon.

    Its ALiBi is added before the scores are scaled. The library rounds it to bfloat16, which is seen in heads whose
    slope is no power of two and beyond 256 tokens, and its "eager" attention adds it twice; here neither happens.
    """
    heads, width = reader.take("num_attention_heads"), reader.take("hidden_size")
    require(width % heads == 0, "hidden_size", width, f"a multiple of num_attention_heads={heads}")
    max_length = reader.take("max_position_embeddings", 2048)
    is_new, is_parallel = reader.take("new_decoder_architecture", False), reader.take("parallel_attn", True)
    groups, is_single = reader.take_number("num_kv_heads", heads), reader.take("multi_query", True)
    norms = reader.take_number("num_ln_in_parallel_attn", 2 if is_new else 1)
    require(is_parallel or not is_new, "parallel_attn", is_parallel, "true with new_decoder_architecture")
    require(norms == 1 or is_new, "num_ln_in_parallel_attn", norms, "1 or null without new_decoder_architecture")
    reader.take_only("apply_residual_connection_post_layernorm", False)
    reader.skip("auto_map")  # code of the time when the library did not have it
    take_head_keys(reader)
    if reader.take("alibi", False):
        reader.skip("rope_parameters", "rope_scaling", "rope_theta")
        position = PositionConfig("alibi", options={"slope_scale": (width // heads) ** -0.5})
    else:
        position = read_rotary(reader, width // heads, max_length)
    has_bias = reader.take("bias", False)
    return TransformerConfig(
        "decoder",
        reader.take("vocab_size"),
        hidden_dim=width,
        num_layers=reader.take("num_hidden_layers"),
        max_length=max_length,
        attention=AttentionConfig(
            heads,
            num_key_value_heads=groups if is_new else 1 if is_single else heads,
            use_bias=has_bias,
            dropout=reader.take_number("attention_dropout", 0.0),
        ),
        position=position,
        norm=NormConfig(
            "layer",
            "parallel" if is_parallel else "pre",
            epsilon=reader.take("layer_norm_epsilon", 1e-5),
            shared=norms == 1,
        ),
        feed_forward=FeedForwardConfig(
            reader.take_number("ffn_hidden_size", 4 * width),
            reader.take_activation("activation", "gelu"),
            use_bias=has_bias,
        ),
        embedding=EmbeddingConfig(dropout=0.0, tie_output=reader.take("tie_word_embeddings", True)),
        dropout=reader.take_number("hidden_dropout", 0.0),
        initializer_range=reader.take("initializer_range", 0.02),
    )


def write(config: TransformerConfig) -> dict[str, Any]:
    """Returns the configuration of the Transformers library."""
    attention, norm = config.attention, config.norm
    groups, is_parallel = attention.num_key_value_heads or attention.num_heads, norm.placement == "parallel"
    has_alibi = config.position.kind == "alibi"
    is_new = is_parallel and not (norm.shared and groups in (1, attention.num_heads))
    return {
        "vocab_size": config.vocabulary_size,
        "hidden_size": config.hidden_dim,
        "ffn_hidden_size": config.feed_forward.intermediate_dim,
        "num_hidden_layers": config.num_layers,
        "num_attention_heads": attention.num_heads,
        "num_kv_heads": groups,
        "activation": ACTIVATION_NAMES[config.feed_forward.activation],
        "alibi": has_alibi,
        "bias": bool(attention.use_bias),
        "max_position_embeddings": config.max_length,
        "layer_norm_epsilon": norm.epsilon,
        "new_decoder_architecture": is_new,
        "multi_query": groups == 1,
        "parallel_attn": is_parallel,
        "num_ln_in_parallel_attn": 1 if norm.shared else 2,
        "hidden_dropout": config.dropout,
        "attention_dropout": attention.dropout,
        "tie_word_embeddings": config.embedding.tie_output,
        "initializer_range": config.initializer_range or 0.02,
        **({} if has_alibi else write_rotary(config.position, config.head_dim)),
    }


register_family(
    Family(
        "falcon",
        read,
        write,
        table,
        architecture="FalconModel",
        prefix="transformer.",
        outside=("lm_head.",),
        heads=decoder_heads(
            "FalconForCausalLM",
            "FalconForSequenceClassification",
            "FalconForTokenClassification",
            "FalconForQuestionAnswering",
            tokens="classifier",
        ),
        copies={"lm_head.weight": "word_embeddings.weight"},
    )
)
