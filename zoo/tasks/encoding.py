"""Graph functions between texts and token-level inputs that several tasks share."""

from typing import Any


def checked_lengths(inputs: dict[str, Any], longest: int) -> dict[str, Any]:
    """Returns token-level inputs that are an `InvalidArgumentError`, naming rows, where a row is too long.

    Args:
        inputs: Token-level inputs; those named `*padding_mask` are looked at, `(batch, length)`.
        longest: Most tokens that the model takes.

    Example:

    >>> checked_lengths({"padding_mask": tf.ones((1, 5), tf.bool)}, longest=4)
    InvalidArgumentError: A text has more tokens than the model takes (4); rows and their tokens: [0] [5]
    """
    import tensorflow as tf

    checks = []
    for name, mask in inputs.items():
        if name.endswith("padding_mask"):
            lengths = tf.reduce_sum(tf.cast(mask, tf.int32), axis=1)
            rows = tf.where(lengths > longest)[:, 0]
            message = f"A text has more tokens than the model takes ({longest}); rows and their tokens:"
            checks.append(tf.debugging.Assert(tf.equal(tf.size(rows), 0), [message, rows, tf.gather(lengths, rows)]))
    with tf.control_dependencies([check for check in checks if check is not None]):
        return {name: tf.identity(value) for name, value in inputs.items()}
