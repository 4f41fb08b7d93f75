"""RoFormer (model type "roformer"): ELECTRA's structure with pairs of neighbours that are rotated."""

import dataclasses
import re
from typing import Any

import numpy as np

from layers.positions.rotary_scaling import inverse_frequencies
from zoo.config import PositionConfig, TransformerConfig
from zoo.huggingface import bert, electra
from zoo.huggingface.config_reader import ConfigReader
from zoo.huggingface.family import Constant, Family, Head, register_family
from zoo.huggingface.labels import label_names, labels_and_problem, write_labels
from zoo.huggingface.span_heads import question_answerer

TABLE = {name: stored for name, stored in electra.TABLE.items() if name != "encoder.position"}

TABLE_OF_ANGLES = "encoder.embed_positions.weight"


def read(reader: ConfigReader) -> TransformerConfig:
    """Returns the configuration of a RoFormer."""
    reader.take_only("rotary_value", False)
    width = reader.take("hidden_size")
    size = reader.take_number("embedding_size", width)
    factor = {"factor_dim": size, "factor_bias": True, "factor_after_norm": True}
    config = bert.read(reader, embedding={} if size == width else factor)
    position = PositionConfig("rotary", layout="interleaved")
    return dataclasses.replace(config, max_length=reader.take("max_position_embeddings", 1536), position=position)


def write(config: TransformerConfig) -> dict[str, Any]:
    """Returns the configuration of the Transformers library."""
    # the library has an integer for padding, which changes no output
    return {**electra.write(config), "pad_token_id": 0}


def angles(config: TransformerConfig) -> tuple[Constant, ...]:
    """Returns the table of the sines and cosines of all rotations, `(max_length, head_dim)`."""
    angle = np.arange(config.max_length)[:, None] * inverse_frequencies(config.position.base, config.head_dim)
    table = np.concatenate([np.sin(angle), np.cos(angle)], axis=-1).astype("float32")
    return (Constant(re.escape(TABLE_OF_ANGLES), table, (TABLE_OF_ANGLES,)),)


def _head_dropout(reader: ConfigReader) -> float:
    return reader.take("hidden_dropout_prob", 0.1)


def _text_classifier(reader: ConfigReader) -> dict[str, Any]:
    return {
        "pooling": "first",
        "hidden_activation": reader.take_activation("hidden_act", "gelu"),
        "inner_bias": True,
        "inner_norm": False,
        "head_dropout": _head_dropout(reader),
        **labels_and_problem(reader),
    }


register_family(
    Family(
        "roformer",
        read,
        write,
        TABLE,
        architecture="RoFormerModel",
        prefix="roformer.",
        heads={
            "MaskedLM": dataclasses.replace(bert.MASKED_LM, architecture="RoFormerForMaskedLM", others=()),
            "TextClassifier": Head(
                "RoFormerForSequenceClassification",
                {"dense": "classifier.dense", "projection": "classifier.out_proj"},
                _text_classifier,
                write_labels,
            ),
            "TokenClassifier": Head(
                "RoFormerForTokenClassification",
                {"projection": "classifier"},
                lambda reader: {
                    "hidden_activation": None,
                    "labels": label_names(reader),
                    "head_dropout": _head_dropout(reader),
                },
                write_labels,
            ),
            "QuestionAnswerer": question_answerer("RoFormerForQuestionAnswering"),
        },
        needs_segments=True,
        constants=angles,
        copies=bert.COPIES,
    )
)
