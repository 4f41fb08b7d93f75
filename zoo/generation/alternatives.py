"""The most probable tokens of a place, beside the one that a text has there."""

from typing import Any

from keras import ops

# Most of them that are told, as interfaces of language models allow.
MOST_ALTERNATIVES = 20


def most_probable(logits: Any) -> tuple[Any, Any]:
    """Returns the ids and log-probabilities of the `MOST_ALTERNATIVES` most probable tokens, the first ones first.

    Their number is a constant, as TensorFlow takes several times as long for one that is a tensor.

    Args:
        logits: Float `(..., vocabulary)`.

    Returns:
        int32 and float32 `(..., MOST_ALTERNATIVES)`; -1 and -inf behind those of a smaller vocabulary.

    Example:

    >>> ids, log_probabilities = most_probable(keras.ops.log([[0.2, 0.5, 0.3]]))
    >>> ids[0, :4]    # [1, 2, 0, -1]
    """
    logits = ops.cast(logits, "float32")
    count = min(MOST_ALTERNATIVES, logits.shape[-1])
    best, ids = ops.top_k(logits, count)
    best = best - ops.logsumexp(logits, axis=-1, keepdims=True)
    padding = [[0, 0]] * (len(logits.shape) - 1) + [[0, MOST_ALTERNATIVES - count]]
    ids = ops.pad(ops.cast(ids, "int32"), padding, constant_values=-1)
    return ids, ops.pad(best, padding, constant_values=float("-inf"))
