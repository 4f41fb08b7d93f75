"""Helpers for loops over blocks with `keras.ops.while_loop`."""

from typing import Any

import keras
from keras import ops


def replace_block(blocks: Any, index: Any, block: Any) -> Any:
    """`blocks` with the one at `index` of the first axis replaced."""
    # Scattering, because TensorFlow without XLA runs `slice_update` by compiling it with XLA.
    return ops.scatter_update(blocks, ops.reshape(index, (1, 1)), ops.expand_dims(block, 0))


def after(index: Any, result: Any) -> Any:
    """`index` + 1, known only once `result` is.

    TensorFlow starts on the next turns of a loop, up to ten of them, as soon as what they need is known, each with
    memory of its own. A counter that waits for the result of a turn makes it one at a time. Elsewhere the counter must
    not depend on results: where several loops are one, it would differ from loop to loop.
    """
    if keras.backend.backend() != "tensorflow":
        return index + 1
    return index + 1 + ops.cast(ops.sum(result[(slice(1),) * len(result.shape)]) > float("inf"), "int32")
