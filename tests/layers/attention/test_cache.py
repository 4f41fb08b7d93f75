"""The key-value cache against a Python list that holds the same entries."""

import numpy as np
import pytest
from keras import ops

from layers.attention import make_cache, rolling_positions, write_cache, write_rolling_cache

CAPACITY = 4


def entries(first, count, width=2):
    """Entry number n is full of n + 1, in keys; of -(n + 1) in values: `(2, 3, count, width)`."""
    numbers = np.arange(first, first + count, dtype="float32") + 1
    key = np.broadcast_to(numbers[:, None], (2, 3, count, width))
    return ops.convert_to_tensor(key), ops.convert_to_tensor(-key[..., :1])


def empty(dtype=None):
    return make_cache(2, num_key_value_heads=3, capacity=CAPACITY, head_dim=2, value_head_dim=1, dtype=dtype)


def held(cache):
    """The numbers in the slots, having checked that every row, head and feature holds the same."""
    key, value = (ops.convert_to_numpy(cache[name]) for name in ("key", "value"))
    np.testing.assert_array_equal(value, -key[..., :1])
    np.testing.assert_array_equal(key, np.broadcast_to(key[:1, :1, :, :1], key.shape))
    return key[0, 0, :, 0].astype(int).tolist()


def test_empty_cache():
    cache = empty("float16")
    assert tuple(cache["key"].shape) == (2, 3, 4, 2) and tuple(cache["value"].shape) == (2, 3, 4, 1)
    assert "float16" in str(cache["key"].dtype) and held(cache) == [0, 0, 0, 0]


def test_write():
    cache = write_cache(empty(), *entries(0, 2), 0)
    cache = write_cache(cache, *entries(2, 1), ops.convert_to_tensor(2))
    assert held(cache) == [1, 2, 3, 0]
    assert held(write_cache(cache, *entries(8, 2), 1)) == [1, 9, 10, 0]
    assert held(cache) == [1, 2, 3, 0]  # a value: the old one is untouched


def test_write_converts_to_the_type_of_the_cache():
    assert "float16" in str(write_cache(empty("float16"), *entries(0, 1), 0)["key"].dtype)


@pytest.mark.parametrize(("count", "index"), [(5, 0), (2, 3), (5, ops.convert_to_tensor(0))])
def test_entries_that_do_not_fit(count, index):
    with pytest.raises(ValueError, match=f"{count} new entries from index .* capacity of 4"):
        write_cache(empty(), *entries(0, count), index)


@pytest.mark.parametrize("counts", [[1] * 11, [3, 1, 2, 4], [4, 4, 1], [9, 1, 1], [2, 7, 3], [1, 12]])
@pytest.mark.parametrize("as_tensor", [True, False])
def test_rolling_write(counts, as_tensor):
    cache, index = empty(), 0
    for count in counts:
        cache = write_rolling_cache(cache, *entries(index, count), ops.convert_to_tensor(index) if as_tensor else index)
        index += count
        expected = [0] * CAPACITY
        for number in range(index):
            expected[number % CAPACITY] = number + 1
        assert held(cache) == expected
        positions = ops.convert_to_numpy(rolling_positions(CAPACITY, index)).tolist()
        assert [max(number + 1, 0) for number in positions] == expected


def test_rolling_write_of_unknown_length():
    tf = pytest.importorskip("tensorflow")
    signature = [tf.TensorSpec((2, 3, None, 2)), tf.TensorSpec((2, 3, None, 1)), tf.TensorSpec((), tf.int32)]
    write = tf.function(lambda key, value, index: write_rolling_cache(empty(), key, value, index), signature)
    assert held(write(*entries(5, 1), 5)) == [0, 6, 0, 0]
    assert held(write(*entries(5, 6), 5)) == [9, 10, 11, 8]
