"""GPT-J and CodeGen (model types "gptj" and "codegen")."""

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
from zoo.huggingface import gpt2
from zoo.huggingface.config_reader import ConfigReader
from zoo.huggingface.decoder_heads import decoder_heads, has_output_bias
from zoo.huggingface.family import Family, register_family
from zoo.huggingface.weights import Stored, Table

_SHARED = {
    "token_embedding": "wte",
    "decoder.{}.attention_norm": "h.{}.ln_1",
    "decoder.{}.attention.output": "h.{}.attn.out_proj",
    "decoder.{}.feed_forward.up": "h.{}.mlp.fc_in",
    "decoder.{}.feed_forward.down": "h.{}.mlp.fc_out",
    "decoder.final_norm": "ln_f",
    "output_projection": "lm_head",
    "output_bias": "lm_head",
}
GPTJ_TABLE: Table = {
    **_SHARED,
    "decoder.{}.attention.query": "h.{}.attn.q_proj",
    "decoder.{}.attention.key": "h.{}.attn.k_proj",
    "decoder.{}.attention.value": "h.{}.attn.v_proj",
}
CODEGEN_TABLE: Table = {
    **_SHARED,
    # a block for each of the four devices that it was trained on, whatever the number of heads
    (
        "decoder.{}.attention.query",
        "decoder.{}.attention.value",
        "decoder.{}.attention.key",
    ): Stored("h.{}.attn.qkv_proj", groups=4),
}


def read(reader: ConfigReader, language_model: str) -> TransformerConfig:
    """Returns the configuration of both: parallel sublayers with one norm, and pairs of neighbours that are rotated.

    Args:
        reader: The configuration.
        language_model: Name of the class for language models in the Transformers library.
    """
    heads, width, rotary_dim = reader.take("n_head"), reader.take("n_embd"), reader.take("rotary_dim", 64)
    head_dim = width // heads
    is_right = rotary_dim % 2 == 0 and rotary_dim <= head_dim
    require(is_right, "rotary_dim", rotary_dim, f"an even number of the {head_dim} entries of a head")
    reader.skip("n_ctx", "rotary", "scale_attn_weights")  # in published files, and never read
    return TransformerConfig(
        "decoder",
        reader.take("vocab_size"),
        hidden_dim=width,
        num_layers=reader.take("n_layer"),
        max_length=reader.take("n_positions", 2048),
        attention=AttentionConfig(heads, use_bias=False, dropout=reader.take("attn_pdrop", 0.0)),
        position=PositionConfig(
            "rotary", layout="interleaved", rotary_dim=None if rotary_dim == head_dim else rotary_dim
        ),
        norm=NormConfig("layer", "parallel", epsilon=reader.take("layer_norm_epsilon", 1e-5)),
        feed_forward=FeedForwardConfig(
            reader.take_number("n_inner", 4 * width), reader.take_activation("activation_function", "gelu_new")
        ),
        embedding=EmbeddingConfig(
            tie_output=reader.take("tie_word_embeddings", False),
            output_bias=has_output_bias(reader, language_model),
            dropout=reader.take("embd_pdrop", 0.0),
        ),
        dropout=reader.take("resid_pdrop", 0.0),
        initializer_range=reader.take("initializer_range", 0.02),
    )


def write(config: TransformerConfig) -> dict[str, Any]:
    """Returns the configuration of the Transformers library."""
    values = {**gpt2.write(config), "rotary_dim": config.position.rotary_dim or config.head_dim}
    for key in ("scale_attn_weights", "scale_attn_by_inverse_layer_idx"):
        del values[key]
    return values


def _register(model_type: str, name: str, table: Table, **heads: str) -> None:
    """Adds one of these families.

    Args:
        model_type: Its name.
        name: What the names of its classes in the Transformers library begin with.
        table: Names of the weights.
        **heads: Names of its classes with other heads than that of a language model, see `decoder_heads`.
    """
    language_model = f"{name}ForCausalLM"
    register_family(
        Family(
            model_type,
            lambda reader: read(reader, language_model),
            write,
            table,
            architecture=f"{name}Model",
            prefix="transformer.",
            outside=("lm_head.",),
            heads=decoder_heads(language_model, **heads),
            ignored=(r"h\.\d+\.attn\.((masked_)?bias|causal_mask)",),
            copies={"lm_head.weight": "wte.weight"},
        )
    )


_register(
    "gptj",
    "GPTJ",
    GPTJ_TABLE,
    text_classifier="GPTJForSequenceClassification",
    answerer="GPTJForQuestionAnswering",
)
_register("codegen", "CodeGen", CODEGEN_TABLE)
