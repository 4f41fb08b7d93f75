"""Heads of decoders: the classification of texts by their last token, that of tokens, and question answering."""

from typing import Any

from zoo.huggingface.config_reader import ConfigReader
from zoo.huggingface.family import Head
from zoo.huggingface.labels import label_names, labels_and_problem, write_labels
from zoo.huggingface.span_heads import question_answerer


def decoder_heads(
    language_model: str,
    text_classifier: str | None = None,
    token_classifier: str | None = None,
    answerer: str | None = None,
    *,
    tokens: str = "score",
    answerer_prefix: str | None = None,
) -> dict[str, Head]:
    """Returns the heads of a family of decoders by the names of our tasks.

    Args:
        language_model: Name of its class for language models in the Transformers library.
        text_classifier: Name of that for sequence classification, whose linear map on the last token is `score`; None
            where there is none.
        token_classifier: Name of that for token classification; None where there is none.
        answerer: Name of that for question answering; None where there is none.
        tokens: Name of the linear map of the class for token classification.
        answerer_prefix: What the class for question answering puts before the names of the base model; None for what
            the others do.

    Example:

    >>> list(decoder_heads("LlamaForCausalLM", "LlamaForSequenceClassification"))
    ['CausalLM', 'TextClassifier']
    """
    heads = {"CausalLM": Head(language_model)}
    if text_classifier:
        heads["TextClassifier"] = Head(text_classifier, {"projection": "score"}, _text_classifier, write_labels)
    if token_classifier:
        heads["TokenClassifier"] = Head(
            token_classifier, {"projection": tokens}, _token_classifier, _write_token_classifier
        )
    if answerer:
        heads["QuestionAnswerer"] = question_answerer(answerer, answerer_prefix)
    return heads


def take_head_keys(reader: ConfigReader) -> None:
    """Takes the keys that the heads of decoders alone use."""
    reader.skip("classifier_dropout", "hidden_dropout", "token_classification_bias")


def has_output_bias(reader: ConfigReader, language_model: str) -> bool:
    """Returns whether a decoder of a family whose language models have biased logits has this bias.

    Its other classes have none, unless a file has the tensor in any case.

    Args:
        reader: The configuration.
        language_model: Name of the family's class for language models in the Transformers library.
    """
    given = reader.values.get("architectures")
    is_other = isinstance(given, list) and language_model not in given
    return "lm_head.bias" in reader.tensors or not (reader.tensors and is_other)


def _text_classifier(reader: ConfigReader) -> dict[str, Any]:
    return {
        "pooling": "last",
        "hidden_activation": None,
        "projection_bias": False,
        "head_dropout": 0.0,
        **labels_and_problem(reader),
    }


def _token_classifier(reader: ConfigReader) -> dict[str, Any]:
    return {
        "hidden_activation": None,
        "projection_bias": reader.take_number("token_classification_bias", True),
        "head_dropout": reader.take_number("classifier_dropout", reader.take_number("hidden_dropout", 0.1)),
        "labels": label_names(reader),
    }


def _write_token_classifier(options: dict[str, Any]) -> dict[str, Any]:
    values = {**write_labels(options), "classifier_dropout": options["head_dropout"]}
    # a key that most files do not have
    return values if options["projection_bias"] else {**values, "token_classification_bias": False}
