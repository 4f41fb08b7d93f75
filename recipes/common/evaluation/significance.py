"""Which differences are noise: paired tests over seeds and over test rows, intervals, correction for several tests."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np

from recipes.common.evaluation.evaluation import Metric

# resamples that are weighed at once
_AT_ONCE = 64


class Difference(NamedTuple):
    """A difference between two means or scores, its 95 % interval, and the p value that there is none (two-sided).

    Interval and p value are None where they cannot be told.
    """

    value: float
    interval: tuple[float, float] | None
    p: float | None


def difference_cells(value: float, interval: Sequence[float] | None, p: float | None, told: str) -> list[str]:
    """Returns the cells of a table that say how much a score differs, its p value and the verdict.

    Args:
        value: The difference.
        interval: Its interval; None for none.
        p: The p value, corrected for several tests; None where nothing was tested.
        told: The verdict.

    Example:

    >>> difference_cells(0.05, (0.01, 0.09), 0.02, "higher")
    ['+0.05 [+0.01, +0.09]', '0.02', 'higher']
    """
    between = "" if interval is None else f" [{interval[0]:+.2g}, {interval[1]:+.2g}]"
    return [f"{value:+.3g}{between}", "" if p is None else f"{p:.2g}", told]


def table_row(cells: Sequence[str]) -> str:
    """Returns a row of a Markdown table.

    Args:
        cells: Its cells.
    """
    return "| " + " | ".join(cell.replace("|", "\\|") for cell in cells) + " |"


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


def resample(metrics: Sequence[Metric], *, resamples: int = 1000, seed: int = 0) -> tuple[np.ndarray, np.ndarray]:
    """Returns metrics of the given rows, and of resamples with replacement, the same resamples for all metrics.

    A metric that is not defined for a resample (a correlation of equal values) counts as 0 there.

    Args:
        metrics: The metrics, of one model or several, on the same rows.
        resamples: Number of resamples.
        seed: Their seed.

    Returns:
        Scores `(metrics,)`; and those of the resamples `(metrics, resamples)`.

    Reference:
        Efron 1979, "Bootstrap Methods: Another Look at the Jackknife"; paired: Koehn 2004, "Statistical Significance
        Tests for Machine Translation Evaluation".

    Example:

    >>> scores, resampled = resample([mean_of([0, 1, 1, 1])])
    >>> np.percentile(resampled[0], [2.5, 97.5])
    array([0.25, 1.  ])
    """
    generator, rows, parts = np.random.default_rng(seed), metrics[0].rows, []
    for start in range(0, resamples, _AT_ONCE):
        places = generator.integers(rows, size=(min(_AT_ONCE, resamples - start), rows))
        counts = np.stack([np.bincount(row, minlength=rows) for row in places]).astype("float64")
        parts.append([metric(counts) for metric in metrics])
    return np.nan_to_num([metric.value for metric in metrics]), np.nan_to_num(np.concatenate(parts, axis=1))


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
