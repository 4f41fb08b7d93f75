"""Cross-entropy over a vocabulary, with as few passes over the vocabulary-sized tensor as possible."""

import math
from collections.abc import Callable
from typing import Any

import keras
from keras import ops

from layers.keras_internals import share_of_loss
from zoo.counts import CountedLoss, is_concrete, number_counted, weights_of_tokens
from zoo.training.token_scores import TokenScores


def check_labels(labels: Any, vocabulary_size: int | None) -> None:
    """Raises an error for a label that is not a class, if its value can be read.

    Args:
        labels: Ints of any shape.
        vocabulary_size: Number of classes, or None if it is not known yet.

    Raises:
        ValueError: If executed eagerly and a label is below 0 or not below `vocabulary_size`.
    """
    if vocabulary_size is None or not is_concrete(labels):
        return
    values = ops.convert_to_numpy(labels)
    if values.size and (values.min() < 0 or values.max() >= vocabulary_size):
        raise ValueError(
            f"y_true must hold labels from 0 to {vocabulary_size - 1}, as the logits have {vocabulary_size} classes, "
            f"also where sample_weight masks them, got labels from {int(values.min())} to {int(values.max())}."
        )


def softmax_and_log_normalizer(logits: Any) -> tuple[Any, Any]:
    """Returns the softmax of float32 logits and the logarithm of its normalizer.

    The normalizer is read off the largest probability, `max(z) - log(max(softmax(z)))`: two cheap reductions instead of
    a second exponential over the vocabulary. The largest probability is at least `1 / vocabulary`, so its
    logarithm never underflows. The loss and the metrics call this function with the same logits; inside one compiled
    step the compiler computes it once for all of them.

    Args:
        logits: Float tensor `(tokens, vocabulary)`.

    Returns:
        Probabilities `(tokens, vocabulary)` and log-sum-exp of the logits `(tokens,)`.

    Example:

    >>> _, log_normalizer = softmax_and_log_normalizer(keras.ops.zeros((1, 4)))   # log 4
    """
    probabilities = ops.softmax(logits, axis=-1)
    # with an `initial` Keras takes no tokens, too
    highest, largest = ops.max(logits, axis=-1, initial=-math.inf), ops.max(probabilities, axis=-1, initial=0.0)
    log_normalizer = highest - ops.log(largest)
    return probabilities, log_normalizer


def flatten_tokens(labels: Any, logits: Any, dtype: str = "float32") -> tuple[Any, Any]:
    """Returns logits as `(tokens, vocabulary)` in `dtype`, and labels as int32 `(tokens,)`.

    Args:
        labels: Ints `(batch, length)`, any rank.
        logits: Floats `(batch, length, vocabulary)`: one axis more than the labels.
        dtype: Dtype of the returned logits.

    Raises:
        ValueError: If the ranks do not fit, or, in eager execution, if a label is out of range.

    Example:

    >>> logits, labels = flatten_tokens(y_true, y_pred)
    """
    logits = ops.convert_to_tensor(logits)
    labels = ops.convert_to_tensor(labels)
    if len(labels.shape) != len(logits.shape) - 1:
        raise ValueError(
            "y_true must hold one integer label per position, with one axis less than the logits y_pred, got the "
            f"shapes {tuple(labels.shape)} and {tuple(logits.shape)}."
        )
    check_labels(labels, logits.shape[-1])
    labels = ops.cast(ops.reshape(labels, (-1,)), "int32")
    return ops.cast(ops.reshape(logits, (-1, ops.shape(logits)[-1])), dtype), labels


def labels_in_range(labels: Any, logits: Any) -> tuple[Any, Any]:
    """Returns labels clipped to the range of the classes, which gathering needs, and which of them were in range.

    Args:
        labels: Ints `(tokens,)`.
        logits: `(tokens, vocabulary)`.

    Example:

    >>> labels, valid = labels_in_range(labels, logits)
    """
    vocabulary_size = ops.shape(logits)[-1]
    return ops.clip(labels, 0, vocabulary_size - 1), ops.logical_and(labels >= 0, labels < vocabulary_size)


def logits_of_labels(logits: Any, labels: Any) -> Any:
    """Returns the logit of each label, `(tokens,)`, from logits `(tokens, vocabulary)` and labels `(tokens,)`."""
    return ops.squeeze(ops.take_along_axis(logits, ops.expand_dims(labels, -1), axis=-1), -1)


def score_labels(logits: Any, labels: Any, label_smoothing: float = 0.0) -> tuple[Any, Any, Any]:
    """Returns the cross-entropy of each token, and what the gradient and the metrics need.

    Args:
        logits: Floats `(tokens, vocabulary)`, in the dtype of the computation.
        labels: Ints `(tokens,)`.
        label_smoothing: Share of the target distribution that is spread evenly over all classes.

    Returns:
        Losses in nats and log-likelihoods of the labels, `(tokens,)`, NaN for a label out of range; and the
        probabilities `(tokens, vocabulary)`.

    Example:

    >>> losses, log_likelihoods, probabilities = score_labels(logits, labels, label_smoothing=0.1)
    """
    labels, valid = labels_in_range(labels, logits)
    probabilities, log_normalizer = softmax_and_log_normalizer(logits)
    at_labels = logits_of_labels(logits, labels)
    losses = log_normalizer - (1.0 - label_smoothing) * at_labels
    if label_smoothing:
        losses = losses - label_smoothing * ops.mean(logits, axis=-1)
    losses, log_likelihoods = (ops.where(valid, x, float("nan")) for x in (losses, at_labels - log_normalizer))
    return losses, log_likelihoods, probabilities


def gradient_by_logits(probabilities: Any, labels: Any, label_smoothing: float, upstream: Any) -> Any:
    """Returns the gradient of the losses of `score_labels` with respect to the logits, `(softmax - target) * upstream`.

    Args:
        probabilities: What `score_labels` returned.
        labels, label_smoothing: As for `score_labels`.
        upstream: Gradient with respect to the losses, `(tokens,)`.

    Returns:
        `(tokens, vocabulary)`, 0 for a label out of range.

    Example:

    >>> gradient = gradient_by_logits(probabilities, labels, 0.1, keras.ops.ones_like(losses))
    """
    labels, valid = labels_in_range(labels, probabilities)
    upstream = ops.where(valid, upstream, 0.0)
    everywhere, at_labels = probabilities, logits_of_labels(probabilities, labels)
    if label_smoothing:
        uniform = label_smoothing / ops.cast(ops.shape(probabilities)[-1], probabilities.dtype)
        everywhere, at_labels = everywhere - uniform, at_labels - uniform
    indices = ops.stack([ops.arange(ops.shape(labels)[0], dtype="int32"), labels], axis=-1)
    return ops.scatter_update(
        everywhere * ops.expand_dims(upstream, -1), indices, (at_labels - (1.0 - label_smoothing)) * upstream
    )


def smoothed_cross_entropy(labels: Any, logits: Any, label_smoothing: float = 0.0, dtype: str = "float32") -> Any:
    """Returns the cross-entropy of each token, with a gradient of its own.

    Automatic differentiation of `logsumexp` and `gather` passes over the vocabulary-sized tensor about ten times and
    holds several of its size. Here the forward pass keeps the probabilities, and the backward pass turns them into the
    gradient. The result can be differentiated once.

    Args:
        labels: Ints `(batch, length)` in `[0, vocabulary)`.
        logits: Floats of any dtype `(batch, length, vocabulary)`.
        label_smoothing: Share of the target distribution that is spread evenly over all classes.
        dtype: Dtype of the computation and of the result.

    Returns:
        Losses in nats, `(batch, length)`; NaN for a label out of range in a compiled function.

    Raises:
        ValueError: In eager execution, if a label is out of range.

    Example:

    >>> losses = smoothed_cross_entropy(labels, logits, label_smoothing=0.1)

    Reference:
        Szegedy et al. 2016, "Rethinking the Inception architecture", section 7.
    """
    labels = ops.convert_to_tensor(labels)
    shape = ops.shape(labels)
    logits, labels = flatten_tokens(labels, logits, dtype)

    # The labels are closed over: they have no gradient, and the backends do not treat an integer argument of a custom
    # gradient alike.
    @ops.custom_gradient
    def cross_entropy(logits: Any) -> tuple[Any, Callable[..., Any]]:
        losses, _, probabilities = score_labels(logits, labels, label_smoothing)

        def gradient(*arguments: Any, upstream: Any = None) -> Any:
            upstream = arguments[0] if upstream is None else upstream
            return gradient_by_logits(probabilities, labels, label_smoothing, upstream)

        return losses, gradient

    return ops.reshape(cross_entropy(logits), shape)


@keras.saving.register_keras_serializable("keras_transformer_zoo")
class TokenCrossEntropy(CountedLoss):
    """Cross-entropy of the next token, averaged over the tokens that count.

    The target of a token with label `y` is `1 - label_smoothing` at `y` plus `label_smoothing / vocabulary` at *every*
    class, including the right one (Szegedy et al. 2016, which "Attention Is All You Need" cites). fairseq and
    tensor2tensor spread their epsilon over the wrong classes only. Theirs equals ours with
    `label_smoothing = epsilon * vocabulary / (vocabulary - 1)`; tensor2tensor also subtracts a constant.

    The weighted losses are added up, and divided by the number of tokens whose weight is not 0. With 1 for tokens and 0
    for padding it is the mean over the real tokens of the batch. The loss of a batch without real tokens is 0.

    Args:
        label_smoothing: Fraction of the target that is spread evenly over the vocabulary, in `[0, 1)`.
        reduction: See `zoo.counts.CountedLoss`.
        name: Name of the loss.
        dtype: Dtype of the computation. Keep float32: logits in half precision are converted first.

    Call arguments:
        y_true: Ints `(batch, length)`. A label outside `[0, vocabulary)` raises a `ValueError` in eager execution, and
            gives a NaN loss in a compiled function, on which `StopOnNonFiniteLoss` stops the training. Masked labels
            must be in range too.
        y_pred: Logits of any float dtype `(batch, length, vocabulary)`, or the `TokenScores` of the same labels and
            weights.
        sample_weight: `(batch, length)`, 0 where a token does not count.

    Raises:
        ValueError: If `label_smoothing` is outside `[0, 1)`, or the shapes do not fit.

    Example:

    >>> model.compile("adam", loss=TokenCrossEntropy(label_smoothing=0.1), weighted_metrics=[TokenAccuracy()])

    Reference:
        Vaswani et al. 2017, section 5.4; Szegedy et al. 2016, section 7.
    """

    def __init__(
        self,
        label_smoothing: float = 0.0,
        reduction: str | None = "sum_over_batch_size",
        name: str = "token_cross_entropy",
        dtype: str = "float32",
    ) -> None:
        if not 0.0 <= label_smoothing < 1.0:
            raise ValueError(f"label_smoothing must be at least 0 and below 1, got {label_smoothing}.")
        super().__init__(name=name, reduction=reduction, dtype=dtype)
        self.label_smoothing = float(label_smoothing)

    def __call__(self, y_true: Any, y_pred: Any, sample_weight: Any = None) -> Any:
        if not isinstance(y_pred, TokenScores):
            return super().__call__(y_true, y_pred, weights_of_tokens(y_true, sample_weight))
        if self.reduction == "sum":
            return y_pred.total
        if sample_weight is None:
            divisor = ops.cast(ops.size(y_pred.log_likelihoods), "float32")
        elif self.reduction == "mean_with_sample_weight":
            divisor = ops.sum(ops.cast(sample_weight, "float32"))
        else:
            divisor = number_counted(ops.broadcast_to(sample_weight, ops.shape(y_pred.log_likelihoods)))
        return share_of_loss(ops.divide_no_nan(y_pred.total, divisor))

    def call(self, y_true: Any, y_pred: Any) -> Any:
        return smoothed_cross_entropy(y_true, y_pred, self.label_smoothing, self.dtype)
