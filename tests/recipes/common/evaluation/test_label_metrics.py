"""Scores of labels against the formulas, counted by hand."""

import numpy as np
import pytest
from sklearn import metrics

from recipes.common.evaluation.evaluation import results_of
from recipes.common.evaluation.label_metrics import entities_of, label_metrics, linear_baseline, tag_metrics


def label_scores(*arguments):
    return results_of(label_metrics(*arguments))


def tag_scores(*arguments):
    return results_of(tag_metrics(*arguments))


def test_several_labels():
    truth = [["a", "b"], ["b"], [], ["c"]]
    predicted = [["a"], ["b", "c"], [], ["c"]]
    # hits, false alarms and misses: a 1 0 0, b 1 0 1, c 1 1 0
    f1 = {"a": 1.0, "b": 2 / 3, "c": 2 / 3}
    scores = label_scores(truth, predicted, "multi_label")
    assert scores["micro_f1"] == pytest.approx(2 * 3 / (2 * 3 + 1 + 1))
    # rounded to 4 digits
    assert scores["macro_f1"] == pytest.approx(sum(f1.values()) / 3, abs=5e-5)
    assert scores["exact_match"] == 0.5


@pytest.mark.parametrize(
    ("truth", "predicted", "f1", "exact"),
    [
        ([[], []], [[], []], (0, 0), 1.0),
        ([["a"], []], [["a"], ["a"]], (2 / 3, 2 / 3), 0.5),
        ([["a"], ["b"], []], [["a", "b"], [], ["b"]], (2 / 5, 1 / 2), 0.0),
    ],
)
def test_rows_without_labels_and_a_single_label(truth, predicted, f1, exact):
    """By hand: 2 hits / (found + right), of all labels and of each."""
    scores = label_scores(truth, predicted, "multi_label")
    expected = {"micro_f1": f1[0], "macro_f1": f1[1], "exact_match": exact}
    assert scores == {name: pytest.approx(value, abs=5e-5) for name, value in expected.items()}


def test_f1_of_several_labels_is_that_of_scikit_learn():
    generator = np.random.default_rng(0)
    right, given = generator.random((2, 40, 5)) < 0.4
    truth, predicted = ([["abcde"[i] for i in np.flatnonzero(row)] for row in rows] for rows in (right, given))
    scores = label_scores(truth, predicted, "multi_label")
    for average in ("micro", "macro"):
        expected = metrics.f1_score(right, given, average=average, zero_division=0)
        assert scores[f"{average}_f1"] == pytest.approx(expected, abs=5e-5)


def test_the_baseline_of_a_single_label():
    texts, labels = ["good", "bad"] * 9, [["+"], []] * 9
    assert linear_baseline(texts, labels, ["good", "bad"], [["+"], []], "multi_label")["exact_match"] == 1.0


def test_one_label_that_is_rare_counts_as_much_for_macro_f1():
    scores = label_scores(["x"] * 8 + ["y"] * 2, ["x"] * 10, "single_label")
    assert scores == {"accuracy": 0.8, "macro_f1": pytest.approx((2 * 8 / (2 * 8 + 2)) / 2, abs=5e-5)}


def test_values():
    scores = label_scores([0.0, 1.0, 2.0], [1.0, 3.0, 9.0], "regression")
    assert scores["mean_absolute_error"] == pytest.approx(10 / 3, abs=5e-5)
    x, y = np.array([-1.0, 0.0, 1.0]), np.array([-10.0, -4.0, 14.0]) / 3
    assert scores["pearson"] == pytest.approx(x @ y / np.sqrt((x @ x) * (y @ y)), abs=5e-5)
    assert scores["spearman"] == 1.0


def test_entities_count_as_a_whole():
    truth = [["B-PER", "I-PER", "O", "B-LOC"]]
    scores = tag_scores(truth, [["B-PER", "O", "O", "B-LOC"]])
    # one of two entities found, one of two that were given right; three words of four
    assert scores == {"accuracy": 0.75, "entity_precision": 0.5, "entity_recall": 0.5, "entity_f1": 0.5}
    assert tag_scores([["NOUN"]], [["VERB"]]) == {"accuracy": 0.0}
    assert tag_scores([["S-PER", "O", "B-LOC", "E-LOC"]], [["S-PER", "O", "B-LOC", "O"]])["entity_f1"] == 0.5


@pytest.mark.parametrize(
    ("tags", "entities"),
    [
        ("O O", set()),
        ("B-PER I-PER I-PER", {("PER", 0, 2)}),
        ("B-PER B-PER", {("PER", 0, 0), ("PER", 1, 1)}),
        ("O I-PER I-PER O", {("PER", 1, 2)}),
        ("B-PER I-LOC I-LOC", {("PER", 0, 0), ("LOC", 1, 2)}),
        ("I-PER O I-PER", {("PER", 0, 0), ("PER", 2, 2)}),
        ("B-a-b I-a-b", {("a-b", 0, 1)}),
        ("B-PER E-PER S-PER I-PER", {("PER", 0, 1), ("PER", 2, 2), ("PER", 3, 3)}),
        ("U-PER B-PER I-PER L-PER", {("PER", 0, 0), ("PER", 1, 3)}),
    ],
)
def test_entities_begin_where_conlleval_begins_them(tags, entities):
    assert entities_of(tags.split()) == entities


def test_no_entities():
    assert tag_scores([["O"]], [["O"]])["entity_f1"] == 0.0


def test_entities_of_all_sentences_count_together():
    truth = [["O", "B-a", "I-a"], ["B-b", "I-b", "O"], ["B-a"]]
    predicted = [["B-a", "I-a", "I-a"], ["B-b", "I-b", "O"], ["B-b"]]
    # hits: the second alone; 3 in the truth, 3 predicted
    third = pytest.approx(1 / 3, abs=5e-5)
    expected = {"accuracy": pytest.approx(4 / 7, abs=5e-5), "entity_precision": third}
    assert tag_scores(truth, predicted) == {**expected, "entity_recall": third, "entity_f1": third}


def test_linear_baseline_of_each_problem():
    texts = ["good film", "bad film", "good day", "bad day", "good bad day"] * 4
    tests = ["a good one", "a bad one"]
    assert linear_baseline(texts, ["+", "-", "+", "-", "-"] * 4, tests, ["+", "-"])["accuracy"] == 1.0
    labels = [["g"], ["b"], ["g"], ["b"], ["g", "b"]] * 4
    assert linear_baseline(texts, labels, tests, [["g"], ["b"]], "multi_label")["micro_f1"] == 1.0
    scores = linear_baseline(texts, [1.0, -1.0, 1.0, -1.0, 0.0] * 4, tests, [1.0, -1.0], "regression")
    assert scores["pearson"] == 1.0
    pairs = (["good", "bad"] * 8, ["film", "day"] * 8)
    assert linear_baseline(pairs, ["+", "-"] * 8, (["good"], ["x"]), ["+"])["accuracy"] == 1.0


@pytest.mark.parametrize(("good", "bad"), [("很好看", "不好看"), ("ดีมาก", "แย่มาก"), ("अच्छी", "बुरी")])
def test_linear_baseline_in_other_scripts(good, bad):
    texts = [f"{start}{word}{end}" for word in (good, bad) for start in ("这部电影", "वह ") for end in ("", "。")]
    labels = ["+"] * 4 + ["-"] * 4
    assert linear_baseline(texts, labels, [f"他说{good}", f"他说{bad}"], ["+", "-"])["accuracy"] == 1.0
