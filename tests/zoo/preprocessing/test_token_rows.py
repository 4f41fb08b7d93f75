"""Texts and pairs as rows of tokens, against rules applied token by token."""

import random

import numpy as np
import pytest

tf = pytest.importorskip("tensorflow")

from zoo.preprocessing.token_rows import add_start_end, checked_lengths, pack, to_dense  # noqa: E402
from zoo.tasks.pooling import pool, take_positions  # noqa: E402

START, END = 1, 2


def ragged(rows):
    values = [value for row in rows for value in row]
    return tf.RaggedTensor.from_row_lengths(tf.constant(values, tf.int32, shape=(len(values),)), [len(r) for r in rows])


def cut_one_by_one(first, second, budget):
    """As the tokenizers of the Transformers library do it ("longest_first")."""
    first, second = list(first), list(second)
    while len(first) + len(second) > budget:
        (first if len(first) > len(second) else second).pop()
    return first, second


@pytest.mark.parametrize("separators", [1, 2])
@pytest.mark.parametrize("max_length", [None, 7, 8, 12])
def test_pairs(separators, max_length):
    generator = random.Random(0)
    pairs = [
        tuple([generator.randint(5, 9) for _ in range(generator.randint(0, 9))] for _ in range(2)) for _ in range(60)
    ]
    expected_ids, expected_segments = [], []
    for first, second in pairs:
        if max_length is not None:
            first, second = cut_one_by_one(first, second, max_length - 2 - separators)
        head, tail = [START, *first, END], [END] * (separators - 1) + [*second, END]
        expected_ids.append(head + tail)
        expected_segments.append([0] * len(head) + [1] * len(tail))
    ids, segments = pack(
        [ragged([first for first, _ in pairs]), ragged([second for _, second in pairs])],
        start_id=START,
        end_id=END,
        max_length=max_length,
        pair_separators=separators,
    )
    assert ids.to_list() == expected_ids and segments.to_list() == expected_segments


def test_single_texts():
    rows = ragged([[5, 6, 7], [], [8]])
    ids, segments = pack([rows], start_id=START, end_id=END, max_length=4)
    assert ids.to_list() == [[1, 5, 6, 2], [1, 2], [1, 8, 2]] and not segments.values.numpy().any()
    assert pack([rows], start_id=None, end_id=None)[0].to_list() == rows.to_list()
    assert pack([rows], start_id=None, end_id=END)[0].to_list() == [[5, 6, 7, 2], [2], [8, 2]]
    with pytest.raises(
        ValueError, match="max_length must leave room for tokens besides the 2 special tokens that are added, got 2"
    ):
        pack([rows], start_id=START, end_id=END, max_length=2)


def test_dense():
    ids, mask = to_dense(ragged([[5, 6, 7], [8]]), 0, longest=24)
    assert ids.numpy().tolist() == [[5, 6, 7] + [0] * 5, [8] + [0] * 7] and mask.numpy().sum(1).tolist() == [3, 1]
    # not beyond the longest, but nothing is cut that is a token
    assert to_dense(ragged([[5, 6, 7]]), 0, longest=6)[0].shape == (1, 6)
    assert to_dense(ragged([[5] * 9]), 0, longest=6)[0].shape == (1, 9)
    assert to_dense(ragged([[5] * 9, []]), 0)[0].shape == (2, 16)


def test_rows_that_are_too_long():
    inputs = {"token_ids": tf.ones((3, 5), tf.int32), "padding_mask": tf.sequence_mask([2, 5, 4], 5)}
    assert checked_lengths(inputs, 5)["token_ids"].shape == (3, 5)
    with pytest.raises(tf.errors.InvalidArgumentError, match=r"than the model takes \(4\).* \[1\] \[5\]"):
        tf.function(lambda: checked_lengths(inputs, 4))()


@pytest.mark.parametrize("pooling", ["first", "last", "mean", "max"])
def test_pooling(pooling):
    generator = np.random.default_rng(0)
    hidden = generator.normal(size=(4, 5, 3)).astype("float32") - 2
    lengths = [5, 1, 3, 0]
    mask = np.arange(5) < np.array(lengths)[:, None]
    pooled = np.array(pool(hidden, mask, pooling))
    for row, length in enumerate(lengths):
        real = hidden[row, :length]
        if length == 0 and pooling in ("mean", "max"):
            expected = np.zeros(3)
        else:
            expected = {
                "first": hidden[row, 0],
                "last": hidden[row, max(length - 1, 0)],
                "mean": real.mean(0) if length else 0,
                "max": real.max(0) if length else 0,
            }[pooling]
        np.testing.assert_allclose(pooled[row], expected, rtol=1e-6)


def test_take_positions():
    values = np.arange(24, dtype="float32").reshape(2, 4, 3)
    taken = np.array(take_positions(values, np.array([[3, 0], [-1, 2]])))
    np.testing.assert_array_equal(taken, [values[0, [3, 0]], values[1, [0, 2]]])


ROWS = [[5, 6, 7, 8], [], [9], [5, 5, 5]]


@pytest.mark.parametrize("start_id, end_id", [(1, 2), (None, 2), (1, None), (None, None)])
@pytest.mark.parametrize("max_length", [None, 3, 5, 100])
def test_add_start_end(start_id, end_id, max_length):
    start = [] if start_id is None else [start_id]
    end = [] if end_id is None else [end_id]
    room = None if max_length is None else max_length - len(start) - len(end)
    expected = [start + row[:room] + end for row in ROWS]
    assert add_start_end(ragged(ROWS), start_id, end_id, max_length).to_list() == expected
    for begin, end in ((0, 0), (1, 2)):  # no row, and one without a token
        some = add_start_end(ragged(ROWS)[begin:end], start_id, end_id, max_length)
        assert some.to_list() == expected[begin:end]
    in_graph = tf.function(lambda ids: add_start_end(ids, start_id, end_id, max_length))
    assert in_graph(tf.cast(ragged(ROWS), tf.int64)).to_list() == expected


def test_add_start_end_errors():
    with pytest.raises(ValueError, match="max_length must be above the number of added tokens, 2, got 2"):
        add_start_end(ragged(ROWS), 1, 2, 2)
    with pytest.raises(TypeError, match="RaggedTensor"):
        add_start_end(tf.zeros([2, 3], tf.int32), 1, 2)
