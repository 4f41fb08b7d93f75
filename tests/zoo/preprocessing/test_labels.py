"""Labels by name and by number, in Python and in a graph."""

import numpy as np
import pytest

tf = pytest.importorskip("tensorflow")

from zoo.preprocessing.labels import Labels, as_numbers  # noqa: E402
from zoo.preprocessing.rows import as_weights  # noqa: E402

NAMED = Labels(["bad", "good", "so-so"])


@pytest.mark.parametrize(
    "y",
    [
        ["good", "bad", "so-so"],
        [1, 0, 2],
        np.array([1.0, 0.0, 2.0]),
        (b"good", 0, np.int64(2)),
        tf.constant(["good", "bad", "so-so"]),
        np.array(["good", "bad", "so-so"]),
    ],
)
def test_ids(y):
    ids = NAMED.ids(y, 3, "y", "x")
    assert ids.tolist() == [1, 0, 2] and ids.dtype == "int32"


@pytest.mark.parametrize(
    ("y", "message"),
    [
        ([0, 3, 1], r"y\[1\] must be one of \['bad', 'good', 'so-so'\] or a number from 0 to 2, got 3"),
        ([0, -1, 1], r"y\[1\] must be .* got -1"),
        ([0, 1, "fine"], r"y\[2\] must be .* got 'fine'"),
        ([0, 1.5, 1], r"y\[1\] must be .* got 1.5"),
        ([True, 1, 1], r"y\[0\] must be .* got True\. Booleans are the labels of 2 classes"),
        ([[0], [1, 2], [1]], r"y\[0\] must be .* got \[0\]"),
        ([0, 1], "y must hold one label per row, got 2 for 3 in x"),
        (5, "y must be a list, array or tensor of labels, got int 5"),
        ("good", "y must be a list of labels, got one text 'good'"),
    ],
)
def test_what_is_no_label(y, message):
    with pytest.raises((TypeError, ValueError), match=message):
        NAMED.ids(y, 3, "y", "x")


def test_columns_and_booleans():
    two, flags = Labels(["bad", "good"]), np.array([True, False, True])
    for y in (flags, flags[:, None], flags.tolist(), [[True], [False], [True]], tf.constant(flags)[:, None]):
        assert two.ids(y, 3, "y", "x").tolist() == [1, 0, 1]
    for y in (np.array([[2], [0], [1]]), [["so-so"], ["bad"], ["good"]], tf.constant([[2.0], [0.0], [1.0]])):
        assert NAMED.ids(y, 3, "y", "x").tolist() == [2, 0, 1]
    assert NAMED.ids([np.array(2), np.array("bad"), np.array(1.0)], 3, "y", "x").tolist() == [2, 0, 1]
    assert two.ids([np.array(True), np.array(0), np.array(1)], 3, "y", "x").tolist() == [1, 0, 1]
    # as a data set has it
    assert two.graph_ids(flags).numpy().tolist() == [1, 0, 1]
    with pytest.raises(ValueError, match="labels must be 2 .* booleans"):
        NAMED.graph_ids(flags)
    # several labels per row: a flag is no label
    with pytest.raises(ValueError, match=r"each label of y\[0\] must be .* got True"):
        two.indicators([[True], [False]], 2, "y", "x")
    assert two.indicators(np.array([[True, False]]), 1, "y", "x").tolist() == [[1, 0]]
    assert as_weights(np.array([[1.0], [2.0]]), 2, "sample_weight").tolist() == [1, 2]


def test_printed():
    assert repr(NAMED) == "Labels(['bad', 'good', 'so-so'])" and repr(Labels(2)) == "Labels(2)"


def test_several_labels():
    expected = [[1, 0, 1], [0, 0, 0]]
    for y in ([["bad", "so-so"], []], [[0, 2], ()], np.array(expected)):
        assert NAMED.indicators(y, 2, "y", "x").tolist() == expected
    for y, message in (
        ([["bad"], ["odd"]], r"each label of y\[1\] must be one of"),
        (["bad", []], r"y\[0\] must be a list of labels, got 'bad'"),
        (np.ones((2, 2)), r"y must have the shape \(2, 3\), rows and labels, got \(2, 2\)"),
        (np.array([[0, 1, 0], [0, 0, 7]]), r"y\[1, 2\] must be 0 or 1, got"),
        ([["bad"]], "y must hold one list of labels per row, got 1 for 2 in x"),
    ):
        with pytest.raises((TypeError, ValueError), match=message):
            NAMED.indicators(y, 2, "y", "x")


def test_values():
    assert as_numbers([1, 2.5], 2, 1, "y", "x").tolist() == [[1], [2.5]]
    assert as_numbers([[1, 2], [3, 4]], 2, 2, "y", "x").tolist() == [[1, 2], [3, 4]]
    for y, width, message in (
        ([1, np.inf], 1, r"y\[1\] must be finite, got \[inf\]"),
        ([1, "a"], 1, "y must hold numbers, 1 per row"),
        ([1, 2], 2, r"y must have the shape \(2, 2\), got \(2,\)"),
        ([1, 2, 3], 1, "y must hold one entry per row, got 3 for 2 in x"),
    ):
        with pytest.raises(ValueError, match=message):
            as_numbers(y, 2, width, "y", "x")


def test_in_a_graph():
    graph_ids = tf.function(NAMED.graph_ids)
    assert graph_ids(tf.constant(["good", "so-so"])).numpy().tolist() == [1, 2]
    assert graph_ids(tf.constant([[0, 2]])).numpy().tolist() == [[0, 2]]
    with pytest.raises(tf.errors.InvalidArgumentError, match=r"Every label must be one of .*\[\[1\]\] \[3\]"):
        graph_ids(tf.constant([0, 3]))
    # the second is no UTF-8
    for name, shown in ((b"odd", "odd"), (b"\xff", "\ufffd|xef")):
        with pytest.raises(tf.errors.InvalidArgumentError, match=rf"\[\[0\]\] \[.*({shown})"):
            graph_ids(tf.constant([name]))


def test_names_and_numbers():
    assert list(NAMED) == ["bad", "good", "so-so"] and NAMED.option == ["bad", "good", "so-so"]
    numbers = Labels(4)
    assert list(numbers) == [0, 1, 2, 3] and numbers.option == 4 and numbers.strings == ["0", "1", "2", "3"]
    for labels, message in (
        (["a", ""], r"labels\[1\] must be a name that is not empty, got ''"),
        (["a", 3], r"labels\[1\] must be a name"),
        (["a", "b", "a"], r"labels\[2\] must be unique, got 'a', the same as labels\[0\]"),
        (["a"], "labels must hold at least 2 names"),
        (1, "labels must be an integer of at least 2, got 1"),
        ("ab", "labels must be an integer of at least 2, got 'ab'"),
    ):
        with pytest.raises(ValueError, match=message):
            Labels(labels, lowest=2)
