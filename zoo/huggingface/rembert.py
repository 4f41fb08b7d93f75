"""RemBERT (model type "rembert"): a BERT with a narrow table of embeddings, and a wide one of its own for outputs."""

import dataclasses
from typing import Any

from zoo.config import TransformerConfig
from zoo.config.checks import require
from zoo.huggingface import bert
from zoo.huggingface.config_reader import ConfigReader
from zoo.huggingface.family import Family, Head, register_family
from zoo.huggingface.labels import label_names, labels_and_problem, write_labels
from zoo.huggingface.span_heads import question_answerer

OUTPUT = "cls.predictions.decoder"
TABLE = bert.TABLE | {
    "token_factor": "encoder.embedding_hidden_mapping_in",
    "output_projection": OUTPUT,
}


def read(reader: ConfigReader) -> TransformerConfig:
    """Returns the configuration of a RemBERT."""
    reader.take_only("tie_word_embeddings", False)
    reader.skip("classifier_dropout_prob")  # of heads
    size, output_dim = reader.take("input_embedding_size", 256), reader.take("output_embedding_size", 1664)
    has_output = reader.has_layer(f"{OUTPUT}.weight", "RemBertForMaskedLM")
    config = bert.read(
        reader,
        embedding={
            "factor_dim": size,
            "factor_bias": True,
            "factor_after_norm": True,
            "tie_output": not has_output,
            "output_dim": output_dim if has_output else None,
        },
    )
    pooler = reader.has_layer("pooler.dense.weight", "RemBertModel", "RemBertForSequenceClassification")
    # the library drops nothing here where a file names no rates
    attention = dataclasses.replace(config.attention, dropout=reader.take("attention_probs_dropout_prob", 0.0))
    dropout = reader.take("hidden_dropout_prob", 0.0)
    return dataclasses.replace(config, attention=attention, dropout=dropout, pooler=pooler)


def write(config: TransformerConfig) -> dict[str, Any]:
    """Returns the configuration of the Transformers library."""
    values = {
        **bert.write(config),
        "input_embedding_size": config.embedding.factor_dim,
        "tie_word_embeddings": False,
        "pad_token_id": 0,  # an integer there, which changes no output
    }
    # of a model without a table for outputs nothing depends on its width
    return values if config.embedding.tie_output else {**values, "output_embedding_size": config.output_dim}


def _masked_lm(reader: ConfigReader) -> dict[str, Any]:
    name = f"{OUTPUT}.weight"
    if reader.tensors:
        allowed = "that of a file with these weights: published files for fine-tuning have no table for outputs"
        require(name in reader.tensors, name, "nothing", allowed)
    return {
        "head": "transform",
        "head_activation": reader.take_activation("hidden_act", "gelu"),
        "head_bias": True,
    }


def _head_dropout(reader: ConfigReader) -> float:
    return reader.take("classifier_dropout_prob", 0.1)


def _write_classifier(options: dict[str, Any]) -> dict[str, Any]:
    return {**write_labels(options), "classifier_dropout_prob": options["head_dropout"]}


register_family(
    Family(
        "rembert",
        read,
        write,
        TABLE,
        architecture="RemBertModel",
        prefix="rembert.",
        outside=(OUTPUT,),
        heads={
            "MaskedLM": Head(
                "RemBertForMaskedLM",
                {
                    "dense": "cls.predictions.dense",
                    "norm": "cls.predictions.LayerNorm",
                    "output_bias": OUTPUT,
                },
                _masked_lm,
            ),
            "TextClassifier": Head(
                "RemBertForSequenceClassification",
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
                "RemBertForTokenClassification",
                {"projection": "classifier"},
                lambda reader: {
                    "hidden_activation": None,
                    "labels": label_names(reader),
                    "head_dropout": _head_dropout(reader),
                },
                _write_classifier,
            ),
            "QuestionAnswerer": question_answerer("RemBertForQuestionAnswering"),
        },
        needs_segments=True,
        ignored=(r"embeddings\.position_ids",),
    )
)
