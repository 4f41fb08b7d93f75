"""Scores of predicted labels, values, tags and similarities, by well-kept libraries; a linear baseline."""

from __future__ import annotations

import functools
from collections import Counter
from collections.abc import Sequence
from typing import Any

import numpy as np

import zoo
from recipes.common.words import terms_of


def label_scores(truth: Sequence[Any], predicted: Sequence[Any], problem: str) -> dict[str, float | None]:
    """Returns the scores of a classification or regression.

    Args:
        truth: Right labels, lists of labels, or values.
        predicted: Predicted ones.
        problem: "single_label" (accuracy, macro F1), "multi_label" (micro and macro F1, exact match) or "regression"
            (mean absolute error, Pearson and Spearman correlation, None where all values are the same).

    Reference:
        scikit-learn and SciPy; F1 of several labels as scikit-learn with `zero_division=0`.

    Example:

    >>> label_scores(["a", "b"], ["a", "a"], "single_label")["accuracy"]
    0.5
    """
    from scipy import stats
    from sklearn import metrics

    if problem == "regression":
        right, given = np.asarray(truth, "float64"), np.asarray(predicted, "float64")
        # a correlation needs two different values on each side
        is_defined = np.ptp(right) > 0 and np.ptp(given) > 0
        return {
            "mean_absolute_error": _round(np.abs(right - given).mean()),
            "pearson": _round(stats.pearsonr(right, given).statistic) if is_defined else None,
            "spearman": _round(stats.spearmanr(right, given).statistic) if is_defined else None,
        }
    if problem == "multi_label":
        right, given = (list(map(set, labels)) for labels in (truth, predicted))
        same = np.mean([one == other for one, other in zip(right, given, strict=True)])
        # scikit-learn refuses rows without any label, and takes one label alone for two classes
        hits = Counter(name for one, other in zip(right, given, strict=True) for name in one & other)
        both = Counter(name for labels in (*right, *given) for name in labels)
        of_each = [2 * hits[name] / count for name, count in both.items()]
        return {
            "micro_f1": _round(2 * hits.total() / max(1, both.total())),
            "macro_f1": _round(np.mean(of_each) if of_each else 0.0),
            "exact_match": _round(same),
        }
    return {
        "accuracy": _round(metrics.accuracy_score(truth, predicted)),
        "macro_f1": _round(metrics.f1_score(truth, predicted, average="macro", zero_division=0)),
    }


def tag_scores(truth: Sequence[Sequence[str]], predicted: Sequence[Sequence[str]]) -> dict[str, float]:
    """Returns the share of right tags, and where they mark entities the precision, recall and F1 of whole ones.

    Such tags are those of BIO, BIOES and BILOU.

    Args:
        truth: Right tags of each sentence.
        predicted: Predicted ones.

    Reference:
        Tjong Kim Sang and De Meulder (2003), "Introduction to the CoNLL-2003 Shared Task", section 2: an entity is
        right if its kind and both of its ends are.

    Example:

    >>> tag_scores([["B-PER", "O"]], [["B-PER", "O"]])["entity_f1"]
    1.0
    """
    pairs = [pair for right, given in zip(truth, predicted, strict=True) for pair in zip(right, given, strict=True)]
    scores = {"accuracy": _round(np.mean([right == given for right, given in pairs]))}
    if zoo.tasks.entities.are_tags([tag for tag, _ in pairs]):
        found = [(entities_of(right), entities_of(given)) for right, given in zip(truth, predicted, strict=True)]
        hits = sum(len(right & given) for right, given in found)
        in_truth, in_predicted = (sum(map(len, side)) for side in zip(*found, strict=True))
        scores["entity_precision"] = _round(hits / max(1, in_predicted))
        scores["entity_recall"] = _round(hits / max(1, in_truth))
        scores["entity_f1"] = _round(2 * hits / max(1, in_truth + in_predicted))
    return scores


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
) -> dict[str, float]:
    """Returns the scores of a linear model on TF-IDF of words and word pairs (see `recipes.common.words.terms_of`).

    That is logistic regression, for several labels one for each, and ridge regression for numbers.

    Args:
        texts: Training texts, or two lists of texts, which are joined.
        labels: Their labels.
        test_texts, test_labels: What is scored.
        problem: As for `label_scores`.

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
    return label_scores(test_labels, list(predicted), problem)


def _round(value: Any) -> float:
    return round(float(value), 4)
