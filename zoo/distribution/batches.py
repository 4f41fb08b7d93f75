"""The part of a batch that each replica and each process has: whole batches, of which the last is filled up."""

from collections.abc import Sequence
from typing import Any

import keras


def for_replicas(
    dataset: Any,
    num_replicas: int,
    *,
    fills_up: bool = True,
    own: Sequence[int] | None = None,
) -> Any:
    """Returns a dataset whose batches have as many rows for each replica, and of these the rows of this process.

    A batch is filled up with rows that have no weight and no token. All processes assemble the whole batch: its rows
    are then the same on any number of processes.

    Args:
        dataset: A `tf.data.Dataset` of batches `(inputs, labels)` or `(inputs, labels, sample_weight)`.
        num_replicas: Replicas of all processes.
        fills_up: Whether a batch is filled up; otherwise one of which the replicas would not have as many rows each is
            an error when it comes.
        own: Replicas of this process; None for all.
    """
    import tensorflow as tf

    @tf.autograph.experimental.do_not_convert
    def divide(*batch: Any) -> tuple[Any, Any, Any]:
        inputs, labels, weights = keras.utils.unpack_x_y_sample_weight(batch)
        rows = tf.shape(keras.tree.flatten(inputs)[0])[0]
        if weights is None:
            weights = tf.ones([rows])
        each = -(-rows // num_replicas)
        if not fills_up:
            message = f"The loss compares the rows of a batch, so {num_replicas} replicas must divide them, got rows:"
            with tf.control_dependencies([tf.debugging.Assert(rows % num_replicas == 0, [message, rows])]):
                each = tf.identity(each)

        def part(values: Any) -> Any:
            missing = [[0, each * num_replicas - rows], *[[0, 0]] * (values.shape.rank - 1)]
            filled = tf.pad(values, missing)
            if own is None or len(own) == num_replicas:
                return filled
            return tf.concat([filled[index * each : (index + 1) * each] for index in own], axis=0)

        return keras.tree.map_structure(part, (inputs, labels, weights))

    divided = dataset.map(divide, num_parallel_calls=tf.data.AUTOTUNE, deterministic=True)
    # a dataset may know its number of batches from its user alone
    divided.cardinality = dataset.cardinality
    return divided


def batches_of_arrays(x: Any, y: Any, sample_weight: Any, batch_size: int | None, shuffle: bool) -> Any:
    """Returns a dataset of batches of arrays on token level.

    Args:
        x, y, sample_weight: Arrays, nested in dictionaries; the last may be None.
        batch_size: Rows per batch. Default 32.
        shuffle: Whether rows are shuffled anew in each epoch.
    """
    import tensorflow as tf

    parts = (x, y) if sample_weight is None else (x, y, sample_weight)
    dataset = tf.data.Dataset.from_tensor_slices(parts)
    if shuffle:
        dataset = dataset.shuffle(len(keras.tree.flatten(x)[0]))
    return dataset.batch(32 if batch_size is None else batch_size)
