"""Layouts of the key-value cache against a Python list that holds the same entries."""

import numpy as np
import pytest
from keras import ops
from tensorflow_backend import require_tensorflow

from layers.attention import CacheLayout, MultiHeadAttention, RollingCache, WholeCache
from layers.attention.runtime_cache import RuntimeCache
from layers.fusion import portable_operations

CAPACITY = 4


def entries(first, count, width=2):
    """Entry number n is full of n + 1, in keys; of -(n + 1) in values: `(2, 3, count, width)`."""
    numbers = np.arange(first, first + count, dtype="float32") + 1
    key = np.broadcast_to(numbers[:, None], (2, 3, count, width))
    return ops.convert_to_tensor(key), ops.convert_to_tensor(-key[..., :1])


WHOLE, ROLLING = WholeCache(), RollingCache(CAPACITY)


def empty(dtype="float32", layout=WHOLE, capacity=CAPACITY):
    return layout.make(2, capacity, num_heads=3, head_dim=2, value_head_dim=1, dtype=dtype)


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
    cache = WHOLE.write(empty(), *entries(0, 2), 0)
    cache = WHOLE.write(cache, *entries(2, 1), ops.convert_to_tensor(2))
    assert held(cache) == [1, 2, 3, 0]
    assert held(WHOLE.write(cache, *entries(8, 2), 1)) == [1, 9, 10, 0]
    assert held(cache) == [1, 2, 3, 0]  # a value: the old one is untouched


def test_write_converts_to_the_type_of_the_cache():
    assert "float16" in str(WHOLE.write(empty("float16"), *entries(0, 1), 0)["key"].dtype)


@pytest.mark.parametrize(("count", "index"), [(5, 0), (2, 3), (5, ops.convert_to_tensor(0))])
def test_entries_that_do_not_fit(count, index):
    with pytest.raises(ValueError, match=f"{count} new entries in a cache with a capacity of 4"):
        WHOLE.write(empty(), *entries(0, count), index)


@pytest.mark.parametrize("counts", [[1] * 11, [3, 1, 2, 4], [4, 4, 1], [9, 1, 1], [2, 7, 3], [1, 12]])
@pytest.mark.parametrize("as_tensor", [True, False])
def test_rolling_write(counts, as_tensor):
    cache, index = empty(), 0
    for count in counts:
        cache = ROLLING.write(cache, *entries(index, count), ops.convert_to_tensor(index) if as_tensor else index)
        index += count
        expected = [0] * CAPACITY
        for number in range(index):
            expected[number % CAPACITY] = number + 1
        assert held(cache) == expected
        numbers = ops.convert_to_numpy(ROLLING.entries(cache, index)).tolist()
        assert [max(number + 1, 0) for number in numbers] == expected


def test_rolling_write_of_unknown_length():
    tf = require_tensorflow()
    signature = [tf.TensorSpec((2, 3, None, 2)), tf.TensorSpec((2, 3, None, 1)), tf.TensorSpec((), tf.int32)]
    write = tf.function(lambda key, value, index: ROLLING.write(empty(), key, value, index), signature)
    assert held(write(*entries(5, 1), 5)) == [0, 6, 0, 0]
    assert held(write(*entries(5, 6), 5)) == [9, 10, 11, 8]


def rows_held(cache):
    """The numbers in the slots of each row, having checked that every head and feature holds the same."""
    key, value = (ops.convert_to_numpy(cache[name]) for name in ("key", "value"))
    np.testing.assert_array_equal(value, -key[..., :1])
    np.testing.assert_array_equal(key, np.broadcast_to(key[:, :1, :, :1], key.shape))
    return key[:, 0, :, 0].astype(int).tolist()


def rows_of_entries(firsts, count):
    keys, values = zip(*(entries(first, count) for first in firsts), strict=True)
    return tuple(ops.stack([tensor[0] for tensor in tensors]) for tensors in (keys, values))


@pytest.mark.parametrize("layout", [WHOLE, ROLLING], ids=["whole", "rolling"])
@pytest.mark.parametrize("steps", [[1, 1, 1], [2, 1], [3], [1, 2]], ids=str)
@pytest.mark.parametrize("form", ["eager", "graph", "xla"])
def test_one_index_per_row(layout, steps, form):
    write = layout.write
    if form != "eager":
        tf = require_tensorflow()
        write = tf.function(portable_operations(form == "xla")(layout.write), jit_compile=form == "xla")
    capacity = CAPACITY if layout is ROLLING else 9
    cache, index = empty(layout=layout, capacity=capacity), np.array([0, 5], "int32")
    expected = np.zeros((2, capacity), int)
    for count in steps:
        cache = write(cache, *rows_of_entries(index, count), ops.convert_to_tensor(index))
        for row in range(2):
            for number in range(index[row], index[row] + count):
                expected[row, number % capacity] = number + 1
        index = index + np.int32(count)
        assert rows_held(cache) == expected.tolist()
        numbers = ops.convert_to_numpy(layout.entries(cache, ops.convert_to_tensor(index)))
        for row in range(2):
            written = expected[row] > 0
            np.testing.assert_array_equal(numbers[row][written], expected[row][written] - 1)


def test_whole_entries():
    np.testing.assert_array_equal(ops.convert_to_numpy(WHOLE.entries(empty(), 3)), [0, 1, 2, -1])


def test_rolling_of_short_texts():
    layout = RollingCache(6)
    assert layout.make(1, 4, num_heads=1, head_dim=2, value_head_dim=2, dtype="float32")["key"].shape[2] == 4
    assert layout.make(1, 40, num_heads=1, head_dim=2, value_head_dim=2, dtype="float32")["key"].shape[2] == 6
    # fewer slots than the window: what is overwritten would be missed
    cache = layout.write(empty(layout=layout), *entries(0, 4), 0)
    with pytest.raises(ValueError, match="room for 1 new entries in a cache with a capacity of 4, got 4"):
        layout.write(cache, *entries(4, 1), 4)


def test_a_runtime_keeps_the_entries():
    """The kernel of the runtime gets the new keys and values alone, and a mask over the old ones, too."""
    given = {}

    def of_runtime(query, key, value, mask, **options):
        given.update(options, key=key, value=value, visible=mask.drawn.visible)
        return query

    layer = MultiHeadAttention(2, 4, causal=True, cache_layout=RuntimeCache())
    x = np.random.default_rng(0).normal(size=(2, 3, 8)).astype("float32")
    old = dict.fromkeys(("key", "value"), np.zeros((1, 1, 4, 1), "float32"))
    with portable_operations(attention=of_runtime):
        _, new = layer(x, cache=old, cache_index=np.array([4, 1]), positions=np.array([[4, 5, 6], [1, 2, 3]]))
    for name in ("key", "value"):
        assert new[name].shape == (2, 2, 3, 4)
        np.testing.assert_array_equal(new[name], given[name])
    # the second row begins with three slots of padding
    slots, rows = np.arange(7), np.array([0, 3])[:, None, None]
    visible = (slots >= rows) & (slots <= np.arange(3)[:, None] + 4)
    np.testing.assert_array_equal(np.array(given["visible"])[:, 0], visible)
    assert given["scale"] == 0.5 and not any(given[name] for name in ("bias", "soft_cap", "sinks", "return_weights"))


@pytest.mark.parametrize("window", [0, 2.0, True])
def test_wrong_window(window):
    with pytest.raises(ValueError, match="window must be an integer of at least 1"):
        RollingCache(window)


def test_configuration():
    for layout in (WHOLE, ROLLING):
        copy = type(layout).from_config(layout.get_config())
        assert isinstance(copy, CacheLayout) and copy.get_config() == layout.get_config()
