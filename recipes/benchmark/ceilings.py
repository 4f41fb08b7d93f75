"""What the machine can do: matrix products per type and shape, and how fast memory is read."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Any

import numpy as np

from recipes.benchmark.works import Work

_SECONDS, _ROUNDS = 0.15, 5


def product_shapes(work: Work) -> list[tuple[int, int, int]]:
    """Returns the shapes `(rows, inner, columns)` of the matrix products that a work mostly consists of.

    Args:
        work: The work, which generates nothing.
    """
    rows = work.batch_size * work.length
    width, wide = work.hidden_dim, work.intermediate_dim
    shapes = [(rows, width, width), (rows, width, wide), (rows, wide, width)]
    if work.model != "encoder":
        shapes.append((rows, width, work.vocabulary_size))
    if work.job == "train":
        # those of the gradients by the weights
        shapes += [(inner, rows, columns) for rows, inner, columns in tuple(shapes)]
    return shapes


def product_speed(shape: tuple[int, int, int], dtype: str) -> float:
    """Returns floating-point operations per second of a matrix product, the best of some turns on all cores.

    Args:
        shape: `(rows, inner, columns)`.
        dtype: "float32" or "bfloat16".
    """
    import tensorflow as tf

    rows, inner, columns = shape
    left = tf.cast(tf.random.normal((rows, inner)), dtype)
    right = tf.cast(tf.random.normal((inner, columns)), dtype)
    product = tf.function(tf.matmul, autograph=False)
    return 2.0 * rows * inner * columns / _fastest(lambda: product(left, right))


def ceiling(work: Work) -> dict[str, float]:
    """Returns the operations per second of each type that a work would run at, were it products alone.

    Every shape counts by its share of the operations: the mean is harmonic. Where tokens are generated, weights are
    read once for few rows: there it is the bytes per second of memory.

    Args:
        work: The work.
    """
    if work.job == "generate":
        return {"memory": memory_bandwidth()}
    speeds = {}
    for dtype in ("float32", "bfloat16"):
        shapes = product_shapes(work)
        sizes = [float(np.prod(shape)) for shape in shapes]
        seconds = sum(size / product_speed(shape, dtype) for size, shape in zip(sizes, shapes, strict=True))
        speeds[dtype] = sum(sizes) / seconds
    return speeds


def memory_bandwidth(megabytes: int = 256) -> float:
    """Returns bytes per second that all cores read from memory.

    Args:
        megabytes: Size of what is read: more than the caches hold.
    """
    import tensorflow as tf

    numbers = tf.ones(megabytes << 18)
    largest = tf.function(tf.reduce_max, autograph=False)
    return 4.0 * int(tf.size(numbers)) / _fastest(lambda: largest(numbers))


def _fastest(work: Callable[[], Any]) -> float:
    work()
    started = time.perf_counter()
    work()
    calls = max(1, int(_SECONDS / _ROUNDS / max(time.perf_counter() - started, 1e-7)))
    turns = []
    for _ in range(_ROUNDS):
        started = time.perf_counter()
        for _ in range(calls):
            work()
        turns.append((time.perf_counter() - started) / calls)
    return min(turns)
