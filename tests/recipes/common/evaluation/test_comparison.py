"""Tables of runs: intervals that end where the values of a metric do."""

import math
from types import SimpleNamespace

import numpy as np
import pytest
from scipy import stats

import zoo
from recipes.common.evaluation import comparison
from recipes.common.evaluation.comparison import compare, range_of
from recipes.common.varied_runs import Run, read_choices


def rows_of(metric, baseline, other):
    runs = {"a": baseline, "b": other}
    results = {label: {seed: {metric: value} for seed, value in enumerate(values)} for label, values in runs.items()}
    return compare(results, [metric])


def student(values):
    return stats.t.interval(0.95, len(values) - 1, np.mean(values), stats.sem(values))


def test_intervals_of_shares_end_at_0_and_1():
    low, high = [0.0, 0.02, 0.3], [0.95, 0.99, 1.0]
    assert student(low)[0] < 0 and student(high)[1] > 1 and student(np.subtract(high, low))[1] > 1
    first, second = rows_of("accuracy", low, high)
    assert first["interval"] == (0, pytest.approx(student(low)[1]))
    assert second["interval"] == (pytest.approx(student(high)[0]), 1)
    assert second["difference_interval"] == (pytest.approx(student(np.subtract(high, low))[0]), 1)
    # p values are those of the test
    assert second["p"] == pytest.approx(stats.ttest_rel(high, low).pvalue)


def test_other_results_are_bounded_by_what_they_are():
    values = [99.0, 99.9, 99.95]
    assert rows_of("<2de>.sacreBLEU", values, values)[0]["interval"][1] == 100
    margins = rows_of("test_reward_margin", [0.9, 1.0, 1.1], [0.9, 1.0, 1.2])
    np.testing.assert_allclose(margins[0]["interval"], student([0.9, 1.0, 1.1]))
    assert rows_of("accuracy", [0.5], [0.6])[0]["interval"] is None


@pytest.mark.parametrize(
    ("metric", "expected"),
    [
        ("entity_f1", (0, 1)),
        ("span_f1_by_label.PER", (0, 1)),
        ("ndcg@10 after", (0, 1)),
        ("TF-IDF + logistic regression.macro_f1", (0, 1)),
        ("spearman, TF-IDF", (-1, 1)),
        ("rougeL", (0, 100)),
        ("validation_nll_per_token", (0, math.inf)),
        ("validation_perplexity", (1, math.inf)),
        ("validation_loss", (-math.inf, math.inf)),
        # labels of any name
        ("span_f1_by_label.BLEU", (0, 1)),
        ("span_f1_by_label.U.S. rouge", (0, 1)),
        ("thresholds.perplexity", (0, 1)),
        ("<2bleu>.exact_match", (0, 1)),
        ("BLEU.parameters", (-math.inf, math.inf)),
    ],
)
def test_ranges(metric, expected):
    assert range_of(metric) == expected


def test_scores_of_answers_are_in_percent_however_low():
    """A bad model answers 0.4 % right; that is no share."""
    metric_names = ["exact_match", "f1"]
    for name in metric_names:
        assert range_of(name, metric_names) == (0, 100)
        assert range_of(f"{name}_without_answer", metric_names) == (0, 100)
        assert range_of(f"baseline.{name}", [f"baseline.{each}" for each in metric_names]) == (0, 100)
    assert range_of("exact_match", ["accuracy", "micro_f1"]) == (0, 1)


@pytest.mark.parametrize(
    ("every", "units"), [([None, None], "epoch"), ([5, 5], "round"), ([None, 5], "epoch or round")]
)
def test_curves_are_drawn_by_what_their_points_are(tmp_path, monkeypatch, every, units):
    choices, runs = read_choices(["training.learning_rate=1,2"]), []
    for choice, batches in zip(choices, every, strict=True):
        training = SimpleNamespace(evaluate_every=batches)
        run = Run("recipes.classify", SimpleNamespace(training=training, run_folder=str(tmp_path)), choice, 0, tmp_path)
        runs.append(run)
    (tmp_path / "metrics.csv").write_text("epoch,val_loss\n0,2\n1,1\n")
    drawn = {}
    monkeypatch.setattr(comparison, "plot_intervals", lambda *arguments: None)
    monkeypatch.setattr(zoo.inspect, "plot_curves", lambda series, path, **labels: drawn.update(labels))
    comparison.draw(choices, runs, [], tmp_path)
    assert drawn["x_label"] == units
