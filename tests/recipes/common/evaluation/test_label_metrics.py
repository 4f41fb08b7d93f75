"""Scores of labels against the formulas, counted by hand."""

import numpy as np
import pytest

from recipes.common.evaluation.label_metrics import entities_of, label_scores, linear_baseline, tag_scores


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
