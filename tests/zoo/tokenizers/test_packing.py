"""add_start_end and to_dense against plain Python lists."""

import numpy as np
import pytest
import tensorflow as tf

from zoo.tokenizers import add_start_end, to_dense

ROWS = [[5, 6, 7, 8], [], [9], [5, 5, 5]]


def ragged(rows=ROWS, dtype=tf.int32):
    return tf.ragged.constant(rows, dtype=dtype, ragged_rank=1)


@pytest.mark.parametrize("start_id, end_id", [(1, 2), (None, 2), (1, None), (None, None)])
@pytest.mark.parametrize("max_length", [None, 3, 5, 100])
def test_add_start_end(start_id, end_id, max_length):
    start = [] if start_id is None else [start_id]
    end = [] if end_id is None else [end_id]
    room = None if max_length is None else max_length - len(start) - len(end)
    expected = [start + row[:room] + end for row in ROWS]
    assert add_start_end(ragged(), start_id, end_id, max_length).to_list() == expected
    in_graph = tf.function(lambda ids: add_start_end(ids, start_id, end_id, max_length))
    assert in_graph(ragged(dtype=tf.int64)).to_list() == expected


def test_add_start_end_errors():
    with pytest.raises(ValueError, match="max_length=2 must be above the number of added tokens, 2"):
        add_start_end(ragged(), 1, 2, 2)
    with pytest.raises(TypeError, match="RaggedTensor"):
        add_start_end(tf.zeros([2, 3], tf.int32), 1, 2)


@pytest.mark.parametrize("multiple, length", [(1, 4), (4, 4), (8, 8), (3, 6)])
def test_to_dense(multiple, length):
    ids, mask = to_dense(ragged(), pad_id=5, multiple=multiple)  # 5 is a token of the rows too
    np.testing.assert_array_equal(ids, [row + [5] * (length - len(row)) for row in ROWS])
    np.testing.assert_array_equal(mask, [[True] * len(row) + [False] * (length - len(row)) for row in ROWS])
    assert mask.dtype == tf.bool and ids.dtype == tf.int32


@pytest.mark.parametrize("rows", [[], [[], []]])
def test_to_dense_without_tokens_has_one_multiple(rows):
    ids, mask = to_dense(ragged(rows), pad_id=0, multiple=4)
    assert ids.shape == mask.shape == [len(rows), 4]
    assert not mask.numpy().any()


def test_to_dense_errors():
    with pytest.raises(ValueError, match="multiple=0"):
        to_dense(ragged(), 0, 0)
    with pytest.raises(ValueError, match="pad_id=None"):
        to_dense(ragged(), None)
    with pytest.raises(TypeError, match="RaggedTensor"):
        to_dense([[1, 2]], 0)


def test_in_a_pipeline(trained):
    tokenizer = trained["unigram"]

    def pack(texts):
        ids = add_start_end(tokenizer.tokenize(texts), tokenizer.start_id, tokenizer.end_id, max_length=6)
        return to_dense(ids, tokenizer.pad_id, multiple=8)

    texts = ["the dog runs over the red ball", "a"]
    dataset = tf.data.Dataset.from_tensor_slices(texts).batch(2, drop_remainder=True).map(pack)
    assert [spec.shape.as_list() for spec in dataset.element_spec] == [[2, None], [2, None]]
    ((ids, mask),) = list(dataset)
    rows = [[1, *tokenizer.tokenize(text).numpy()[:4].tolist(), 2] for text in texts]
    assert [row[real].tolist() for row, real in zip(ids.numpy(), mask.numpy(), strict=True)] == rows
    assert ids.shape == [2, 8]
