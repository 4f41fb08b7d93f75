"""DistilBERT (model type "distilbert")."""

from typing import Any

from zoo.config import AttentionConfig, FeedForwardConfig, NormConfig, PositionConfig, TransformerConfig
from zoo.huggingface.config_reader import ACTIVATION_NAMES, ConfigReader
from zoo.huggingface.family import Family, Head, register_family
from zoo.huggingface.labels import label_names, labels_and_problem, write_labels

TABLE = {
    "token_embedding": "embeddings.word_embeddings",
    "encoder.position": "embeddings.position_embeddings",
    "encoder.embedding_norm": "embeddings.LayerNorm",
    "encoder.{}.attention.query": "transformer.layer.{}.attention.q_lin",
    "encoder.{}.attention.key": "transformer.layer.{}.attention.k_lin",
    "encoder.{}.attention.value": "transformer.layer.{}.attention.v_lin",
    "encoder.{}.attention.output": "transformer.layer.{}.attention.out_lin",
    "encoder.{}.attention_norm": "transformer.layer.{}.sa_layer_norm",
    "encoder.{}.feed_forward.up": "transformer.layer.{}.ffn.lin1",
    "encoder.{}.feed_forward.down": "transformer.layer.{}.ffn.lin2",
    "encoder.{}.feed_forward_norm": "transformer.layer.{}.output_layer_norm",
}
EPSILON = 1e-12  # not in the configuration


def read(reader: ConfigReader) -> TransformerConfig:
    """Returns the configuration of a DistilBERT."""
    reader.skip("sinusoidal_pos_embds")  # how the position table was made; it is stored in any case
    reader.skip("tie_weights_", "qa_dropout", "seq_classif_dropout")
    reader.take_tied()
    return TransformerConfig(
        "encoder",
        reader.take("vocab_size"),
        hidden_dim=reader.take("dim"),
        num_layers=reader.take("n_layers"),
        max_length=reader.take("max_position_embeddings", 512),
        attention=AttentionConfig(reader.take("n_heads"), dropout=reader.take("attention_dropout", 0.1)),
        position=PositionConfig("learned"),
        norm=NormConfig("layer", "post", epsilon=EPSILON, embedding=True),
        feed_forward=FeedForwardConfig(reader.take("hidden_dim"), reader.take_activation("activation", "gelu")),
        dropout=reader.take("dropout", 0.1),
        initializer_range=reader.take("initializer_range", 0.02),
    )


def write(config: TransformerConfig) -> dict[str, Any]:
    """Returns the configuration of the Transformers library."""
    return {
        "vocab_size": config.vocabulary_size,
        "dim": config.hidden_dim,
        "n_layers": config.num_layers,
        "n_heads": config.attention.num_heads,
        "hidden_dim": config.feed_forward.intermediate_dim,
        "activation": ACTIVATION_NAMES[config.feed_forward.activation],
        "dropout": config.dropout,
        "attention_dropout": config.attention.dropout,
        "max_position_embeddings": config.max_length,
        "initializer_range": config.initializer_range or 0.02,
    }


register_family(
    Family(
        "distilbert",
        read,
        write,
        TABLE,
        architecture="DistilBertModel",
        prefix="distilbert.",
        heads={
            "MaskedLM": Head(
                "DistilBertForMaskedLM",
                {"dense": "vocab_transform", "norm": "vocab_layer_norm", "output_bias": "vocab_projector"},
                lambda reader: {
                    "head": "transform",
                    "head_activation": reader.take_activation("activation", "gelu"),
                    "head_bias": True,
                },
            ),
            "TextClassifier": Head(
                "DistilBertForSequenceClassification",
                {"dense": "pre_classifier", "projection": "classifier"},
                lambda reader: {
                    "pooling": "first",
                    "hidden_activation": "relu",
                    "inner_bias": True,
                    "inner_norm": False,
                    "head_dropout": reader.take("seq_classif_dropout", 0.2),
                    "head_dropout_before": 0.0,
                    **labels_and_problem(reader),
                },
                lambda options: {**write_labels(options), "seq_classif_dropout": options["head_dropout"]},
            ),
            "TokenClassifier": Head(
                "DistilBertForTokenClassification",
                {"projection": "classifier"},
                lambda reader: {
                    "hidden_activation": None,
                    "head_dropout": reader.take("dropout", 0.1),
                    "labels": label_names(reader),
                },
                write_labels,
            ),
            "QuestionAnswerer": Head(
                "DistilBertForQuestionAnswering",
                {"projection": "qa_outputs"},
                lambda reader: {"hidden_activation": None, "head_dropout": reader.take("qa_dropout", 0.1)},
                lambda options: {"qa_dropout": options["head_dropout"]},
            ),
        },
        copies={"vocab_projector.weight": "embeddings.word_embeddings.weight"},
    )
)
