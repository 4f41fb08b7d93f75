"""Helpers for loops over blocks with `keras.ops.while_loop`."""

from typing import Any

import keras
from keras import ops


def replace_block(blocks: Any, index: Any, block: Any) -> Any:
    """Returns `blocks` with the block at `index` of the first axis replaced."""
    # a scatter, because TensorFlow compiles `slice_update` with XLA even in a graph without XLA
    return ops.scatter_update(blocks, ops.reshape(index, (1, 1)), ops.expand_dims(block, 0))


def next_index(index: Any, result: Any) -> Any:
    """Returns `index + 1`; with TensorFlow it is known only once `result` is.

    TensorFlow runs up to ten iterations of a loop at the same time, each with its own memory. A counter that waits for
    the result of an iteration makes it run them one by one. On other backends the counter must not depend on results:
    if several loops are vectorized into one, it would differ between them.
    """
    if keras.backend.backend() != "tensorflow":
        return index + 1
    return index + 1 + ops.cast(ops.sum(result[(slice(1),) * len(result.shape)]) > float("inf"), "int32")
