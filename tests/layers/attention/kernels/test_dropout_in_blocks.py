"""Dropout of attention weights that are never all there: the factors of blocks, twice the same."""

import keras
import numpy as np
import pytest
from keras import ops

from layers.attention import AttentionMask, MultiHeadAttention, attend
from layers.attention.kernels.blocked import blocked_attention
from layers.dropout import Dropout

# float32 sums of some dozens of terms
TOLERANCE = {"atol": 2e-5, "rtol": 2e-5}
BATCH, HEADS, KEY_HEADS, LENGTH, DIM, BLOCK = 2, 4, 2, 8, 4, 4


class Recorded:
    """Dropout whose factors are known: of each block of `BLOCK` queries and keys, by its number."""

    def __init__(self, rate=0.4):
        shape = (BATCH, KEY_HEADS, HEADS // KEY_HEADS * BLOCK, BLOCK)
        generator = np.random.default_rng(0)
        self.factors = (generator.random(((LENGTH // BLOCK) ** 2, *shape)) >= rate) / (1 - rate)
        self.factors = self.factors.astype("float32")

    def by_block(self):
        table = ops.convert_to_tensor(self.factors)
        return lambda number, shape, dtype: ops.cast(table[number], dtype)

    @property
    def whole(self):
        """`(batch, heads, length, length)`."""
        blocks = LENGTH // BLOCK
        x = self.factors.reshape(blocks, blocks, BATCH, KEY_HEADS, HEADS // KEY_HEADS, BLOCK, BLOCK)
        return x.transpose(2, 3, 4, 0, 5, 1, 6).reshape(BATCH, HEADS, LENGTH, LENGTH)


def tensors():
    generator = np.random.default_rng(1)
    shapes = [(BATCH, heads, LENGTH, DIM) for heads in (HEADS, KEY_HEADS, KEY_HEADS)]
    return [generator.normal(size=shape).astype("float32") for shape in shapes]


@pytest.mark.parametrize("options", [{}, {"soft_cap": 2.0}, {"sinks": True}], ids=["plain", "cap", "sinks"])
@pytest.mark.parametrize("mask", [{}, {"causal": True}, {"key_padding_mask": True}], ids=["all", "causal", "padding"])
def test_values_and_gradients_are_those_of_the_formula(gradients, options, mask):
    dropout, mask = Recorded(), dict(mask)
    sinks = np.linspace(-1, 1, HEADS).astype("float32")
    if "key_padding_mask" in mask:
        mask["key_padding_mask"] = np.arange(LENGTH) < np.array([[LENGTH], [LENGTH - 3]])
    mask = AttentionMask(**mask)

    def in_blocks(query, key, value, sinks):
        given = {**options, "sinks": sinks if options.get("sinks") else None}
        return blocked_attention(query, key, value, mask, scale=0.5, dropout=dropout, block_length=BLOCK, **given)

    def formula(query, key, value, sinks):
        key, value = (ops.repeat(x, HEADS // KEY_HEADS, axis=1) for x in (key, value))
        scores = ops.matmul(query, ops.transpose(key, (0, 1, 3, 2))) * 0.5
        if "soft_cap" in options:
            scores = 2.0 * ops.tanh(scores / 2.0)
        visible = mask.materialize(LENGTH, LENGTH)
        if visible is not None:
            scores = ops.where(visible, scores, -1e9)
        exponentials = ops.exp(scores - ops.stop_gradient(ops.max(scores, axis=-1, keepdims=True)))
        total = ops.sum(exponentials, axis=-1, keepdims=True)
        if options.get("sinks"):
            highest = ops.stop_gradient(ops.max(scores, axis=-1, keepdims=True))
            total = total + ops.exp(ops.reshape(sinks, (1, HEADS, 1, 1)) - highest)
        return ops.matmul(exponentials / total * dropout.whole, value)

    arrays = [*tensors(), sinks]
    given = [ops.convert_to_tensor(array) for array in arrays]
    found, expected = (ops.convert_to_numpy(function(*given)) for function in (in_blocks, formula))
    np.testing.assert_allclose(found, expected, **TOLERANCE)
    weights = np.random.default_rng(2).normal(size=found.shape).astype("float32")
    has_sinks = "sinks" in options
    by_blocks, by_formula = (
        gradients(
            lambda *x, function=function: ops.sum(function(*x, *([] if has_sinks else [None])) * weights),
            *arrays[: 4 if has_sinks else 3],
        )
        for function in (in_blocks, formula)
    )
    for ours, theirs in zip(by_blocks, by_formula, strict=True):
        np.testing.assert_allclose(ours, theirs, **TOLERANCE)


def layer_of(dtype="float32", rate=0.5):
    keras.utils.set_random_seed(3)
    layer = MultiHeadAttention(2, 4, dropout=rate, path="blocked", causal=True, dtype=dtype)
    layer.build((None, None, 8))
    return layer


@pytest.mark.parametrize("dtype", ["float32", "mixed_bfloat16"])
@pytest.mark.parametrize("compiled", [False, True])
def test_the_mean_of_many_draws_is_attention_without_dropout(dtype, compiled, with_xla):
    layer = layer_of(dtype)
    x = np.random.default_rng(0).normal(size=(64, 10, 8)).astype("float32")
    # 64 equal rows, which have factors of their own
    x[:] = x[:1]

    def call(x):
        return ops.cast(layer(x, training=True), "float32")

    draws = ops.convert_to_numpy(with_xla(call)(x) if compiled else call(x))
    expected = ops.convert_to_numpy(ops.cast(layer(x), "float32"))
    spread = draws.std(axis=0)
    assert (spread[1:] > 0).all()
    # six standard errors of a mean of 64
    assert (np.abs(draws.mean(axis=0) - expected[0]) <= 6 * spread / 8 + 0.02).all()


def test_each_call_draws_anew_and_no_two_blocks_alike():
    layer = layer_of()
    x = np.random.default_rng(0).normal(size=(1, 10, 8)).astype("float32")
    first, second = (ops.convert_to_numpy(layer(x, training=True)) for _ in range(2))
    assert np.abs(first - second).max() > 1e-3
    factors = Dropout(0.5, seed=1).by_block()
    blocks = [ops.convert_to_numpy(factors(number, (8, 8), "float32")) for number in (0, 1, 2, 1000, 2**20)]
    assert all((one != other).any() for place, one in enumerate(blocks) for other in blocks[:place])
    np.testing.assert_array_equal(blocks[1], ops.convert_to_numpy(factors(1, (8, 8), "float32")))
    # kept elements are scaled for the rate
    assert set(np.unique(blocks)) == {0.0, 2.0}


def test_a_layer_gives_equal_gradients_for_equal_draws(gradients):
    """The backward pass drops what the forward pass has dropped."""
    layer = layer_of()
    x = np.random.default_rng(0).normal(size=(2, 6, 8)).astype("float32")
    state = layer.weight_dropout.seed_generator.state
    start = ops.convert_to_numpy(state)

    def loss(x):
        state.assign(start)
        return ops.sum(ops.sin(layer(x, training=True)))

    (gradient,) = gradients(loss, x)
    direction = np.random.default_rng(1).normal(size=x.shape).astype("float32")
    step = 1e-2
    ends = [float(loss(ops.convert_to_tensor(x + sign * step * direction))) for sign in (1, -1)]
    # float32 and a step of 0.01: three digits
    assert (ends[0] - ends[1]) / (2 * step) == pytest.approx(float((gradient * direction).sum()), rel=5e-3, abs=5e-3)


def test_what_cannot_be_dropped_in_blocks_is_said():
    x = ops.ones((1, 2, 4, 4))
    with pytest.raises(ValueError, match="by_block"):
        attend(x, x, x, scale=1.0, dropout=lambda weights: weights, path="blocked")
