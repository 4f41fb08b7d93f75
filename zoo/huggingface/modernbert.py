"""ModernBERT (model type "modernbert")."""

import dataclasses
from typing import Any

from zoo.config import AttentionConfig, EmbeddingConfig, FeedForwardConfig, NormConfig, TransformerConfig
from zoo.config.checks import require
from zoo.huggingface.config_reader import ACTIVATION_NAMES, ConfigReader
from zoo.huggingface.family import Family, Head, register_family, types_of_layers, window_of_layers
from zoo.huggingface.labels import label_names, labels_and_problem, write_labels
from zoo.huggingface.rotary import merged, rotary_position
from zoo.storage import require_type

TABLE = {
    "token_embedding": "embeddings.tok_embeddings",
    "encoder.embedding_norm": "embeddings.norm",
    "encoder.{}.attention_norm": "layers.{}.attn_norm",
    ("encoder.{}.attention.query", "encoder.{}.attention.key", "encoder.{}.attention.value"): "layers.{}.attn.Wqkv",
    "encoder.{}.attention.output": "layers.{}.attn.Wo",
    "encoder.{}.feed_forward_norm": "layers.{}.mlp_norm",
    ("encoder.{}.feed_forward.gate", "encoder.{}.feed_forward.up"): "layers.{}.mlp.Wi",
    "encoder.{}.feed_forward.down": "layers.{}.mlp.Wo",
    "encoder.final_norm": "final_norm",
}
# what only heads read, and how their output is computed
HEAD_KEYS = (
    *("classifier_activation", "classifier_bias", "classifier_dropout", "classifier_pooling", "decoder_bias"),
    *("deterministic_flash_attn", "repad_logits_with_grad", "sparse_pred_ignore_index", "sparse_prediction"),
)


def read(reader: ConfigReader) -> TransformerConfig:
    """Returns the configuration of a ModernBERT."""
    heads, width = reader.take("num_attention_heads"), reader.take("hidden_size")
    layers, max_length = reader.take("num_hidden_layers"), reader.take("max_position_embeddings", 8192)
    side = reader.take("local_attention", 128) // 2
    every = reader.take("global_attn_every_n_layers", 3)
    types = reader.take("layer_types", None) or [
        "sliding_attention" if index % every else "full_attention" for index in range(layers)
    ]
    # older: two numbers; newer: a dictionary for each kind of layer
    bases = {
        "full_attention": reader.take("global_rope_theta", 160000.0),
        "sliding_attention": reader.take("local_rope_theta", 10000.0),
    }
    reader.take_only("rope_scaling", None)
    given = reader.take("rope_parameters", None) or {}
    require_type(given, dict[str, dict[str, Any] | None], "rope_parameters")
    positions = {}
    for kind, base in bases.items():
        older = "global_rope_theta" if kind == "full_attention" else "local_rope_theta"
        where = f"rope_parameters.{kind}"
        newer, names = merged({where: given.get(kind)})
        positions[kind] = rotary_position(
            {"rope_theta": base, **newer}, width // heads, max_length, {"rope_theta": older, **names}, where
        )
    position, local = positions["full_attention"], positions["sliding_attention"]
    require(set(given) <= set(bases), "rope_parameters", given, f"a dictionary with the keys {sorted(bases)}")
    require(local.scaling == position.scaling, "rope_parameters", given, "with the same scaling for both kinds")
    # it acts on the attention weights and on the output of the attention, but not on that of the network
    reader.take_only("attention_dropout", 0.0)
    reader.take_tied()
    reader.skip(*HEAD_KEYS, "layer_norm_eps", "position_embedding_type")  # the last two are in files and never read
    window = window_of_layers(types, layers, (side, side))
    if window:
        position = dataclasses.replace(position, local_base=local.base)
    return TransformerConfig(
        "encoder",
        reader.take("vocab_size"),
        hidden_dim=width,
        num_layers=layers,
        max_length=max_length,
        attention=AttentionConfig(heads, use_bias=reader.take("attention_bias", False), **window),
        position=position,
        norm=NormConfig(
            "layer",
            "pre",
            epsilon=reader.take("norm_eps", 1e-5),
            use_bias=reader.take("norm_bias", False),
            embedding=True,
            first_attention=False,
        ),
        feed_forward=FeedForwardConfig(
            reader.take("intermediate_size"),
            reader.take_activation("hidden_activation", "gelu"),
            gated=True,
            use_bias=reader.take("mlp_bias", False),
            dropout=reader.take("mlp_dropout", 0.0),
        ),
        embedding=EmbeddingConfig(dropout=reader.take("embedding_dropout", 0.0)),
        dropout=0.0,
        initializer_range=reader.take("initializer_range", 0.02),
    )


def write(config: TransformerConfig) -> dict[str, Any]:
    """Returns the configuration of the Transformers library."""
    types = types_of_layers(config)
    values = {
        "vocab_size": config.vocabulary_size,
        "hidden_size": config.hidden_dim,
        "intermediate_size": config.feed_forward.intermediate_dim,
        "num_hidden_layers": config.num_layers,
        "num_attention_heads": config.attention.num_heads,
        "hidden_activation": ACTIVATION_NAMES[config.feed_forward.activation],
        "max_position_embeddings": config.max_length,
        "norm_eps": config.norm.epsilon,
        "norm_bias": config.norm.use_bias,
        "attention_bias": bool(config.attention.use_bias),
        "mlp_bias": config.feed_forward.use_bias,
        "mlp_dropout": config.feed_forward.dropout,
        "embedding_dropout": config.embedding.dropout or 0.0,
        "attention_dropout": 0.0,
        "cls_token_id": None,
        "sep_token_id": None,
        "layer_types": types,
        "global_rope_theta": config.position.base,
        "local_rope_theta": config.position.local_base or config.position.base,
        "local_attention": 2 * (config.attention.window or (64, 64))[0],
        "initializer_range": config.initializer_range or 0.02,
    }
    distances = [index for index in range(1, len(types)) if types[index] == "full_attention"]
    if distances:  # for versions that do not know layer_types
        values["global_attn_every_n_layers"] = distances[0]
    return values


def _head_bias(reader: ConfigReader) -> bool:
    bias = reader.take("classifier_bias", False)
    require(bias == reader.take("norm_bias", False), "classifier_bias", bias, "the same as norm_bias")
    return bias


def _masked_lm(reader: ConfigReader) -> dict[str, Any]:
    reader.take_only("decoder_bias", True)
    activation = reader.take_activation("classifier_activation", "gelu")
    return {"head": "transform", "head_activation": activation, "head_bias": _head_bias(reader)}


def _classifier(reader: ConfigReader) -> dict[str, Any]:
    return {
        "hidden_activation": reader.take_activation("classifier_activation", "gelu"),
        "inner_bias": _head_bias(reader),
        "inner_norm": True,
        "head_dropout": reader.take("classifier_dropout", 0.0),
    }


def _text_classifier(reader: ConfigReader) -> dict[str, Any]:
    pooling = reader.take_only("classifier_pooling", "cls", "mean")
    return {
        "pooling": {"cls": "first", "mean": "mean"}[pooling],
        "head_dropout_before": 0.0,
        **_classifier(reader),
        **labels_and_problem(reader),
    }


def _token_classifier(reader: ConfigReader) -> dict[str, Any]:
    return {**_classifier(reader), "labels": label_names(reader)}


def _write_masked_lm(options: dict[str, Any]) -> dict[str, Any]:
    activation = ACTIVATION_NAMES[options["head_activation"]]
    return {"classifier_activation": activation, "classifier_bias": options["head_bias"]}


def _write_classifier(options: dict[str, Any]) -> dict[str, Any]:
    pooling = "mean" if options.get("pooling") == "mean" else "cls"
    return {**write_labels(options), **_write_head(options), "classifier_pooling": pooling}


def _write_head(options: dict[str, Any]) -> dict[str, Any]:
    return {
        "classifier_activation": ACTIVATION_NAMES.get(options["hidden_activation"], "gelu"),
        "classifier_bias": options["inner_bias"],
        "classifier_dropout": options["head_dropout"],
    }


register_family(
    Family(
        "modernbert",
        read,
        write,
        TABLE,
        architecture="ModernBertModel",
        prefix="model.",
        heads={
            "MaskedLM": Head(
                "ModernBertForMaskedLM",
                {"dense": "head.dense", "norm": "head.norm", "output_bias": "decoder"},
                _masked_lm,
                _write_masked_lm,
            ),
            "TextClassifier": Head(
                "ModernBertForSequenceClassification",
                {"dense": "head.dense", "norm": "head.norm", "projection": "classifier"},
                _text_classifier,
                _write_classifier,
            ),
            "TokenClassifier": Head(
                "ModernBertForTokenClassification",
                {"dense": "head.dense", "norm": "head.norm", "projection": "classifier"},
                _token_classifier,
                _write_classifier,
            ),
            "QuestionAnswerer": Head(
                "ModernBertForQuestionAnswering",
                {"dense": "head.dense", "norm": "head.norm", "projection": "classifier"},
                _classifier,
                _write_head,
            ),
        },
        copies={"decoder.weight": "embeddings.tok_embeddings.weight"},
    )
)
