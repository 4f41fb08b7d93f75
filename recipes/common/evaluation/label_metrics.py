"""Metrics of predicted labels, values, tags and spans; a linear baseline."""

from __future__ import annotations

import functools
from collections.abc import Sequence
from typing import Any

import numpy as np

import zoo
from recipes.common.data.spanned_text import Span, span_keys
from recipes.common.evaluation.evaluation import Metric, correlation_of, f1_of, mean_of, results_of
from recipes.common.words import terms_of


def label_metrics(truth: Sequence[Any], predicted: Sequence[Any], problem: str) -> dict[str, Metric]:
    """Returns the metrics of a classification or regression.

    Args:
        truth: Right labels, lists of labels, or values.
        predicted: Predicted ones.
        problem: "single_label" (accuracy, macro F1), "multi_label" (micro and macro F1, exact match) or "regression"
            (mean absolute error, Pearson and Spearman correlation).

    Example:

    >>> label_metrics(["a", "b"], ["a", "a"], "single_label")["accuracy"].value
    0.5

    Reference:
        F1 as in scikit-learn with `zero_division=0`, of the labels that occur.
    """
    if problem == "regression":
        errors = np.abs(np.subtract(truth, predicted, dtype="float64"))
        return {
            "mean_absolute_error": mean_of(errors),
            "pearson": correlation_of(truth, predicted),
            "spearman": correlation_of(truth, predicted, ranks=True),
        }
    several = problem == "multi_label"
    right, found = ([set(each) if several else {each} for each in labels] for labels in (truth, predicted))
    names = sorted(set().union(*right, *found))
    relevant, positive = (
        np.array([[name in each for name in names] for each in sets], bool) for sets in (right, found)
    )
    counts = (relevant & positive, positive, relevant)
    same = mean_of([one == other for one, other in zip(right, found, strict=True)])
    if not several:
        return {"accuracy": same, "macro_f1": f1_of(*counts, macro=True)}
    return {"micro_f1": f1_of(*counts), "macro_f1": f1_of(*counts, macro=True), "exact_match": same}


def tag_metrics(truth: Sequence[Sequence[str]], predicted: Sequence[Sequence[str]]) -> dict[str, Metric]:
    """Returns the share of right tags, and where they mark entities the precision, recall and F1 of whole ones.

    Such tags are those of BIO, BIOES and BILOU.

    Args:
        truth: Right tags of each sentence.
        predicted: Predicted ones.

    Reference:
        Tjong Kim Sang and De Meulder (2003), "Introduction to the CoNLL-2003 Shared Task", section 2: an entity is
        right if its kind and both of its ends are.

    Example:

    >>> tag_metrics([["B-PER", "O"]], [["B-PER", "O"]])["entity_f1"].value
    1.0
    """
    hits = [sum(map(str.__eq__, *row)) for row in zip(truth, predicted, strict=True)]
    metrics = {"accuracy": mean_of(hits, [len(tags) for tags in truth])}
    if zoo.tasks.entities.are_tags([tag for tags in truth for tag in tags]):
        metrics |= _of_sets("entity", [list(map(entities_of, tags)) for tags in (truth, predicted)])
    return metrics


def span_metrics(
    truth: Sequence[Sequence[Span]], predicted: Sequence[Sequence[zoo.preprocessing.Entity]]
) -> tuple[dict[str, Metric], dict[str, Metric]]:
    """Returns precision, recall and F1 of spans whose label and both ends are right; and the F1 of each label.

    Args:
        truth: Right spans of each text.
        predicted: Predicted ones.

    Example:

    >>> span_metrics([[{"start": 0, "end": 3, "label": "PER"}]], [[]])[0]["span_f1"].value
    0.0

    Reference:
        Tjong Kim Sang and De Meulder 2003 (CoNLL), section 3, on characters in place of words.
    """
    sides = [list(map(span_keys, spans)) for spans in (truth, predicted)]
    labels = sorted({label for side in sides for spans in side for *_, label in spans})
    by_label = {
        label: _of_sets("span", [[{span for span in spans if span[2] == label} for spans in side] for side in sides])
        for label in labels
    }
    return _of_sets("span", sides), {label: metrics["span_f1"] for label, metrics in by_label.items()}


def _of_sets(what: str, sides: Sequence[Sequence[set]]) -> dict[str, Metric]:
    """Precision, recall and F1 of what is right and what was found in each row."""
    counts = np.array([[len(right & found), len(found), len(right)] for right, found in zip(*sides, strict=True)])
    hits, found, right = counts.T
    return {
        f"{what}_precision": mean_of(hits, found),
        f"{what}_recall": mean_of(hits, right),
        f"{what}_f1": f1_of(hits[:, None], found[:, None], right[:, None]),
    }


def entities_of(tags: Sequence[str]) -> set[tuple[str, int, int]]:
    """Returns the entities of a sentence: kind, first and last word.

    A predicted tag that marks no entity counts as outside.

    Args:
        tags: Tags of BIO, BIOES or BILOU, see `zoo.preprocessing.decode_tags`.

    Example:

    >>> entities_of(["B-PER", "I-PER", "O"])
    {('PER', 0, 1)}
    """
    known = [tag if zoo.preprocessing.tags.is_tag(tag) else "O" for tag in tags]
    return {(kind, first, end - 1) for kind, first, end in zoo.preprocessing.decode_tags(known)}


def linear_baseline(
    texts: Any, labels: Sequence[Any], test_texts: Any, test_labels: Sequence[Any], problem: str = "single_label"
) -> dict[str, Any]:
    """Returns the scores of a linear model on TF-IDF of words and word pairs (see `recipes.common.words.terms_of`).

    That is logistic regression, for several labels one for each, and ridge regression for numbers.

    Args:
        texts: Training texts, or two lists of texts, which are joined.
        labels: Their labels.
        test_texts, test_labels: What is scored.
        problem: As for `label_metrics`.

    Reference:
        scikit-learn; `C=10`, `alpha=1`.

    Example:

    >>> linear_baseline(["good", "bad"] * 9, ["+", "-"] * 9, ["good"], ["+"])["accuracy"]
    1.0
    """
    from sklearn.feature_extraction.text import TfidfVectorizer
    from sklearn.linear_model import LogisticRegression, Ridge
    from sklearn.multiclass import OneVsRestClassifier
    from sklearn.pipeline import make_pipeline
    from sklearn.preprocessing import MultiLabelBinarizer

    def joined(columns: Any) -> list[str]:
        return [" ".join(row) for row in zip(*columns, strict=True)] if isinstance(columns, tuple) else columns

    vectorizer = TfidfVectorizer(analyzer=functools.partial(terms_of, length=2), sublinear_tf=True)
    linear = LogisticRegression(max_iter=1000, C=10.0)
    encoder = MultiLabelBinarizer()
    if problem == "multi_label":
        linear, labels = OneVsRestClassifier(linear), encoder.fit_transform(labels)
    elif problem == "regression":
        linear = Ridge()
    model = make_pipeline(vectorizer, linear).fit(joined(texts), labels)
    predicted = model.predict(joined(test_texts))
    if problem == "multi_label":
        # a single label comes as one vector
        predicted = encoder.inverse_transform(np.reshape(predicted, (len(predicted), -1)))
    return results_of(label_metrics(test_labels, list(predicted), problem))
