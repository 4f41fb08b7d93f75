"""ALBERT (model type "albert")."""

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
from zoo.huggingface import bert
from zoo.huggingface.config_reader import ConfigReader
from zoo.huggingface.family import Family, Head, register_family
from zoo.huggingface.labels import label_names, labels_and_problem, write_labels
from zoo.huggingface.span_heads import question_answerer

BLOCK = "encoder.albert_layer_groups.{}.albert_layers.0"
TABLE = {
    "token_embedding": "embeddings.word_embeddings",
    "segment_embedding": "embeddings.token_type_embeddings",
    "encoder.position": "embeddings.position_embeddings",
    "encoder.embedding_norm": "embeddings.LayerNorm",
    "token_factor": "encoder.embedding_hidden_mapping_in",
    "encoder.{}.attention.query": f"{BLOCK}.attention.query",
    "encoder.{}.attention.key": f"{BLOCK}.attention.key",
    "encoder.{}.attention.value": f"{BLOCK}.attention.value",
    "encoder.{}.attention.output": f"{BLOCK}.attention.dense",
    "encoder.{}.attention_norm": f"{BLOCK}.attention.LayerNorm",
    "encoder.{}.feed_forward.up": f"{BLOCK}.ffn",
    "encoder.{}.feed_forward.down": f"{BLOCK}.ffn_output",
    "encoder.{}.feed_forward_norm": f"{BLOCK}.full_layer_layer_norm",
    "pooler": "pooler",
}


def read(reader: ConfigReader) -> TransformerConfig:
    """Returns the configuration of an ALBERT."""
    layers, groups = reader.take("num_hidden_layers", 12), reader.take("num_hidden_groups", 1)
    # the library divides in floating point: for some numbers a layer is then in the group before
    same = all(int(index / (layers / groups)) == index * groups // layers for index in range(layers))
    require(same, "num_hidden_groups", groups, f"one that {layers} layers can be divided into without rounding")
    reader.take_only("inner_group_num", 1)
    reader.take_only("position_embedding_type", "absolute")
    reader.take_tied()
    # keys of the first files, of which the library never used any
    reader.skip("down_scale_factor", "gap_size", "layers_to_keep", "net_structure_type", "num_memory_blocks")
    reader.skip("classifier_dropout_prob")  # of heads
    return TransformerConfig(
        "encoder",
        reader.take("vocab_size"),
        hidden_dim=reader.take("hidden_size"),
        num_layers=layers,
        layer_groups=None if groups == layers else groups,
        max_length=reader.take("max_position_embeddings", 512),
        attention=AttentionConfig(
            reader.take("num_attention_heads"), dropout=reader.take("attention_probs_dropout_prob", 0.0)
        ),
        position=PositionConfig("learned"),
        norm=NormConfig("layer", "post", epsilon=reader.take("layer_norm_eps", 1e-12), embedding=True),
        feed_forward=FeedForwardConfig(
            reader.take("intermediate_size"), reader.take_activation("hidden_act", "gelu_new")
        ),
        embedding=EmbeddingConfig(
            factor_dim=reader.take("embedding_size", 128),
            factor_bias=True,
            factor_after_norm=True,
            num_segments=reader.take("type_vocab_size", 2),
        ),
        dropout=reader.take("hidden_dropout_prob", 0.0),
        # only classes that need it have one
        pooler=reader.has_layer("pooler.weight", "AlbertModel", "AlbertForSequenceClassification"),
        initializer_range=reader.take("initializer_range", 0.02),
    )


def write(config: TransformerConfig) -> dict[str, Any]:
    """Returns the configuration of the Transformers library."""
    return {
        **bert.write(config),
        "embedding_size": config.embedding.factor_dim,
        "num_hidden_groups": config.layer_groups or config.num_layers,
    }


def _head_dropout(reader: ConfigReader) -> float:
    return reader.take("classifier_dropout_prob", 0.1)


def _write_classifier(options: dict[str, Any]) -> dict[str, Any]:
    return {**write_labels(options), "classifier_dropout_prob": options["head_dropout"]}


register_family(
    Family(
        "albert",
        read,
        write,
        TABLE,
        architecture="AlbertModel",
        prefix="albert.",
        heads={
            "MaskedLM": Head(
                "AlbertForMaskedLM",
                {"dense": "predictions.dense", "norm": "predictions.LayerNorm", "output_bias": "predictions"},
                lambda reader: {
                    "head": "transform",
                    "head_activation": reader.take_activation("hidden_act", "gelu_new"),
                    "head_bias": True,
                },
                others=("AlbertForPreTraining",),
            ),
            "TextClassifier": Head(
                "AlbertForSequenceClassification",
                {"projection": "classifier"},
                lambda reader: {
                    "pooling": "pooler",
                    "hidden_activation": None,
                    "head_dropout": _head_dropout(reader),
                    **labels_and_problem(reader),
                },
                _write_classifier,
            ),
            "TokenClassifier": Head(
                "AlbertForTokenClassification",
                {"projection": "classifier"},
                lambda reader: {
                    "hidden_activation": None,
                    "head_dropout": _head_dropout(reader),
                    "labels": label_names(reader),
                },
                _write_classifier,
            ),
            "QuestionAnswerer": question_answerer("AlbertForQuestionAnswering"),
        },
        needs_segments=True,
        ignored=(r"embeddings\.position_ids",),
        copies={
            "predictions.decoder.weight": "embeddings.word_embeddings.weight",
            "predictions.decoder.bias": "predictions.bias",
        },
    )
)
