"""Tests over seeds and over rows, against formulas of their own, SciPy and scikit-learn."""

import numpy as np
import pytest
from scipy import stats
from sklearn import metrics

from recipes.common.evaluation.evaluation import correlation_of, f1_of, mean_of
from recipes.common.evaluation.significance import (
    holm,
    mean_interval,
    paired_bootstrap,
    paired_t_test,
    resample,
    verdict,
)


def test_paired_t_test_and_interval_of_the_mean():
    generator = np.random.default_rng(0)
    values, baseline = generator.normal(size=(2, 6))
    differences = values - baseline
    # Student's t from its definition
    t = differences.mean() / (differences.std(ddof=1) / np.sqrt(6))
    found = paired_t_test(values, baseline)
    assert found.value == pytest.approx(differences.mean())
    assert found.p == pytest.approx(2 * stats.t.sf(abs(t), 5))
    expected = stats.t.interval(0.95, 5, differences.mean(), differences.std(ddof=1) / np.sqrt(6))
    assert found.interval == pytest.approx(expected)
    # the interval touches zero where p is 0.05
    assert (found.interval[0] <= 0 <= found.interval[1]) == (found.p >= 0.05)
    assert mean_interval([1.0]) is None
    assert paired_t_test([1.5], [1.0]) == (0.5, None, None)
    assert paired_t_test([1.1, 2.1], [1.0, 2.0])[1:] == (None, None)
    assert paired_t_test([1.0, 2.0], [1.0, 2.0]) == (0.0, None, 1.0)
    with pytest.raises(ValueError, match="equally many"):
        paired_t_test([1.0], [])


def test_holm_as_in_the_definition():
    # the smallest is multiplied by 4, the next by 3, ...; never below one before it
    assert holm([0.02, 0.01, None, 0.03, 0.9]) == pytest.approx([0.06, 0.04, None, 0.06, 0.9], nan_ok=True)
    assert holm([0.4, 0.6]) == [0.8, 0.8] and holm([]) == []
    difference = paired_t_test([1.0, 2.1], [0.0, 1.0])
    assert [verdict(difference, p) for p in (0.01, 0.06, None)] == ["higher", "noise", "not tested"]


def test_measures_are_those_of_libraries_on_resamples():
    generator = np.random.default_rng(0)
    truth, predicted = generator.integers(3, size=(2, 20))
    x, y = generator.normal(size=(2, 20))
    one_hot = np.eye(3, dtype=bool)
    counts = (one_hot[truth] & one_hot[predicted], one_hot[predicted], one_hot[truth])
    measures = [
        *(mean_of(truth == predicted), mean_of(x, y + 3), f1_of(*counts, macro=True), f1_of(*counts)),
        *(correlation_of(x, y), correlation_of(x.round(), y, ranks=True)),
    ]
    rows = generator.integers(20, size=20)
    weights = np.bincount(rows, minlength=20)[None].astype("float64")
    found = [float(measure(weights)[0]) for measure in measures]
    a, b = truth[rows], predicted[rows]
    assert found == pytest.approx(
        [
            metrics.accuracy_score(a, b),
            x[rows].sum() / (y[rows] + 3).sum(),
            metrics.f1_score(a, b, average="macro", zero_division=0),
            metrics.f1_score(a, b, average="micro"),
            stats.pearsonr(x[rows], y[rows]).statistic,
            stats.spearmanr(x[rows].round(), y[rows]).statistic,
        ]
    )


def test_bootstrap_interval_covers_and_a_test_without_difference_is_not_significant():
    generator = np.random.default_rng(1)
    values = generator.normal(size=400)
    noise = values + generator.normal(scale=0.5, size=400)
    better = values + 0.2 + generator.normal(scale=0.5, size=400)
    measures = [mean_of(column) for column in (values, noise, better)]
    scores, resampled = resample(measures, resamples=1000)
    assert scores == pytest.approx([values.mean(), noise.mean(), better.mean()])
    # of a mean the bootstrap is Student's interval, all but
    np.testing.assert_allclose(np.percentile(resampled[0], [2.5, 97.5]), mean_interval(values), atol=0.01)
    tested = [
        paired_bootstrap(score, scores[0], row, resampled[0])
        for score, row in zip(scores[1:], resampled[1:], strict=True)
    ]
    expected = [stats.ttest_rel(column, values).pvalue for column in (noise, better)]
    assert tested[0].p == pytest.approx(expected[0], abs=0.04) and tested[0].p > 0.05
    assert tested[1].p < 0.01 and tested[1].interval[0] > 0.1
    # the same resamples for all, so a model is not different from itself
    again = resample(measures[:1], resamples=1000)[1]
    np.testing.assert_array_equal(again[0], resampled[0])
    assert paired_bootstrap(1.0, 1.0, again[0], again[0]).p == 1.0
