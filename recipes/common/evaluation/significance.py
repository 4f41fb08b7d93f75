"""Which differences are noise: paired tests over seeds and over test rows, intervals, correction for several tests."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import NamedTuple

import numpy as np

# resamples that are weighed at once
_AT_ONCE = 64

# a score of each resample: takes how often each row counts, `(resamples, rows)`, returns `(resamples,)`
Measure = Callable[[np.ndarray], np.ndarray]


class Difference(NamedTuple):
    """A difference between two means or scores, its 95 % interval, and the p value that there is none (two-sided).

    Interval and p value are None where they cannot be told.
    """

    value: float
    interval: tuple[float, float] | None
    p: float | None


def mean_interval(values: Sequence[float]) -> tuple[float, float] | None:
    """Returns the 95 % interval of the mean of a normal population by Student's t; None for fewer than two values.

    Args:
        values: A sample, for example the scores of several seeds.

    Reference:
        Student 1908, "The Probable Error of a Mean".

    Example:

    >>> mean_interval([1.0, 3.0])
    (-10.706204736432095, 14.706204736432095)
    """
    from scipy import stats

    if len(values) < 2:
        return None
    half = stats.t.ppf(0.975, len(values) - 1) * np.std(values, ddof=1) / np.sqrt(len(values))
    return float(np.mean(values) - half), float(np.mean(values) + half)


def paired_t_test(values: Sequence[float], baseline: Sequence[float]) -> Difference:
    """Compares scores of the same seeds by the paired t-test of SciPy.

    Args:
        values: A score of each seed.
        baseline: Those of the baseline, in the same order.

    Returns:
        The difference of the means. A single seed tells neither interval nor p value, and nor do differences that are
        the same for each seed.

    Raises:
        ValueError: If there are no values, or not as many in both.

    Example:

    >>> paired_t_test([2.0, 3.1, 3.9], [1.0, 2.0, 3.0]).p < 0.05
    True
    """
    from scipy import stats

    if len(values) != len(baseline) or not len(values):
        raise ValueError(f"values and baseline must be equally many, one at least, got {len(values)}, {len(baseline)}.")
    differences = np.subtract(values, baseline, dtype="float64")
    # of scores that are rounded
    if len(values) < 2 or np.ptp(differences) <= 1e-12 * np.abs(values).max():
        same = len(values) > 1 and not differences.any()
        return Difference(float(differences.mean()), None, 1.0 if same else None)
    return Difference(
        float(differences.mean()), mean_interval(differences), float(stats.ttest_rel(values, baseline).pvalue)
    )


def holm(p_values: Sequence[float | None]) -> list[float | None]:
    """Returns p values corrected for multiple tests: at 0.05, one false alarm in 20 tables, not in 20 tests.

    Args:
        p_values: The p values; None where nothing was tested.

    Reference:
        Holm 1979, "A Simple Sequentially Rejective Multiple Test Procedure".

    Example:

    >>> holm([0.01, None, 0.04])
    [0.02, None, 0.04]
    """
    tested = sorted((p, place) for place, p in enumerate(p_values) if p is not None)
    corrected: list[float | None] = [None] * len(p_values)
    largest = 0.0
    for rank, (p, place) in enumerate(tested):
        largest = max(largest, min(1.0, (len(tested) - rank) * p))
        corrected[place] = largest
    return corrected


def verdict(difference: Difference, p: float | None, level: float = 0.05) -> str:
    """Returns "higher", "lower", "noise", or "not tested".

    Args:
        difference: The difference.
        p: Its p value, corrected for several tests.
        level: Differences of a larger p value may be noise.
    """
    if p is None:
        return "not tested"
    return "noise" if p > level else "higher" if difference.value > 0 else "lower"


def mean_of(values: Sequence[float], weights: Sequence[float] | None = None) -> Measure:
    """Returns the weighted mean as a measure: accuracy, likelihood per token, share of right tags.

    Args:
        values: One for each row; with weights the sum of the row.
        weights: How much each row holds, for example its tokens; None for 1.
    """
    sums = np.stack([np.asarray(values, "float64"), np.ones(len(values)) if weights is None else weights], axis=1)

    def measure(counts: np.ndarray) -> np.ndarray:
        totals = counts @ sums
        return totals[:, 0] / np.maximum(totals[:, 1], 1e-12)

    return measure


def f1_of(true_positives: np.ndarray, positives: np.ndarray, relevant: np.ndarray, macro: bool = False) -> Measure:
    """Returns F1 as a measure.

    Args:
        true_positives: Found and right, of each row and class, `(rows, classes)`.
        positives: Found, likewise.
        relevant: Right, likewise.
        macro: Whether to take the mean of the F1 of each class (of those that occur), and not that of all together.
    """
    parts = [np.asarray(part, "float64") for part in (true_positives, positives, relevant)]

    def measure(counts: np.ndarray) -> np.ndarray:
        hits, found, right = (counts @ part for part in parts)
        if not macro:
            hits, found, right = (part.sum(axis=1, keepdims=True) for part in (hits, found, right))
        occurs = found + right > 0
        f1 = 2 * hits / np.where(occurs, found + right, 1)
        return f1.sum(axis=1) / np.maximum(occurs.sum(axis=1), 1)

    return measure


def correlation_of(truth: Sequence[float], predicted: Sequence[float], ranks: bool = False) -> Measure:
    """Returns a correlation as a measure.

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
        if not np.ptp(chosen, axis=1).all():
            return 0.0  # all values are the same
        return float(np.corrcoef(chosen)[0, 1])

    return lambda counts: np.array([correlation(row) for row in counts])


def resample(
    measures: Sequence[Measure], rows: int, *, resamples: int = 1000, seed: int = 0
) -> tuple[np.ndarray, np.ndarray]:
    """Returns measures of the given rows, and of resamples with replacement, the same resamples for all measures.

    Args:
        measures: The measures, of one model or several.
        rows: Number of rows.
        resamples: Number of resamples.
        seed: Their seed.

    Returns:
        Scores `(measures,)`; and those of the resamples `(measures, resamples)`.

    Reference:
        Efron 1979, "Bootstrap Methods: Another Look at the Jackknife"; paired: Koehn 2004, "Statistical Significance
        Tests for Machine Translation Evaluation".

    Example:

    >>> scores, resampled = resample([mean_of([0, 1, 1, 1])], 4)
    >>> np.percentile(resampled[0], [2.5, 97.5])
    array([0.25, 1.  ])
    """
    generator = np.random.default_rng(seed)
    scores = np.array([measure(np.ones((1, rows)))[0] for measure in measures])
    parts = []
    for start in range(0, resamples, _AT_ONCE):
        places = generator.integers(rows, size=(min(_AT_ONCE, resamples - start), rows))
        counts = np.stack([np.bincount(row, minlength=rows) for row in places]).astype("float64")
        parts.append([measure(counts) for measure in measures])
    return scores, np.concatenate(parts, axis=1)


def bootstrap_interval(resampled: np.ndarray) -> tuple[float, float]:
    """Returns the 95 % percentile interval.

    Args:
        resampled: Scores of the resamples, `(resamples,)`.
    """
    low, high = np.percentile(resampled, [2.5, 97.5])
    return float(low), float(high)


def paired_bootstrap(score: float, baseline: float, resampled: np.ndarray, of_baseline: np.ndarray) -> Difference:
    """Compares two models by the resamples of one set of rows.

    The p value is the share of resamples whose difference is as far from the mean of all as the difference of the rows
    as they are is from zero.

    Args:
        score, baseline: Scores of the rows as they are.
        resampled, of_baseline: Those of the resamples, the same ones for both, `(resamples,)`.
    """
    differences = resampled - of_baseline
    as_far = np.abs(differences - differences.mean()) >= abs(score - baseline)
    p = (int(as_far.sum()) + 1) / (len(differences) + 1)
    return Difference(float(score - baseline), bootstrap_interval(differences), p)
