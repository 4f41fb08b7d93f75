"""OPT (model type "opt")."""

from typing import Any

from zoo.config import (
    AttentionConfig,
    EmbeddingConfig,
    FeedForwardConfig,
    NormConfig,
    PositionConfig,
    TransformerConfig,
)
from zoo.huggingface.config_reader import ACTIVATION_NAMES, ConfigReader
from zoo.huggingface.decoder_heads import decoder_heads, take_head_keys
from zoo.huggingface.family import Family, register_family

TABLE = {
    "token_embedding": "decoder.embed_tokens",
    "token_factor": "decoder.project_in",
    "decoder.position": "decoder.embed_positions",
    "decoder.{}.attention_norm": "decoder.layers.{}.self_attn_layer_norm",
    "decoder.{}.attention.query": "decoder.layers.{}.self_attn.q_proj",
    "decoder.{}.attention.key": "decoder.layers.{}.self_attn.k_proj",
    "decoder.{}.attention.value": "decoder.layers.{}.self_attn.v_proj",
    "decoder.{}.attention.output": "decoder.layers.{}.self_attn.out_proj",
    "decoder.{}.feed_forward_norm": "decoder.layers.{}.final_layer_norm",
    "decoder.{}.feed_forward.up": "decoder.layers.{}.fc1",
    "decoder.{}.feed_forward.down": "decoder.layers.{}.fc2",
    "decoder.final_norm": "decoder.final_layer_norm",
    "output_factor": "decoder.project_out",
    "output_projection": "lm_head",
}


def read(reader: ConfigReader) -> TransformerConfig:
    """Returns the configuration of an OPT."""
    width = reader.take("hidden_size")
    inner = reader.take_number("word_embed_proj_dim", width)
    is_before, has_bias = reader.take("do_layer_norm_before", True), reader.take("enable_bias", True)
    is_affine = reader.take("layer_norm_elementwise_affine", True)
    is_removed = reader.take("_remove_final_layer_norm", False)
    reader.skip("layerdrop", "activation_dropout")  # training alone
    take_head_keys(reader)
    return TransformerConfig(
        "decoder",
        reader.take("vocab_size"),
        hidden_dim=width,
        num_layers=reader.take("num_hidden_layers"),
        max_length=reader.take("max_position_embeddings", 2048),
        attention=AttentionConfig(
            reader.take("num_attention_heads"),
            use_bias=has_bias,
            dropout=reader.take("attention_dropout", 0.0),
        ),
        # the first two rows of the table are those of no position
        position=PositionConfig("learned", offset=2, skips_padding=True),
        norm=NormConfig(
            "layer",
            "pre" if is_before else "post",
            epsilon=1e-5,
            use_bias=is_affine,
            final=is_before and not is_removed,
            options=None if is_affine else {"scale": False},
        ),
        feed_forward=FeedForwardConfig(
            reader.take("ffn_dim"), reader.take_activation("activation_function", "relu"), use_bias=has_bias
        ),
        embedding=EmbeddingConfig(
            dropout=0.0,
            factor_dim=None if inner == width else inner,
            factor_output=inner != width,
            tie_output=reader.take("tie_word_embeddings", True),
        ),
        dropout=reader.take("dropout", 0.1),
        initializer_range=reader.take("init_std", 0.02),
    )


def write(config: TransformerConfig) -> dict[str, Any]:
    """Returns the configuration of the Transformers library."""
    norm = config.norm
    is_before = norm.placement == "pre"
    return {
        "vocab_size": config.vocabulary_size,
        "hidden_size": config.hidden_dim,
        "word_embed_proj_dim": config.embedding.factor_dim or config.hidden_dim,
        "ffn_dim": config.feed_forward.intermediate_dim,
        "num_hidden_layers": config.num_layers,
        "num_attention_heads": config.attention.num_heads,
        "activation_function": ACTIVATION_NAMES[config.feed_forward.activation],
        "max_position_embeddings": config.max_length,
        "do_layer_norm_before": is_before,
        "_remove_final_layer_norm": is_before and norm.final is False,
        "enable_bias": bool(config.attention.use_bias),
        "layer_norm_elementwise_affine": norm.use_bias,
        "dropout": config.dropout,
        "attention_dropout": config.attention.dropout,
        "tie_word_embeddings": config.embedding.tie_output,
        "init_std": config.initializer_range or 0.02,
    }


register_family(
    Family(
        "opt",
        read,
        write,
        TABLE,
        architecture="OPTModel",
        prefix="model.",
        outside=("lm_head.",),
        heads=decoder_heads("OPTForCausalLM", "OPTForSequenceClassification", answerer="OPTForQuestionAnswering"),
        copies={"lm_head.weight": "decoder.embed_tokens.weight"},
    )
)
