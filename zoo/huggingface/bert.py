"""BERT, RoBERTa and its kin ("bert", "roberta", "xlm-roberta", "camembert", "data2vec-text")."""

from collections.abc import Mapping
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
from zoo.huggingface.family import Family, Head, register_family
from zoo.huggingface.labels import label_names, labels_and_problem, write_labels
from zoo.huggingface.span_heads import question_answerer

TABLE = {
    "token_embedding": "embeddings.word_embeddings",
    "segment_embedding": "embeddings.token_type_embeddings",
    "encoder.position": "embeddings.position_embeddings",
    "encoder.embedding_norm": "embeddings.LayerNorm",
    "encoder.{}.attention.query": "encoder.layer.{}.attention.self.query",
    "encoder.{}.attention.key": "encoder.layer.{}.attention.self.key",
    "encoder.{}.attention.value": "encoder.layer.{}.attention.self.value",
    "encoder.{}.attention.output": "encoder.layer.{}.attention.output.dense",
    "encoder.{}.attention_norm": "encoder.layer.{}.attention.output.LayerNorm",
    "encoder.{}.feed_forward.up": "encoder.layer.{}.intermediate.dense",
    "encoder.{}.feed_forward.down": "encoder.layer.{}.output.dense",
    "encoder.{}.feed_forward_norm": "encoder.layer.{}.output.LayerNorm",
    "pooler": "pooler.dense",
}


_WITH_POOLER = (
    *("BertModel", "BertForSequenceClassification", "BertForPreTraining", "BertForNextSentencePrediction"),
    *("RobertaModel", "XLMRobertaModel", "CamembertModel", "Data2VecTextModel"),
)


def read(
    reader: ConfigReader, position_offset: int = 0, embedding: Mapping[str, Any] | None = None
) -> TransformerConfig:
    """Returns the configuration of a BERT.

    Args:
        reader: The configuration.
        position_offset: How much further positions are looked up; where it is above 0, padding has none.
        embedding: Further arguments of `EmbeddingConfig`.
    """
    reader.take_only("is_decoder", False)
    reader.take_only("add_cross_attention", False)
    reader.take_only("position_embedding_type", "absolute")
    if (embedding or {}).get("tie_output", True):
        reader.take_tied()
    reader.skip("classifier_dropout")  # of heads
    positions = reader.take("max_position_embeddings", 512)
    require(
        positions > position_offset,
        "max_position_embeddings",
        positions,
        f"above {position_offset}, the number of the first position",
    )
    return TransformerConfig(
        "encoder",
        reader.take("vocab_size"),
        hidden_dim=reader.take("hidden_size"),
        num_layers=reader.take("num_hidden_layers"),
        max_length=positions - position_offset,
        attention=AttentionConfig(
            reader.take("num_attention_heads"), dropout=reader.take("attention_probs_dropout_prob", 0.1)
        ),
        position=PositionConfig("learned", offset=position_offset, skips_padding=position_offset > 0),
        norm=NormConfig("layer", "post", epsilon=reader.take("layer_norm_eps", 1e-12), embedding=True),
        feed_forward=FeedForwardConfig(reader.take("intermediate_size"), reader.take_activation("hidden_act", "gelu")),
        embedding=EmbeddingConfig(num_segments=reader.take("type_vocab_size", 2), **(embedding or {})),
        dropout=reader.take("hidden_dropout_prob", 0.1),
        # only classes that need it have one
        pooler=reader.has_layer("pooler.dense.weight", *_WITH_POOLER),
        initializer_range=reader.take("initializer_range", 0.02),
    )


def write(config: TransformerConfig) -> dict[str, Any]:
    """Returns the configuration of the Transformers library."""
    return {
        "vocab_size": config.vocabulary_size,
        "hidden_size": config.hidden_dim,
        "num_hidden_layers": config.num_layers,
        "num_attention_heads": config.attention.num_heads,
        "intermediate_size": config.feed_forward.intermediate_dim,
        "hidden_act": ACTIVATION_NAMES[config.feed_forward.activation],
        "hidden_dropout_prob": config.dropout,
        "attention_probs_dropout_prob": config.attention.dropout,
        "max_position_embeddings": config.max_length + config.position.offset,
        "type_vocab_size": config.embedding.num_segments or 1,
        "layer_norm_eps": config.norm.epsilon,
        "initializer_range": config.initializer_range or 0.02,
    }


def head_dropout(reader: ConfigReader) -> float:
    """Returns the dropout of the head of a classifier."""
    return reader.take_number("classifier_dropout", reader.take("hidden_dropout_prob", 0.1))


def write_classifier(options: dict[str, Any]) -> dict[str, Any]:
    """Returns keys for the head of a classifier."""
    return {**write_labels(options), "classifier_dropout": options["head_dropout"]}


def token_classifier(architecture: str) -> Head:
    """Returns the head of a `TokenClassifier`."""
    return Head(
        architecture,
        {"projection": "classifier"},
        lambda reader: {
            "hidden_activation": None,
            "labels": label_names(reader),
            "head_dropout": head_dropout(reader),
        },
        write_classifier,
    )


MASKED_LM = Head(
    "BertForMaskedLM",
    {
        "dense": "cls.predictions.transform.dense",
        "norm": "cls.predictions.transform.LayerNorm",
        "output_bias": "cls.predictions",
    },
    lambda reader: {
        "head": "transform",
        "head_activation": reader.take_activation("hidden_act", "gelu"),
        "head_bias": True,
    },
    others=("BertForPreTraining",),
)
COPIES = {
    "cls.predictions.decoder.weight": "embeddings.word_embeddings.weight",
    "cls.predictions.decoder.bias": "cls.predictions.bias",
}


register_family(
    Family(
        "bert",
        read,
        write,
        TABLE,
        architecture="BertModel",
        prefix="bert.",
        heads={
            "MaskedLM": MASKED_LM,
            "TextClassifier": Head(
                "BertForSequenceClassification",
                {"projection": "classifier"},
                lambda reader: {
                    "pooling": "pooler",
                    "hidden_activation": None,
                    "head_dropout": head_dropout(reader),
                    **labels_and_problem(reader),
                },
                write_classifier,
            ),
            "TokenClassifier": token_classifier("BertForTokenClassification"),
            "QuestionAnswerer": question_answerer("BertForQuestionAnswering"),
        },
        needs_segments=True,
        ignored=(r"embeddings\.position_ids",),
        copies=COPIES,
    )
)


def read_roberta(reader: ConfigReader) -> TransformerConfig:
    """Returns the configuration of a RoBERTa: its first position comes after that of the padding token."""
    padding = reader.take("pad_token_id", 1)
    return read(reader, position_offset=padding + 1)


def write_roberta(config: TransformerConfig) -> dict[str, Any]:
    """Returns the configuration of the Transformers library."""
    return {**write(config), "pad_token_id": config.position.offset - 1}


def _register_roberta(model_type: str, name: str, prefix: str = "roberta.") -> None:
    """Adds one of these families; classes of the Transformers library begin with `name`."""
    register_family(
        Family(
            model_type,
            read_roberta,
            write_roberta,
            TABLE,
            architecture=f"{name}Model",
            prefix=prefix,
            heads={
                "MaskedLM": Head(
                    f"{name}ForMaskedLM",
                    {"dense": "lm_head.dense", "norm": "lm_head.layer_norm", "output_bias": "lm_head"},
                    lambda reader: {"head": "transform", "head_activation": "gelu", "head_bias": True},
                ),
                "TextClassifier": Head(
                    f"{name}ForSequenceClassification",
                    {"dense": "classifier.dense", "projection": "classifier.out_proj"},
                    lambda reader: {
                        "pooling": "first",
                        "hidden_activation": "tanh",
                        "pair_separators": 2,
                        "inner_bias": True,
                        "inner_norm": False,
                        "head_dropout": head_dropout(reader),
                        **labels_and_problem(reader),
                    },
                    write_classifier,
                ),
                "TokenClassifier": token_classifier(f"{name}ForTokenClassification"),
                "QuestionAnswerer": question_answerer(f"{name}ForQuestionAnswering", pair_separators=2),
            },
            needs_segments=True,
            ignored=(r"embeddings\.position_ids",),
            copies={
                "lm_head.decoder.weight": "embeddings.word_embeddings.weight",
                "lm_head.decoder.bias": "lm_head.bias",
            },
        )
    )


_register_roberta("roberta", "Roberta")
_register_roberta("xlm-roberta", "XLMRoberta")
_register_roberta("camembert", "Camembert")
_register_roberta("data2vec-text", "Data2VecText", "data2vec_text.")
