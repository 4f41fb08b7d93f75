"""Rows of similar length in one batch, results in the order of the rows; lengths of few kinds."""

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np


def map_by_length(
    function: Callable[[np.ndarray], Sequence[Any]], lengths: Sequence[int], batch_size: int
) -> list[Any]:
    """Calls a function on batches of rows of similar length and returns its results in the order of the rows.

    Rows of similar length share a batch, which saves padding. Everything that a task computes for many texts goes
    through here: `predict`, `generate`, `score`, `embed`.

    Args:
        function: From the numbers of the rows of a batch, int64 `(rows,)`, to one result per row: an array or a list.
        lengths: Number of tokens of each row.
        batch_size: Most rows of a batch.

    Returns:
        One result per row.

    Example:

    >>> texts = ["four words are here", "one", "two words"]
    >>> map_by_length(lambda rows: [texts[row].upper() for row in rows], [4, 1, 2], batch_size=2)
    ['FOUR WORDS ARE HERE', 'ONE', 'TWO WORDS']
    """
    order = np.argsort(np.asarray(lengths, "int64"), kind="stable")
    results: list[Any] = [None] * len(order)
    for start in range(0, len(order), batch_size):
        rows = order[start : start + batch_size]
        for row, result in zip(rows, function(rows), strict=True):
            results[row] = result
    return results


def padded_length(longest: Any, most: int | None = None) -> Any:
    """Returns the length that a batch is padded to: one of few, so that XLA compiles few programs.

    The lengths are 8, 16, 24, 32, 40, 48, 56, 64, 80, 96, 112, 128, 160 and so on: multiples of 8 up to 64, then four
    to each doubling. Above 64 a row grows by less than a quarter; 512 tokens need 20 programs at most.

    Args:
        longest: Tokens of the longest row: a Python integer, or an integer tensor of TensorFlow (in a graph).
        most: Most tokens that the model takes: rows are not padded beyond it. A row that is longer stays as it is.

    Returns:
        The length, at least 1: an integer of the kind of `longest`.

    Example:

    >>> [padded_length(longest) for longest in (1, 8, 9, 65, 100)]
    [8, 8, 16, 80, 112]
    >>> padded_length(65, most=70)
    70
    """
    if isinstance(longest, (int, np.integer)):
        step = max(8, 1 << max(int(longest) - 1, 0).bit_length() >> 3)
        length = max(-(-int(longest) // step), 1) * step
        return length if most is None else max(min(length, most), int(longest), 1)
    import tensorflow as tf

    # the number of bits of longest - 1
    powers = tf.constant([1 << bit for bit in range(31)], longest.dtype)
    bits = tf.reduce_sum(tf.cast(longest > powers, tf.int32))
    step = tf.maximum(tf.bitwise.left_shift(tf.ones_like(longest), tf.cast(bits, longest.dtype)) // 8, 8)
    length = tf.maximum(-(-longest // step), 1) * step
    return length if most is None else tf.maximum(tf.maximum(tf.minimum(length, most), longest), 1)
