"""Weights of labels in the loss, for data in which some are rare."""

from __future__ import annotations

import dataclasses
from collections import Counter
from collections.abc import Iterable, Mapping
from typing import Literal

import numpy as np

import zoo
from recipes.common.config import setting
from recipes.common.errors import errors_of
from recipes.common.training.encoder_recipe import EncoderTrainingConfig


@dataclasses.dataclass(frozen=True)
class LabelTrainingConfig(EncoderTrainingConfig):
    """How the model is trained."""

    class_weights: dict[str, float] | Literal["balanced"] | None = setting(
        None,
        "Weights of labels in the loss, for example {rare: 5}; other labels have 1. balanced: rarer labels have larger "
        "weights.",
    )


def class_weights(
    given: Mapping[str, float] | str | None,
    labels: zoo.preprocessing.labels.Labels,
    found: Iterable[str],
    rows: int | None = None,
) -> np.ndarray | None:
    """Returns the weight of each label in the loss, float32 `(labels,)`; None for none.

    Args:
        given: The key `training.class_weights`. "balanced" makes the weights of all labels in the data add up to the
            same, or where each label holds or not, of a label the weight of rows with it to that of rows without it.
        labels: The labels.
        found: Those in the training data, one for each text or word, or for all labels that texts have.
        rows: Number of texts, where each label holds or not: weights are of those that hold.

    Raises:
        ConfigError: If a weight is of no label, or no number of at least 0.

    Example:

    >>> class_weights("balanced", Labels(["a", "b"]), ["a", "a", "a", "b"])
    array([0.6666667, 2.       ], dtype=float32)

    Reference:
        King and Zeng 2001, "Logistic Regression in Rare Events Data", section 4.2; `class_weight` of scikit-learn.
    """
    if given is None:
        return None
    if given != "balanced":
        with errors_of("training"):
            return labels.weights(given, "class_weights")
    by_name = Counter(found)
    counts = np.array([by_name[name] for name in labels.strings], "float32")
    if rows is not None:
        with_both = (counts > 0) & (counts < rows)
        return np.where(with_both, (rows - counts) / np.maximum(counts, 1), 1).astype("float32")
    share = counts.sum() / max(np.count_nonzero(counts), 1)
    return np.where(counts > 0, share / np.maximum(counts, 1), 1).astype("float32")


def print_weights(labels: zoo.preprocessing.labels.Labels, weights: np.ndarray) -> None:
    """Prints the weight of each label.

    Args:
        labels: The labels.
        weights: Their weights.
    """
    print("class weights:", ", ".join(f"{name} {weight:.3g}" for name, weight in zip(labels, weights, strict=True)))
