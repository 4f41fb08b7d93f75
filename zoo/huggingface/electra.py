"""ELECTRA (model type "electra"): the generator and the discriminator."""

from typing import Any

from zoo.config import TransformerConfig
from zoo.huggingface import bert
from zoo.huggingface.config_reader import ConfigReader
from zoo.huggingface.family import Family, Head, register_family
from zoo.huggingface.labels import labels_and_problem
from zoo.huggingface.span_heads import question_answerer

TABLE = {name: stored for name, stored in bert.TABLE.items() if name != "pooler"} | {
    "token_factor": "embeddings_project"
}


def read(reader: ConfigReader) -> TransformerConfig:
    """Returns the configuration of an ELECTRA."""
    size = reader.take("embedding_size", 128)
    factor = {"factor_dim": size, "factor_bias": True, "factor_after_norm": True}
    return bert.read(reader, embedding={} if size == reader.take("hidden_size") else factor)


def write(config: TransformerConfig) -> dict[str, Any]:
    """Returns the configuration of the Transformers library."""
    return {**bert.write(config), "embedding_size": config.embedding.factor_dim or config.hidden_dim}


def _masked_lm(reader: ConfigReader) -> dict[str, Any]:
    return {"head": "transform", "head_activation": "gelu", "head_bias": True}


def _text_classifier(reader: ConfigReader) -> dict[str, Any]:
    return {
        "pooling": "first",
        "hidden_activation": "gelu",
        "inner_bias": True,
        "inner_norm": False,
        "head_dropout": bert.head_dropout(reader),
        **labels_and_problem(reader),
    }


register_family(
    Family(
        "electra",
        read,
        write,
        TABLE,
        architecture="ElectraModel",
        prefix="electra.",
        heads={
            "MaskedLM": Head(
                "ElectraForMaskedLM",
                {
                    "dense": "generator_predictions.dense",
                    "norm": "generator_predictions.LayerNorm",
                    "output_bias": "generator_lm_head",
                },
                _masked_lm,
            ),
            "TextClassifier": Head(
                "ElectraForSequenceClassification",
                {"dense": "classifier.dense", "projection": "classifier.out_proj"},
                _text_classifier,
                bert.write_classifier,
            ),
            "TokenClassifier": bert.token_classifier("ElectraForTokenClassification"),
            "ReplacedTokenDetector": Head(
                "ElectraForPreTraining",
                {
                    "dense": "discriminator_predictions.dense",
                    "projection": "discriminator_predictions.dense_prediction",
                },
                lambda reader: {"hidden_activation": reader.take_activation("hidden_act", "gelu")},
            ),
            "QuestionAnswerer": question_answerer("ElectraForQuestionAnswering"),
        },
        needs_segments=True,
        ignored=(r"embeddings\.position_ids",),
        copies={"generator_lm_head.weight": "embeddings.word_embeddings.weight"},
    )
)
