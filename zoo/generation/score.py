"""Log-likelihoods of given texts."""

from typing import Any

from keras import ops


def token_log_probabilities(logits: Any, labels: Any) -> Any:
    """Returns the log-probability of each label under the softmax of its logits, without a second full-size tensor.

    Args:
        logits: Float tensor `(..., vocabulary)`.
        labels: Integer tensor `(...)` with values in [0, vocabulary).

    Returns:
        float32 tensor `(...)`.
    """
    logits = ops.cast(logits, "float32")
    chosen = ops.take_along_axis(logits, ops.expand_dims(labels, -1), axis=-1)
    return ops.squeeze(chosen, -1) - ops.logsumexp(logits, axis=-1)


def score(logits: Any, labels: Any, mask: Any) -> dict[str, Any]:
    """Returns log-likelihoods of given continuations from the logits of one teacher-forced pass.

    `logits[:, t]` must be the prediction for `labels[:, t]`: for a sequence of ids x fed whole, logits of the positions
    0 to n - 2 stand against labels x[1:]. With the end token among the labels, the result for a text that `decode`
    generated equals the `log_probabilities` that `decode` returned.

    Args:
        logits: Float tensor `(batch, length, vocabulary)`.
        labels: Integer tensor `(batch, length)`. Where the mask is false any number may stand, also -1 or -100.
        mask: Bool tensor `(batch, length)`, true where a label counts.

    Returns:
        Dict with `log_probabilities` `(batch,)`, the sum over the counted tokens in nats; `token_log_probabilities`
        `(batch, length)`, 0 where the mask is false; `lengths` `(batch,)` int32, the number of counted tokens.

    Raises:
        ValueError: If the ranks do not fit.

    Example:

    >>> score(keras.ops.zeros((1, 2, 4)), [[3, 0]], [[True, False]])["log_probabilities"]    # [-log 4]
    """
    labels = ops.convert_to_tensor(labels)
    mask = ops.cast(mask, "bool")
    if len(logits.shape) != 3 or len(labels.shape) != 2 or len(mask.shape) != 2:
        raise ValueError(
            "logits, labels and mask must have the shapes (batch, length, vocabulary), (batch, length) and (batch, "
            f"length), got {tuple(logits.shape)}, {tuple(labels.shape)} and {tuple(mask.shape)}."
        )
    labels = ops.where(mask, ops.cast(labels, "int32"), 0)
    values = ops.where(mask, token_log_probabilities(logits, labels), 0.0)
    return {
        "log_probabilities": ops.sum(values, axis=-1),
        "token_log_probabilities": values,
        "lengths": ops.sum(ops.cast(mask, "int32"), axis=-1),
    }
