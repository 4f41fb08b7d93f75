"""GPT-2 (model type "gpt2")."""

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
from zoo.huggingface.weights import Stored

TABLE = {
    "token_embedding": "wte",
    "decoder.position": "wpe",
    "decoder.{}.attention_norm": "h.{}.ln_1",
    (
        "decoder.{}.attention.query",
        "decoder.{}.attention.key",
        "decoder.{}.attention.value",
    ): Stored("h.{}.attn.c_attn", transposed=False),
    "decoder.{}.attention.output": Stored("h.{}.attn.c_proj", transposed=False),
    "decoder.{}.feed_forward_norm": "h.{}.ln_2",
    "decoder.{}.feed_forward.up": Stored("h.{}.mlp.c_fc", transposed=False),
    "decoder.{}.feed_forward.down": Stored("h.{}.mlp.c_proj", transposed=False),
    "decoder.final_norm": "ln_f",
    "output_projection": "lm_head",
}


def read(reader: ConfigReader) -> TransformerConfig:
    """Returns the configuration of a GPT-2."""
    reader.take_only("add_cross_attention", False)
    reader.take("reorder_and_upcast_attn", False)  # scores are float32 here in any case
    reader.skip("n_ctx")  # older name of n_positions
    take_head_keys(reader)
    width = reader.take("n_embd")
    return TransformerConfig(
        "decoder",
        reader.take("vocab_size"),
        hidden_dim=width,
        num_layers=reader.take("n_layer"),
        max_length=reader.take("n_positions", 1024),
        attention=AttentionConfig(
            reader.take("n_head"),
            scale=None if reader.take("scale_attn_weights", True) else 1.0,
            scale_by_layer=reader.take("scale_attn_by_inverse_layer_idx", False),
            dropout=reader.take("attn_pdrop", 0.1),
        ),
        position=PositionConfig("learned"),
        norm=NormConfig("layer", "pre", epsilon=reader.take("layer_norm_epsilon", 1e-5)),
        feed_forward=FeedForwardConfig(
            reader.take_number("n_inner", 4 * width), reader.take_activation("activation_function", "gelu_new")
        ),
        embedding=EmbeddingConfig(
            tie_output=reader.take("tie_word_embeddings", True), dropout=reader.take("embd_pdrop", 0.1)
        ),
        dropout=reader.take("resid_pdrop", 0.1),
        initializer_range=reader.take("initializer_range", 0.02),
    )


def write(config: TransformerConfig) -> dict[str, Any]:
    """Returns the configuration of the Transformers library."""
    embedding = config.embedding
    activation = config.feed_forward.activation
    return {
        "vocab_size": config.vocabulary_size,
        "n_positions": config.max_length,
        "n_embd": config.hidden_dim,
        "n_layer": config.num_layers,
        "n_head": config.attention.num_heads,
        "n_inner": config.feed_forward.intermediate_dim,
        "activation_function": "gelu_new" if activation == "gelu_tanh" else ACTIVATION_NAMES[activation],
        "resid_pdrop": config.dropout,
        "embd_pdrop": config.dropout if embedding.dropout is None else embedding.dropout,
        "attn_pdrop": config.attention.dropout,
        "layer_norm_epsilon": config.norm.epsilon,
        "scale_attn_weights": config.attention.scale is None,
        "scale_attn_by_inverse_layer_idx": config.attention.scale_by_layer,
        "tie_word_embeddings": embedding.tie_output,
        "initializer_range": config.initializer_range or 0.02,
    }


register_family(
    Family(
        "gpt2",
        read,
        write,
        TABLE,
        architecture="GPT2Model",
        prefix="transformer.",
        outside=("lm_head.",),
        heads=decoder_heads(
            "GPT2LMHeadModel",
            "GPT2ForSequenceClassification",
            "GPT2ForTokenClassification",
            "GPT2ForQuestionAnswering",
            tokens="classifier",
        ),
        ignored=(r"h\.\d+\.attn\.(masked_)?bias",),  # the causal mask
        copies={"lm_head.weight": "wte.weight"},
    )
)
