"""Drawing from a categorical distribution with one uniform number per row, and restricting its support."""

import math
from typing import Any

from keras import ops

_BLOCK = 256
# Halvings of an interval of about 15 nats: the cut is found to about 1e-7, the spacing of float32 numbers near 1.
_HALVINGS = 27


def nucleus(weights: Any, top_p: float) -> Any:
    """Marks the smallest set of most probable tokens that holds at least the mass `top_p`.

    The set is found as a threshold on the logarithms by bisection, without sorting the vocabulary. Tokens that tie
    with the least probable member are all kept, so the result does not depend on the order of the vocabulary.

    Args:
        weights: float32 tensor `(batch, vocabulary)`, probabilities divided by the largest of the row.
        top_p: Probability mass to keep, in (0, 1).

    Returns:
        bool tensor `(batch, vocabulary)`; the most probable token may be missing by a rounding.

    Reference:
        Holtzman et al. 2020, "The curious case of neural text degeneration", section 3.1.
    """
    total = ops.sum(weights, axis=-1, keepdims=True)
    wanted = top_p * total
    # All tokens less probable than (1 - top_p) / vocabulary together hold less than 1 - top_p: the cut is above.
    low = ops.log(total) + math.log((1.0 - top_p) / weights.shape[-1])
    high = ops.ones_like(low) * 1e-3

    def halve(_: Any, interval: tuple[Any, Any]) -> tuple[Any, Any]:
        low, high = interval
        middle = 0.5 * (low + high)
        mass = ops.sum(ops.where(weights >= ops.exp(middle), weights, 0.0), axis=-1, keepdims=True)
        enough = mass >= wanted
        return ops.where(enough, middle, low), ops.where(enough, high, middle)

    low, _ = ops.fori_loop(0, _HALVINGS, halve, (low, high))
    return weights >= ops.exp(low)


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
