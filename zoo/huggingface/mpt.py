"""MPT (model type "mpt")."""

import dataclasses
from typing import Any

from zoo.config import (
    AttentionConfig,
    EmbeddingConfig,
    FeedForwardConfig,
    NormConfig,
    PositionConfig,
    TransformerConfig,
)
from zoo.huggingface.config_reader import ConfigReader
from zoo.huggingface.decoder_heads import decoder_heads, take_head_keys
from zoo.huggingface.family import Family, register_family

TABLE = {
    "token_embedding": "wte",
    "decoder.{}.attention_norm": "blocks.{}.norm_1",
    (
        "decoder.{}.attention.query",
        "decoder.{}.attention.key",
        "decoder.{}.attention.value",
    ): "blocks.{}.attn.Wqkv",
    "decoder.{}.attention.output": "blocks.{}.attn.out_proj",
    "decoder.{}.feed_forward_norm": "blocks.{}.norm_2",
    "decoder.{}.feed_forward.up": "blocks.{}.ffn.up_proj",
    "decoder.{}.feed_forward.down": "blocks.{}.ffn.down_proj",
    "decoder.final_norm": "norm_f",
    "output_projection": "lm_head",
}


def _read_attention(reader: ConfigReader) -> AttentionConfig:
    """What `attn_config` says; what the library has no code for must have the value that needs none."""
    given = reader.take("attn_config", None) or {}
    own = ConfigReader({**given, "model_type": "mpt"})
    own.take_only("alibi", True)
    own.take_only("alibi_bias_max", 8)
    own.take_only("attn_type", "multihead_attention")
    for key in ("attn_uses_sequence_id", "prefix_lm", "qk_ln"):
        own.take_only(key, False)
    own.skip("attn_impl")
    config = AttentionConfig(
        reader.take("n_heads"),
        use_bias=False,
        scale=own.take("softmax_scale", None),
        projection_limit=own.take("clip_qkv", None),
        dropout=own.take("attn_pdrop", 0.0),
    )
    own.finish()
    return config


def read(reader: ConfigReader) -> TransformerConfig:
    """Returns the configuration of an MPT."""
    width = reader.take("d_model")
    reader.take_only("expansion_ratio", 4)
    reader.take_only("logit_scale", None)
    reader.take_only("no_bias", True)
    reader.take_only("norm_type", "low_precision_layernorm", "layernorm")
    # training alone, or in published files and never read: ALiBi goes before learned positions
    reader.skip("embedding_fraction", "init_config", "init_device", "learned_pos_emb", "tokenizer_name", "verbose")
    reader.skip("auto_map")  # code of the time when the library did not have it
    take_head_keys(reader)
    return TransformerConfig(
        "decoder",
        reader.take("vocab_size"),
        hidden_dim=width,
        num_layers=reader.take("n_layers"),
        max_length=reader.take("max_seq_len", 2048),
        attention=_read_attention(reader),
        position=PositionConfig("alibi"),
        norm=NormConfig("layer", "pre", epsilon=reader.take("layer_norm_epsilon", 1e-5), use_bias=False),
        feed_forward=FeedForwardConfig(4 * width, "gelu", use_bias=False),
        embedding=EmbeddingConfig(
            dropout=reader.take("emb_pdrop", 0.0), tie_output=reader.take("tie_word_embeddings", True)
        ),
        dropout=reader.take("resid_pdrop", 0.0),
        initializer_range=reader.take("initializer_range", 0.02),
    )


def write(config: TransformerConfig) -> dict[str, Any]:
    """Returns the configuration of the Transformers library."""
    attention, embedding = config.attention, config.embedding
    return {
        "vocab_size": config.vocabulary_size,
        "d_model": config.hidden_dim,
        "n_layers": config.num_layers,
        "n_heads": attention.num_heads,
        "max_seq_len": config.max_length,
        "attn_config": {
            "alibi": True,
            "alibi_bias_max": 8,
            # it takes integers alone
            "attn_pdrop": attention.dropout or 0,
            "clip_qkv": attention.projection_limit,
            "softmax_scale": attention.scale,
        },
        "emb_pdrop": config.dropout if embedding.dropout is None else embedding.dropout,
        "resid_pdrop": config.dropout,
        "layer_norm_epsilon": config.norm.epsilon,
        "tie_word_embeddings": embedding.tie_output,
        "initializer_range": config.initializer_range or 0.02,
    }


_HEADS = decoder_heads(
    "MptForCausalLM",
    "MptForSequenceClassification",
    "MptForTokenClassification",
    "MptForQuestionAnswering",
    tokens="classifier",
)

register_family(
    Family(
        "mpt",
        read,
        write,
        TABLE,
        architecture="MptModel",
        prefix="transformer.",
        outside=("lm_head.",),
        # the second name is that of the code which published files came with
        heads={**_HEADS, "CausalLM": dataclasses.replace(_HEADS["CausalLM"], others=("MPTForCausalLM",))},
        copies={"lm_head.weight": "wte.weight"},
    )
)
