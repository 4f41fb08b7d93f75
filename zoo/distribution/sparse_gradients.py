"""Gradients of embedding tables on TensorFlow, where a token that a batch has several times has several rows."""

from collections.abc import Sequence
from typing import Any

import keras

from layers.keras_internals import clip_gradients, replace_clip_gradients


def sum_repeated_rows(optimizer: Any) -> None:
    """Makes an optimizer of TensorFlow add up the rows of each token before it clips gradients.

    Keras clips, and squares in the updates of most optimizers, each row by itself. The gradient of a table is their
    sum, as it is on the other backends, with gradient accumulation, and for a table that is tied to the output.

    Args:
        optimizer: The optimizer. On other backends it stays as it is.
    """
    if keras.backend.backend() != "tensorflow" or optimizer is None:
        return
    # those of which another one is made clip by themselves
    for each in getattr(optimizer, "optimizers", [getattr(optimizer, "inner_optimizer", optimizer)]):
        replace_clip_gradients(each, _clip)


def _clip(optimizer: Any, gradients: Sequence[Any]) -> list[Any]:
    return clip_gradients(optimizer, [_summed(gradient) for gradient in gradients])


def _summed(gradient: Any) -> Any:
    """The same gradient, in which the first row of a token has the sum and its other rows are zero.

    A table with a row for each token of the vocabulary would be much larger, and programs of XLA have no tensors of
    unknown sizes for the tokens that are different.
    """
    import tensorflow as tf

    if not isinstance(gradient, tf.IndexedSlices):
        return gradient
    indices, num_tokens = gradient.indices, tf.cast(gradient.dense_shape[0], tf.int32)
    num_rows = tf.size(indices)
    firsts = tf.gather(tf.math.unsorted_segment_min(tf.range(num_rows), indices, num_tokens), indices)
    values = tf.math.unsorted_segment_sum(gradient.values, firsts, num_rows)
    return tf.IndexedSlices(values, indices, gradient.dense_shape)
