"""What a model makes of data, beside what is right, and the metrics of it: one definition for values and intervals."""

from __future__ import annotations

import dataclasses
import hashlib
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np


@dataclasses.dataclass(frozen=True)
class Metric:
    """A score as a function of how often each row counts: its value, its intervals and its tests are of one formula.

    Args:
        function: Takes how often each row counts, `(resamples, rows)`, and returns the score of each resample,
            `(resamples,)`; NaN where it is not defined.
        rows: Number of rows.
        digits: Decimals of the value in results: 4 for fractions and likelihoods in nats, 2 for percent.
        signature: How it was computed, which stands beside the value in results; None for nothing.

    Example:

    >>> mean_of([0, 1, 1, 1]).value
    0.75
    """

    function: Callable[[np.ndarray], np.ndarray]
    rows: int
    digits: int = 4
    signature: str | None = None

    def __call__(self, counts: np.ndarray) -> np.ndarray:
        return self.function(counts)

    @property
    def value(self) -> float:
        """The score of the rows as they are; NaN where it is not defined."""
        return float(self(np.ones((1, self.rows)))[0])

    @property
    def result(self) -> Any:
        """The value as it stands in results, rounded; None where it is not defined."""
        value = self.value
        rounded = None if np.isnan(value) else round(value, self.digits)
        return rounded if self.signature is None else {"value": rounded, "signature": self.signature}


def mean_of(values: Sequence[float], weights: Sequence[float] | None = None, digits: int = 4) -> Metric:
    """Returns the weighted mean as a metric: accuracy, likelihood per token, share of right tags.

    Args:
        values: One for each row; with weights the sum of the row.
        weights: How much each row holds, for example its tokens; None for 1.
        digits: See `Metric`.
    """
    sums = np.stack([np.asarray(values, "float64"), np.ones(len(values)) if weights is None else weights], axis=1)

    def mean(counts: np.ndarray) -> np.ndarray:
        totals = counts @ sums
        return totals[:, 0] / np.maximum(totals[:, 1], 1e-12)

    return Metric(mean, len(sums), digits)


def f1_of(true_positives: np.ndarray, positives: np.ndarray, relevant: np.ndarray, macro: bool = False) -> Metric:
    """Returns F1 as a metric.

    Args:
        true_positives: Found and right, of each row and class, `(rows, classes)`.
        positives: Found, likewise.
        relevant: Right, likewise.
        macro: Whether to take the mean of the F1 of each class (of those that occur), and not that of all together.
    """
    parts = [np.asarray(part, "float64") for part in (true_positives, positives, relevant)]

    def f1(counts: np.ndarray) -> np.ndarray:
        hits, found, right = (counts @ part for part in parts)
        if not macro:
            hits, found, right = (part.sum(axis=1, keepdims=True) for part in (hits, found, right))
        occurs = found + right > 0
        each = 2 * hits / np.where(occurs, found + right, 1)
        return each.sum(axis=1) / np.maximum(occurs.sum(axis=1), 1)

    return Metric(f1, len(parts[0]))


def correlation_of(truth: Sequence[float], predicted: Sequence[float], ranks: bool = False) -> Metric:
    """Returns a correlation as a metric, which needs two different values on each side.

    Args:
        truth: Right values.
        predicted: Predicted values.
        ranks: Whether it is Spearman's, of the ranks, and not Pearson's.
    """
    from scipy import stats

    values = np.stack([np.asarray(truth, "float64"), np.asarray(predicted, "float64")])

    def correlation(row: np.ndarray) -> float:
        chosen = np.repeat(values, row.astype("int64"), axis=1)
        chosen = stats.rankdata(chosen, axis=1) if ranks else chosen
        return float(np.corrcoef(chosen)[0, 1]) if np.ptp(chosen, axis=1).all() else np.nan

    return Metric(lambda counts: np.array([correlation(row) for row in counts]), values.shape[1])


def results_of(metrics: Mapping[str, Metric]) -> dict[str, Any]:
    """Returns the values of metrics as they stand in results.

    Args:
        metrics: The metrics by name.

    Example:

    >>> results_of({"accuracy": mean_of([0, 1, 1])})
    {'accuracy': 0.6667}
    """
    return {name: metric.result for name, metric in metrics.items()}


@dataclasses.dataclass(frozen=True)
class Evaluation:
    """What one model makes of rows of data. A run and `recipes.evaluate` get theirs from the same functions.

    Args:
        rows: Each row of the data, without what the model makes of it: names to plain values.
        outputs: What it makes of each row, a plain value.
        counts: How many rows there are, how many of them are cut, and so on, by name.
        metrics: By name the scores that are functions of how often each row counts.
        others: Further results by name: scores without rows of their own, signatures.
        guessed: By name of a metric what tells its tokens from those of another model, where it counts tokens.
        predictions: What the model itself gave, of which error lists and pictures are made: probabilities, answers with
            their scores, documents that were found.
    """

    rows: list[dict[str, Any]]
    outputs: list[Any]
    counts: Mapping[str, Any] = dataclasses.field(default_factory=dict)
    metrics: Mapping[str, Metric] = dataclasses.field(default_factory=dict)
    others: Mapping[str, Any] = dataclasses.field(default_factory=dict)
    guessed: Mapping[str, str] = dataclasses.field(default_factory=dict)
    predictions: Any = None

    @property
    def values(self) -> dict[str, Any]:
        """The scores, as they stand in results."""
        return {**results_of(self.metrics), **self.others}

    @property
    def scores(self) -> dict[str, Any]:
        """Counts and scores."""
        return {**self.counts, **self.values}

    def results(self, part: str = "test") -> dict[str, Any]:
        """Returns counts and scores as a run reports them.

        Args:
            part: The part of the data, which begins the names of the counts.
        """
        return {**{f"{part}_{name}": count for name, count in self.counts.items()}, **self.values}

    @property
    def fingerprint(self) -> str:
        """Tells whether models were given the same rows."""
        return hashlib.sha256(ascii(self.rows).encode()).hexdigest()
