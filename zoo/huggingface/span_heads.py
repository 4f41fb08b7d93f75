"""Heads for question answering, two numbers per token, and those of encoder-decoders."""

from typing import Any

from zoo.config.checks import require
from zoo.huggingface.config_keys import is_integer
from zoo.huggingface.config_reader import ConfigReader
from zoo.huggingface.family import Head
from zoo.huggingface.labels import labels_and_problem, write_labels


def question_answerer(architecture: str, prefix: str | None = None, **options: Any) -> Head:
    """Returns the head of a `QuestionAnswerer`: a linear map named `qa_outputs`, without dropout.

    Args:
        architecture: Name of the class in the Transformers library.
        prefix: See `Head`.
        **options: Further arguments of the task.

    Example:

    >>> question_answerer("BertForQuestionAnswering").table
    {'projection': 'qa_outputs'}
    """
    fixed = {"hidden_activation": None, **options}
    return Head(architecture, {"projection": "qa_outputs"}, lambda reader: fixed, prefix=prefix)


def encoder_decoder_heads(
    name: str, start: int | str, end: int, pair_separators: int = 1, classifier_prefix: str | None = None
) -> dict[str, Head]:
    """Returns the heads of encoder-decoders whose decoder is given the same tokens as the encoder, shifted.

    Args:
        name: What the names of the classes begin with.
        start: The token that is put before them where the configuration names none; "last" where it is always the last
            one of a row.
        end: The token that ends texts where the configuration names none.
        pair_separators: Number of end tokens between the texts of a pair.
        classifier_prefix: See `Head`, for the class that classifies texts.

    Example:

    >>> list(encoder_decoder_heads("Bart", start=2, end=2, pair_separators=2))
    ['TextClassifier', 'QuestionAnswerer']
    """

    def stacks(reader: ConfigReader) -> dict[str, Any]:
        first = start if start == "last" else reader.take_number("decoder_start_token_id", start)
        return {"decoder_start_id": first, "pair_separators": pair_separators}

    def classifier(reader: ConfigReader) -> dict[str, Any]:
        last = reader.take_number("eos_token_id", end)
        require(is_integer(last), "eos_token_id", last, "one id, for a model that classifies by the last end token")
        return {
            **stacks(reader),
            "pooling": "end",
            "end_id": last,
            "hidden_activation": "tanh",
            "inner_bias": True,
            "inner_norm": False,
            "head_dropout": reader.take_number("classifier_dropout", 0.0),
            **labels_and_problem(reader),
        }

    def write_stacks(options: dict[str, Any]) -> dict[str, Any]:
        first = options["decoder_start_id"]
        return {"decoder_start_token_id": None if first == "last" else first}

    def write_classifier(options: dict[str, Any]) -> dict[str, Any]:
        head = {"eos_token_id": options["end_id"], "classifier_dropout": options["head_dropout"]}
        return {**write_stacks(options), **head, **write_labels(options)}

    return {
        "TextClassifier": Head(
            f"{name}ForSequenceClassification",
            {"dense": "classification_head.dense", "projection": "classification_head.out_proj"},
            classifier,
            write_classifier,
            classifier_prefix,
        ),
        "QuestionAnswerer": Head(
            f"{name}ForQuestionAnswering",
            {"projection": "qa_outputs"},
            lambda reader: {"hidden_activation": None, **stacks(reader)},
            write_stacks,
        ),
    }
