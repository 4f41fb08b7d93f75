"""Lengths of rows in the place of padding masks, on every path."""

import keras
import numpy as np
import pytest
from keras import ops
from numpy_attention import array, formula, made, normal, order

from layers import FeedForward, MaskedBatchNorm, MultiHeadAttention, RotaryEmbedding, TransformerBlock
from layers.attention import AttentionMask

pytestmark = pytest.mark.backends
LENGTHS = np.array([9, 5, 0], "int32")
REAL = np.arange(9) < LENGTHS[:, None]


@pytest.mark.parametrize("path", ["plain", "blocked", "banded"])
@pytest.mark.parametrize("options", [{"window": (2, 3)}, {"window": (3, 0), "causal": True}], ids=["both", "causal"])
def test_lengths_hide_what_stands_behind_them(path, options):
    layer, x = made(4, 6, num_key_value_heads=2, path=path, **options), normal(3, 9, 12)
    left, right = options["window"]
    visible = (order(9) <= left) & (order(9) >= -right) & REAL[:, None, None, :]
    expected = formula(layer, x, visible=visible)[0]
    np.testing.assert_allclose(array(layer(x, lengths=LENGTHS)), expected, atol=1e-5)


@pytest.mark.parametrize("causal", [False, True])
def test_cross_attention_and_no_order(causal):
    layer, x, memory = made(2, 4, causal=causal), normal(3, 5, 12), normal(3, 9, 12)
    if not causal:
        masked, shorter = layer(x, memory, padding_mask=REAL), layer(x, memory, lengths=LENGTHS)
        np.testing.assert_allclose(array(shorter), array(masked), atol=1e-6)
        both = layer(x, memory, lengths=LENGTHS, padding_mask=np.arange(9)[None] != np.array([[1], [2], [3]]))
        expected = layer(x, memory, padding_mask=REAL & (np.arange(9)[None] != np.array([[1], [2], [3]])))
        np.testing.assert_allclose(array(both), array(expected), atol=1e-6)
    masked, shorter = layer(memory, padding_mask=REAL), layer(memory, lengths=LENGTHS)
    np.testing.assert_allclose(array(shorter)[REAL], array(masked)[REAL], atol=1e-6)


def test_positions_ascend_over_real_tokens():
    """Rows whose tokens were moved to the front keep their positions."""
    layer = MultiHeadAttention(2, 4, causal=True, position=RotaryEmbedding(4))
    x, real = normal(2, 6, 8), np.array([[0, 1, 0, 1, 1, 0], [1, 1, 0, 0, 0, 1]], bool)
    expected = array(layer(x, padding_mask=real))
    places = np.argsort(~real, axis=1, kind="stable")
    moved = np.take_along_axis(np.asarray(x), places[..., None], axis=1)
    output = array(layer(moved, lengths=np.array([3, 3], "int32"), positions=places.astype("int32")))
    for row in range(2):
        np.testing.assert_allclose(output[row, :3], expected[row][real[row]], atol=1e-6)


def test_blocks_pass_them_on():
    def block():
        keras.utils.set_random_seed(4)
        attention, cross = MultiHeadAttention(2, 4, name="self"), MultiHeadAttention(2, 4, name="cross")
        return TransformerBlock(attention, FeedForward(8), cross, norm=MaskedBatchNorm(), placement="pre")

    x, memory = normal(3, 9, 8), normal(3, 9, 8)
    expected = block()(x, memory, padding_mask=REAL, memory_padding_mask=REAL, training=True)
    output = block()(x, memory, lengths=LENGTHS, memory_lengths=LENGTHS, training=True)
    np.testing.assert_allclose(array(output)[REAL], array(expected)[REAL], atol=1e-5)


def test_what_is_refused():
    layer = MultiHeadAttention(2, 4, causal=True)
    x = normal(2, 3, 8)
    with pytest.raises(ValueError, match=r"lengths must have shape \(2,\), got \(3,\)"):
        layer(x, lengths=LENGTHS)
    with pytest.raises(ValueError, match="lengths must be integers, got type float32"):
        layer(x, lengths=np.ones(2, "float32"))
    with pytest.raises(ValueError, match="lengths must be None with a cache.*shape"):
        layer(x, lengths=LENGTHS[:2], cache=layer.make_cache(2, 4), cache_index=0)


def test_parts_of_a_mask():
    mask = AttentionMask(causal=True, key_lengths=LENGTHS)
    expected = (np.arange(9)[:, None] >= np.arange(9)) & REAL[:, None, None]
    np.testing.assert_array_equal(ops.convert_to_numpy(mask.materialize(9, 9)), expected)
    part = ops.convert_to_numpy(mask.materialize(2, 3, 4, 5))
    np.testing.assert_array_equal(part, expected[..., 4:6, 5:8])
    assert not mask.sees_something(9, 9)
    assert mask.with_padding_mask(9).key_lengths is None
