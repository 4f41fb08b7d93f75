"""GPT-Neo (model type "gpt_neo")."""

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
from zoo.huggingface.config_reader import ACTIVATION_NAMES, ConfigReader
from zoo.huggingface.decoder_heads import decoder_heads, take_head_keys
from zoo.huggingface.family import Family, register_family, types_of_layers, window_of_layers

TABLE = {
    "token_embedding": "wte",
    "decoder.position": "wpe",
    "decoder.{}.attention_norm": "h.{}.ln_1",
    "decoder.{}.attention.query": "h.{}.attn.attention.q_proj",
    "decoder.{}.attention.key": "h.{}.attn.attention.k_proj",
    "decoder.{}.attention.value": "h.{}.attn.attention.v_proj",
    "decoder.{}.attention.output": "h.{}.attn.attention.out_proj",
    "decoder.{}.feed_forward_norm": "h.{}.ln_2",
    "decoder.{}.feed_forward.up": "h.{}.mlp.c_fc",
    "decoder.{}.feed_forward.down": "h.{}.mlp.c_proj",
    "decoder.final_norm": "ln_f",
    "output_projection": "lm_head",
}
_TYPES = {"global": "full_attention", "local": "sliding_attention"}
_NAMES = {name: theirs for theirs, name in _TYPES.items()}


def _layer_types(reader: ConfigReader, layers: int) -> list[str]:
    """The type of each layer: lists of types with how often each is repeated, one after the other."""
    groups = reader.take("attention_types", None) or [[["global", "local"], 12]]
    count = sum(len(kinds) * times for kinds, times in groups)
    require(count == layers, "attention_types", groups, f"lists of types for num_layers={layers} layers in all")
    types = [kind for kinds, times in groups for _ in range(times) for kind in kinds]
    require(set(types) <= _TYPES.keys(), "attention_types", groups, f"lists of {' and '.join(map(repr, _TYPES))}")
    again = reader.take("attention_layers", None)
    require(again in (None, types), "attention_layers", again, f"{types} as attention_types")
    return [_TYPES[kind] for kind in types]


def read(reader: ConfigReader) -> TransformerConfig:
    """Returns the configuration of a GPT-Neo: a GPT-2 without a scale of scores, and with windows in some layers."""
    take_head_keys(reader)
    width, layers = reader.take("hidden_size"), reader.take("num_layers")
    window = llama.sliding(reader.take("window_size", 256))
    return TransformerConfig(
        "decoder",
        reader.take("vocab_size"),
        hidden_dim=width,
        num_layers=layers,
        max_length=reader.take("max_position_embeddings", 2048),
        attention=AttentionConfig(
            reader.take("num_heads"),
            use_bias=("output",),
            scale=1.0,
            dropout=reader.take("attention_dropout", 0.0),
            **window_of_layers(_layer_types(reader, layers), layers, window),
        ),
        position=PositionConfig("learned"),
        norm=NormConfig("layer", "pre", epsilon=reader.take("layer_norm_epsilon", 1e-5)),
        feed_forward=FeedForwardConfig(
            reader.take_number("intermediate_size", 4 * width),
            reader.take_activation("activation_function", "gelu_new"),
        ),
        embedding=EmbeddingConfig(
            tie_output=reader.take("tie_word_embeddings", True), dropout=reader.take("embed_dropout", 0.0)
        ),
        dropout=reader.take("resid_dropout", 0.0),
        initializer_range=reader.take("initializer_range", 0.02),
    )


def write(config: TransformerConfig) -> dict[str, Any]:
    """Returns the configuration of the Transformers library."""
    embedding = config.embedding
    activation = config.feed_forward.activation
    types = [_NAMES[kind] for kind in types_of_layers(config)]
    return {
        "vocab_size": config.vocabulary_size,
        "max_position_embeddings": config.max_length,
        "hidden_size": config.hidden_dim,
        "num_layers": config.num_layers,
        "num_heads": config.attention.num_heads,
        "intermediate_size": config.feed_forward.intermediate_dim,
        "attention_types": [[types, 1]],
        "attention_layers": types,
        "window_size": llama.size_of_window(config) or 256,
        "activation_function": "gelu_new" if activation == "gelu_tanh" else ACTIVATION_NAMES[activation],
        "resid_dropout": config.dropout,
        "embed_dropout": config.dropout if embedding.dropout is None else embedding.dropout,
        "attention_dropout": config.attention.dropout,
        "layer_norm_epsilon": config.norm.epsilon,
        "tie_word_embeddings": embedding.tie_output,
        "initializer_range": config.initializer_range or 0.02,
    }


register_family(
    Family(
        "gpt_neo",
        read,
        write,
        TABLE,
        architecture="GPTNeoModel",
        prefix="transformer.",
        outside=("lm_head.",),
        heads=decoder_heads(
            "GPTNeoForCausalLM",
            "GPTNeoForSequenceClassification",
            "GPTNeoForTokenClassification",
            "GPTNeoForQuestionAnswering",
            tokens="classifier",
        ),
        ignored=(r"h\.\d+\.attn\.attention\.(masked_)?bias",),  # the masks
        copies={"lm_head.weight": "wte.weight"},
    )
)
