"""What models of each kind make of test data: of runs after training, and of any model by `recipes.evaluate`."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import zoo
from recipes.common.data.labelled_text import LabelledText, columns_of, unknown_labels
from recipes.common.data.questions import Question
from recipes.common.errors import DataError, errors_of, shown
from recipes.common.evaluation.answer_metrics import answer_metrics
from recipes.common.evaluation.evaluation import Evaluation, results_of
from recipes.common.evaluation.label_metrics import label_metrics, span_metrics, tag_metrics
from recipes.common.training.windowed import count_cut, count_cut_questions, count_unseen_words


def evaluate_labels(task: zoo.TextClassifier, examples: Sequence[LabelledText], part: str = "data") -> Evaluation:
    """Returns accuracy and F1 of a classifier, or error and correlation of one that predicts numbers.

    Args:
        task: The model.
        examples: The examples.
        part: The part of the data, for what is printed.

    Returns:
        The evaluation; its predictions are probabilities, or values, `(examples, labels)`.

    Raises:
        DataError: If the model knows none of the labels.
    """
    problem = task.preprocessor.problem
    texts, truth = columns_of(examples)
    unknown = {}
    if problem != "regression":
        rows = [(labels_of(each), each.origin) for each in examples]
        unknown = unknown_labels(task.labels.strings, rows, "label")
    with errors_of("data"):
        values = task.predict(texts)
    predicted = task.preprocessor.labels_of(values, task.threshold)
    predicted = list(map(float, predicted)) if problem == "regression" else as_strings(predicted)
    return Evaluation(
        rows_of(examples),
        predicted,
        {"examples": len(truth), "examples_cut": count_cut(part, task.preprocessor, texts)},
        label_metrics(truth, predicted, problem),
        unknown,
        predictions=values,
    )


def labels_of(example: LabelledText) -> list[str]:
    """Returns the labels of an example, which may have one alone."""
    return example.label if isinstance(example.label, list) else [example.label]


def rows_of(examples: Sequence[LabelledText]) -> list[dict[str, Any]]:
    """Returns examples as the rows of an evaluation."""
    return [
        {"text": each.texts[0] if len(each.texts) == 1 else list(each.texts), "reference": each.label}
        for each in examples
    ]


def evaluate_tags(task: zoo.TokenClassifier, sentences: Sequence[Any], part: str = "data") -> Evaluation:
    """Returns accuracy and the F1 of entities of a tagger.

    Args:
        task: The model.
        sentences: What `read_tagged` returns.
        part: The part of the data, for what is printed.

    Returns:
        The evaluation; its predictions are the probabilities of each sentence, `(words, labels)`.

    Raises:
        DataError: If the model knows none of the tags.
    """
    words, truth = [list(each.words) for each in sentences], [list(each.tags) for each in sentences]
    unknown = unknown_labels(task.labels.strings, [(each.tags, each.origin) for each in sentences], "tag")
    with errors_of("data"):
        values = task.predict(words)
    predicted = as_strings(task.preprocessor.labels_of(values))
    return Evaluation(
        [{"words": some, "reference": tags} for some, tags in zip(words, truth, strict=True)],
        predicted,
        {"sentences": len(words), "words_unseen": count_unseen_words(part, task.preprocessor, words)},
        tag_metrics(truth, predicted),
        unknown,
        predictions=values,
    )


def evaluate_spans(task: zoo.TokenClassifier, rows: Sequence[Any], part: str = "data") -> Evaluation:
    """Returns precision, recall and F1 of the spans that a tagger finds in raw texts.

    Args:
        task: The model.
        rows: What `read_spanned` returns.
        part: The part of the data, for what is printed.

    Returns:
        The evaluation; its predictions are the probabilities of each text, `(words, labels)`.

    Raises:
        DataError: If the labels of the model mark no spans.
    """
    if not zoo.tasks.entities.are_tags(task.labels.names):
        raise DataError(f"data have spans, the model has labels that are no tags: {shown(task.labels.strings, 200)}")
    texts, truth = [row.text for row in rows], [row.spans for row in rows]
    with errors_of("data"):
        values = task.predict(texts)
    found = task.preprocessor.entities(texts, values)
    metrics, by_label = span_metrics(truth, found)
    return Evaluation(
        [{"text": text, "reference": spans} for text, spans in zip(texts, truth, strict=True)],
        [[{"start": each.start, "end": each.end, "label": each.label} for each in row] for row in found],
        {"texts": len(rows), "words_unseen": count_unseen_words(part, task.preprocessor, texts)},
        metrics,
        {"span_f1_by_label": results_of(by_label)},
        predictions=values,
    )


def evaluate_answers(
    task: zoo.QuestionAnswerer, questions: Sequence[Question], language: str = "en", part: str = "data", top_k: int = 1
) -> Evaluation:
    """Returns exact match and F1 of answers as SQuAD computes them, in percent.

    Args:
        task: The model.
        questions: The questions, some perhaps without an answer.
        language: See `normalized`.
        part: The part of the data, for what is printed.
        top_k: Number of answers to each question among the predictions.

    Returns:
        The evaluation; its predictions are the best answers to each question.
    """
    asked, contexts = [row.question for row in questions], [row.context for row in questions]
    truth = [[text for text, _ in row.answers] for row in questions]
    with errors_of("data"):
        found = task.answer(asked, contexts, top_k=top_k)
    outputs = [answers[0].text for answers in found]
    columns = zip(asked, contexts, truth, strict=True)
    return Evaluation(
        [{"question": question, "context": context, "reference": right} for question, context, right in columns],
        outputs,
        {"questions": len(asked), "questions_cut": count_cut_questions(part, task.preprocessor, asked)},
        answer_metrics(outputs, truth, language),
        predictions=found,
    )


def as_strings(labels: Sequence[Any]) -> list[Any]:
    """Returns the labels of rows, which may be numbers, as files hold them.

    Args:
        labels: Of each row a label, or a list of labels.

    Example:

    >>> as_strings([1, [0, 1]])
    ['1', ['0', '1']]
    """
    return [as_strings(label) if isinstance(label, list) else str(label) for label in labels]
