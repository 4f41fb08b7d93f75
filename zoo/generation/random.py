"""Random numbers that depend on nothing but (seed, stream, step), and draws from a distribution with them."""

from typing import Any

import numpy as np
from keras import ops
from keras.backend import standardize_dtype

from zoo.generation.checks import as_seed

# Rotation distances and key parity of Threefry-2x32 (Salmon et al. 2011, table 2 and section 3.3).
_ROTATIONS = ((13, 15, 26, 6), (17, 29, 16, 24))
_PARITY = 0x1BD11BDA
# Weights that are summed at once when a token is drawn.
_BLOCK = 256


def _uint32(value: Any) -> Any:
    """`value` as a tensor of 32-bit words; Python integers, arrays and integer tensors."""
    if ops.is_tensor(value):
        return ops.cast(value, "uint32")
    # by way of NumPy: JAX takes Python integers as 32 bits with a sign
    return ops.convert_to_tensor(np.asarray(value, "uint32"))


def _low(word: Any) -> Any:
    """The lower 32 bits, where the backend (PyTorch) holds unsigned integers of 32 bits in 64."""
    return word if standardize_dtype(word.dtype) == "uint32" else ops.bitwise_and(word, 0xFFFFFFFF)


def _add(first: Any, second: Any) -> Any:
    return _low(ops.add(first, second))


def _rotate_left(word: Any, distance: int) -> Any:
    return ops.bitwise_or(
        _low(ops.left_shift(word, _uint32(distance))),
        ops.right_shift(word, _uint32(32 - distance)),
    )


def threefry_2x32(key: tuple[Any, Any], counter: tuple[Any, Any]) -> tuple[Any, Any]:
    """The Threefry-2x32 block function with 20 rounds: a keyed bijection of 64-bit counters.

    Additions, exclusive ors and rotations of 32-bit words only, so every backend, device and compiler computes the
    same bits. Flipping one bit of the key or of the counter changes each output bit with probability one half, and
    the numbers made of consecutive counters (or of consecutive keys) pass the BigCrush battery of tests.

    Args:
        key: Pair of uint32 tensors that broadcast against each other and against the counter.
        counter: Pair of uint32 tensors.

    Returns:
        Pair of uint32 tensors of the broadcast shape.

    Reference:
        Salmon, Moraes, Dror and Shaw, "Parallel random numbers: as easy as 1, 2, 3" (2011), section 3.3.
    """
    keys = (key[0], key[1], ops.bitwise_xor(ops.bitwise_xor(key[0], key[1]), _uint32(_PARITY)))
    first = _add(counter[0], keys[0])
    second = _add(counter[1], keys[1])
    for group in range(5):
        for distance in _ROTATIONS[group % 2]:
            first = _add(first, second)
            second = ops.bitwise_xor(_rotate_left(second, distance), first)
        first = _add(first, keys[(group + 1) % 3])
        second = _add(_add(second, keys[(group + 2) % 3]), _uint32(group + 1))
    return first, second


def uniforms(seed: Any, streams: Any, count: Any, purpose: int = 0, first: Any = 0) -> Any:
    """Returns one uniform random number per row and step, each a function of (seed, stream, step, purpose) alone.

    A row therefore draws the same numbers whatever else is in the batch, however the batch is padded, on
    every backend, with and without XLA, and however many steps are asked for. The key of `threefry_2x32` is
    (seed, stream), its counter is (step, purpose).

    Args:
        seed: Integer in [0, 2**32), or an integer tensor: a scalar, or the seed of each row, `(batch,)`.
        streams: Integer tensor `(batch,)`, the stream of each row; equal numbers give equal rows.
        count: Number of steps, an integer or an int32 scalar.
        purpose: Python integer; another one gives other numbers, for a second draw in the same step.
        first: The first step, for all rows or of each, `(batch,)`.

    Returns:
        float32 tensor `(count, batch)`: odd multiples of 2**-24, strictly between 0 and 1.

    Raises:
        ValueError: If a Python seed is not an integer in [0, 2**32).

    Example:

    >>> uniforms(seed=7, streams=[0, 1], count=3).shape
    (3, 2)
    """
    steps = ops.expand_dims(ops.arange(count, dtype="int32"), 1) + first
    stream_words, step_words = _low(_uint32(ops.expand_dims(streams, 0))), _low(_uint32(steps))
    nothing = ops.zeros_like(stream_words)
    key, counter = (ops.add(nothing, _low(_uint32(as_seed(seed)))), stream_words), ops.zeros_like(step_words)
    words, _ = threefry_2x32(key, (step_words, counter + _uint32(purpose)))
    # 23 bits and a half: exact in float32, and neither 0 nor 1 can occur.
    numbers = ops.cast(ops.right_shift(words, _uint32(9)), "float32")
    return (2.0 * numbers + 1.0) * 2.0**-24


def _invert(weights: Any, target: Any) -> tuple[Any, Any]:
    """First index at which the running sum of `weights` `(batch, size)` exceeds `target` `(batch, 1)`.

    Also returns the running sum before it, `(batch, 1)`. Running sums that are computed in parallel need not be
    monotone to the last bit, nor end at exactly the sum: an entry of weight zero is skipped all the same, and a target
    that nothing exceeds falls to the last positive entry.
    """
    size = weights.shape[-1]
    running = ops.cumsum(weights, axis=-1)
    places = ops.arange(size, dtype="int32")
    positive = weights > 0.0
    exceeds = ops.logical_and(running > target, positive)
    first = ops.min(ops.where(exceeds, places, size), axis=-1, keepdims=True)
    last = ops.max(ops.where(positive, places, 0), axis=-1, keepdims=True)
    index = ops.minimum(first, last)
    before = ops.take_along_axis(running, index, axis=-1) - ops.take_along_axis(weights, index, axis=-1)
    return index[:, 0], before


def draw(weights: Any, numbers: Any) -> Any:
    """Draws one index per row with probability proportional to its weight, by inversion of the distribution.

    The running sum is taken in two levels (over blocks, then within the chosen block): faster than one long sum and
    with smaller rounding errors. The probability of an index is exact up to the resolution of the numbers, 2**-23.

    Args:
        weights: float32 tensor `(batch, size)`, not negative, at least one positive per row.
        numbers: float32 tensor `(batch,)`, uniform in (0, 1).

    Returns:
        int32 tensor `(batch,)`. An index of weight zero is never returned.
    """
    size = weights.shape[-1]
    target = ops.expand_dims(numbers, -1)
    if size <= _BLOCK:
        index, _ = _invert(weights, target * ops.sum(weights, axis=-1, keepdims=True))
        return index
    blocks = -(-size // _BLOCK)
    padded = ops.pad(weights, ((0, 0), (0, blocks * _BLOCK - size)))
    padded = ops.reshape(padded, (-1, blocks, _BLOCK))
    sums = ops.sum(padded, axis=-1)
    target = target * ops.sum(sums, axis=-1, keepdims=True)
    block, before = _invert(sums, target)
    inside = ops.take_along_axis(padded, ops.reshape(block, (-1, 1, 1)), axis=1)[:, 0]
    index, _ = _invert(inside, target - before)
    return block * _BLOCK + index
