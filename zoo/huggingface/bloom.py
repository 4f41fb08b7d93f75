"""BLOOM (model type "bloom")."""

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
from zoo.huggingface.config_reader import ConfigReader
from zoo.huggingface.decoder_heads import decoder_heads, take_head_keys
from zoo.huggingface.family import Family, register_family
from zoo.huggingface.weights import Stored, Table


def table(config: TransformerConfig) -> Table:
    """Returns the names of the weights: query, key and value of a head are side by side."""
    return {
        "token_embedding": "word_embeddings",
        "decoder.embedding_norm": "word_embeddings_layernorm",
        "decoder.{}.attention_norm": "h.{}.input_layernorm",
        (
            "decoder.{}.attention.query",
            "decoder.{}.attention.key",
            "decoder.{}.attention.value",
        ): Stored("h.{}.self_attention.query_key_value", groups=config.attention.num_heads),
        "decoder.{}.attention.output": "h.{}.self_attention.dense",
        "decoder.{}.feed_forward_norm": "h.{}.post_attention_layernorm",
        "decoder.{}.feed_forward.up": "h.{}.mlp.dense_h_to_4h",
        "decoder.{}.feed_forward.down": "h.{}.mlp.dense_4h_to_h",
        "decoder.final_norm": "ln_f",
        "output_projection": "lm_head",
    }


def _either(reader: ConfigReader, key: str, other: str) -> Any:
    """The value of a key that some files have under another name."""
    if other not in reader.values:
        return reader.take(key)
    value = reader.take(other)
    again = reader.take(key, value)
    require(again == value, key, again, f"{other}={value}, which is the same")
    return value


def read(reader: ConfigReader) -> TransformerConfig:
    """Returns the configuration of a BLOOM."""
    width = _either(reader, "hidden_size", "n_embed")
    reader.take_only("apply_residual_connection_post_layernorm", False)
    reader.take_only("n_inner", None, 4 * width)
    # in published files, and never read; the last one says in which order the same sums are computed
    reader.skip("attention_softmax_in_fp32", "bias_dropout_fusion", "masked_softmax_fusion", "offset_alibi")
    reader.skip("skip_bias_add", "skip_bias_add_qkv", "unk_token_id", "slow_but_exact")
    take_head_keys(reader)
    return TransformerConfig(
        "decoder",
        reader.take("vocab_size"),
        hidden_dim=width,
        num_layers=_either(reader, "n_layer", "num_hidden_layers"),
        max_length=reader.take("seq_length", 2048),
        attention=AttentionConfig(
            _either(reader, "n_head", "num_attention_heads"), dropout=reader.take_number("attention_dropout", 0.0)
        ),
        position=PositionConfig("alibi"),
        norm=NormConfig("layer", "pre", epsilon=reader.take("layer_norm_epsilon", 1e-5), embedding=True),
        feed_forward=FeedForwardConfig(4 * width, "gelu_tanh"),
        embedding=EmbeddingConfig(dropout=0.0, tie_output=reader.take("tie_word_embeddings", True)),
        dropout=reader.take_number("hidden_dropout", 0.0),
        initializer_range=reader.take("initializer_range", 0.02),
    )


def write(config: TransformerConfig) -> dict[str, Any]:
    """Returns the configuration of the Transformers library."""
    return {
        "vocab_size": config.vocabulary_size,
        "hidden_size": config.hidden_dim,
        "n_layer": config.num_layers,
        "n_head": config.attention.num_heads,
        "seq_length": config.max_length,  # which the library keeps and does not read
        "layer_norm_epsilon": config.norm.epsilon,
        "hidden_dropout": config.dropout,
        "attention_dropout": config.attention.dropout,
        "tie_word_embeddings": config.embedding.tie_output,
        "initializer_range": config.initializer_range or 0.02,
    }


register_family(
    Family(
        "bloom",
        read,
        write,
        table,
        architecture="BloomModel",
        prefix="transformer.",
        outside=("lm_head.",),
        heads=decoder_heads(
            "BloomForCausalLM",
            "BloomForSequenceClassification",
            "BloomForTokenClassification",
            "BloomForQuestionAnswering",
            tokens="classifier",
        ),
        copies={"lm_head.weight": "word_embeddings.weight"},
    )
)
