"""Heads for question answering: two numbers per token."""

from typing import Any

from zoo.huggingface.family import Head


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
