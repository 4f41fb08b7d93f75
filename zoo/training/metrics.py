"""Token metrics: exact means over the tokens that count, for batches of any lengths."""

from typing import Any

import keras
from keras import ops

from layers.keras_internals import mask_of
from zoo.counts import ExactSum, quotient, weights_of_tokens
from zoo.training.losses import flatten_tokens, labels_in_range, score_labels
from zoo.training.token_scores import TokenScores


def token_weights(y_true: Any, y_pred: Any, sample_weight: Any = None) -> Any:
    """Returns the weight of each token, `(batch * length,)`, in float32.

    Args:
        y_true: Labels `(batch, length)`.
        y_pred: Logits. They carry the implicit mask of a model (`Embedding(mask_zero=True)`), as for Keras's losses.
        sample_weight: Weights of rows or tokens, see `zoo.counts.weights_of_tokens`. None for 1.

    Example:

    >>> token_weights(labels, logits, sample_weight)
    """
    y_true = ops.convert_to_tensor(y_true)
    weights = ops.ones(ops.shape(y_true), "float32")
    if sample_weight is not None:
        weights = weights * weights_of_tokens(y_true, ops.convert_to_tensor(sample_weight, "float32"))
    mask = mask_of(y_pred)
    if mask is not None:
        weights = weights * ops.cast(mask, "float32")
    return ops.reshape(weights, (-1,))


class _TokenMean(keras.metrics.Metric):
    """Mean of a value over tokens.

    `keras.metrics.Mean` first averages each row over its length, so that tokens of a batch padded to 40 count half as
    much as those of a batch padded to 20. Here every token counts the same.
    """

    def __init__(self, name: str, dtype: str = "float32") -> None:
        super().__init__(name=name, dtype=dtype)
        self.total, self.count = ExactSum(self, "total"), ExactSum(self, "count")

    def of_logits(self, logits: Any, labels: Any) -> Any:
        """Values of tokens, `(tokens, vocabulary)` and `(tokens,)` to `(tokens,)`; NaN for a label out of range."""
        raise NotImplementedError

    def of_scores(self, scores: TokenScores) -> Any:
        """The same of what was kept of the logits, `(batch, length)`."""
        raise NotImplementedError

    def update_state(self, y_true: Any, y_pred: Any, sample_weight: Any = None) -> None:
        """Adds a batch.

        Args:
            y_true: Ints `(batch, length)`.
            y_pred: Logits `(batch, length, vocabulary)`, or the `TokenScores` of the same labels.
            sample_weight: `(batch, length)`, 0 where a token does not count; default: all count.
        """
        if isinstance(y_pred, TokenScores):
            values = ops.reshape(self.of_scores(y_pred), (-1,))
        else:
            values = self.of_logits(*flatten_tokens(y_true, y_pred))
        weights = token_weights(y_true, y_pred, sample_weight)
        self.total.add(ops.sum(values * weights))
        self.count.add(ops.sum(weights))

    def result(self) -> Any:
        return quotient(self.total, self.count)


@keras.saving.register_keras_serializable("keras_transformer_zoo")
class TokenNegativeLogLikelihood(_TokenMean):
    """Mean negative log-likelihood of the labels in nats per token, without label smoothing.

    Pass it to `compile(weighted_metrics=[...])`. Keras passes no weights to `metrics=[...]`, so padding would count
    there. In a compiled training step it shares the softmax of `TokenCrossEntropy`, and takes almost no time.

    Args:
        name: Name in the logs.

    Raises:
        ValueError: If shapes do not fit, or, in eager execution, if a label is out of range (NaN in a compiled
            function).

    Example:

    >>> model.compile("adam", TokenCrossEntropy(0.1), weighted_metrics=[TokenNegativeLogLikelihood()])
    """

    def __init__(self, name: str = "negative_log_likelihood", dtype: str = "float32") -> None:
        super().__init__(name=name, dtype=dtype)
        self._direction = "down"

    def of_logits(self, logits: Any, labels: Any) -> Any:
        return score_labels(logits, labels)[0]

    def of_scores(self, scores: TokenScores) -> Any:
        return -scores.log_likelihoods


@keras.saving.register_keras_serializable("keras_transformer_zoo")
class Perplexity(TokenNegativeLogLikelihood):
    """Perplexity: the exponential of the mean negative log-likelihood per token over all batches.

    Args:
        name: Name in the logs.

    Example:

    >>> model.compile("adam", TokenCrossEntropy(0.1), weighted_metrics=[Perplexity()])
    """

    def __init__(self, name: str = "perplexity", dtype: str = "float32") -> None:
        super().__init__(name=name, dtype=dtype)

    def result(self) -> Any:
        return ops.exp(super().result())


def _argmax(logits: Any) -> Any:
    """Index of the first of the largest logits, int32.

    `keras.ops.argmax` on TensorFlow first rewrites negative zeros, five passes over the tensor in place of one.
    """
    if keras.backend.backend() == "tensorflow":
        import tensorflow as tf

        return tf.argmax(logits, axis=-1, output_type=tf.int32)
    return ops.cast(ops.argmax(logits, axis=-1), "int32")


def are_hits(logits: Any, labels: Any) -> Any:
    """Returns 1 where a label has the first of the largest logits, else 0; NaN for a label out of range.

    Args:
        logits: `(tokens, vocabulary)`.
        labels: Ints `(tokens,)`.

    Returns:
        Float32 `(tokens,)`.

    Example:

    >>> are_hits(keras.ops.convert_to_tensor([[1.0, 2.0]]), keras.ops.convert_to_tensor([1]))  # [1.0]
    """
    _, valid = labels_in_range(labels, logits)
    return ops.where(valid, ops.cast(ops.equal(_argmax(logits), labels), "float32"), float("nan"))


@keras.saving.register_keras_serializable("keras_transformer_zoo")
class TokenAccuracy(_TokenMean):
    """Fraction of tokens whose label has the largest logit. Among equal logits, the first one counts.

    Args:
        name: Name in the logs.

    Example:

    >>> model.compile("adam", TokenCrossEntropy(0.1), weighted_metrics=[TokenAccuracy()])
    """

    def __init__(self, name: str = "token_accuracy", dtype: str = "float32") -> None:
        super().__init__(name=name, dtype=dtype)
        self._direction = "up"

    def of_logits(self, logits: Any, labels: Any) -> Any:
        return are_hits(logits, labels)

    def of_scores(self, scores: TokenScores) -> Any:
        return scores.hits


@keras.saving.register_keras_serializable("keras_transformer_zoo")
class TokenCount(keras.metrics.Metric):
    """Number of tokens: the sum of the weights, or the number of labels if there are no weights.

    Args:
        name: Name in the logs.

    Example:

    >>> model.compile("adam", TokenCrossEntropy(), weighted_metrics=[TokenCount()])
    """

    def __init__(self, name: str = "tokens", dtype: str = "float32") -> None:
        super().__init__(name=name, dtype=dtype)
        self.count = ExactSum(self, "count")

    def update_state(self, y_true: Any, y_pred: Any, sample_weight: Any = None) -> None:
        self.count.add(ops.sum(token_weights(y_true, y_pred, sample_weight)))

    def result(self) -> Any:
        return self.count.value()
