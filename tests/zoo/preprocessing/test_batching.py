"""Rows sorted by length, batched and put back; few lengths."""

import numpy as np
import pytest

from zoo.preprocessing import map_by_length, padded_length


@pytest.mark.parametrize("batch_size", [1, 3, 100])
def test_rows_come_back_in_their_order(batch_size):
    generator = np.random.default_rng(0)
    lengths = generator.integers(0, 50, 17)
    batches = []

    def function(rows):
        batches.append(lengths[rows])
        return [f"row {row}" for row in rows]

    assert map_by_length(function, lengths, batch_size) == [f"row {row}" for row in range(17)]
    assert [len(batch) for batch in batches] == [min(batch_size, 17 - at) for at in range(0, 17, batch_size)]
    np.testing.assert_array_equal(np.concatenate(batches), np.sort(lengths))


def test_arrays_and_nothing():
    rows = np.stack(map_by_length(lambda rows: np.eye(4)[rows], [3, 1, 2, 2], 3))
    np.testing.assert_array_equal(rows, np.eye(4))
    assert map_by_length(lambda rows: pytest.fail("there is no row"), [], 3) == []
    with pytest.raises(ValueError, match="zip"):
        map_by_length(lambda rows: [1], [3, 1], 2)


def test_few_lengths():
    counts = np.arange(0, 2049)
    lengths = np.array([padded_length(int(count)) for count in counts])
    assert (
        (lengths >= counts).all()
        and (lengths[65:] < 1.25 * counts[65:]).all()
        and (lengths[:65] < counts[:65] + 9).all()
    )
    assert len(np.unique(lengths[:513])) == 20 and len(np.unique(lengths)) == 28
    assert (lengths % 8 == 0).all()
    # a length that was padded stays as it is
    assert [padded_length(int(length)) for length in lengths] == lengths.tolist()


def test_not_beyond_the_model():
    assert padded_length(65, most=70) == 70 and padded_length(3, most=4) == 4 and padded_length(0, most=24) == 8
    # what is too long is not cut here
    assert padded_length(30, most=24) == 30


def test_the_same_in_a_graph():
    tf = pytest.importorskip("tensorflow")
    counts = [*range(0, 130), 511, 512, 513, 100_000]
    for most in (None, 100):
        graph = tf.function(
            lambda count, most=most: padded_length(count, most), input_signature=[tf.TensorSpec((), tf.int64)]
        )
        assert [int(graph(count)) for count in counts] == [padded_length(count, most) for count in counts]
