"""Losses of texts that have several labels."""

from collections.abc import Sequence
from typing import Any

import keras
from keras import ops

from zoo.counts import CountedLoss


@keras.saving.register_keras_serializable("keras_transformer_zoo")
class WeightedBinaryCrossEntropy(CountedLoss):
    """Binary cross-entropy of logits, the mean over labels, with a weight for the positive cases of each label.

    With a weight above 1 for a rare label, a missed label costs more than a wrongly assigned one. Positive and negative
    cases have the same total weight if the weight is the number of rows without the label divided by that of rows with
    it.

    Args:
        positive_weights: Weight of the positive cases of each label, `(labels,)`.
        reduction, name: See `zoo.counts.CountedLoss`.

    Call arguments:
        y_true: Zeros and ones, `(rows, labels)`.
        y_pred: Logits, `(rows, labels)`.

    Raises:
        ValueError: If a weight is not a finite number of at least 0, or their number differs from that of the labels.

    Example:

    >>> classifier.compile("adam", WeightedBinaryCrossEntropy([1.0, 8.5]))

    Reference:
        King and Zeng 2001, "Logistic Regression in Rare Events Data", section 4.2 (weighting).
    """

    def __init__(
        self,
        positive_weights: Sequence[float],
        reduction: str | None = "sum_over_batch_size",
        name: str = "weighted_binary_cross_entropy",
        dtype: str = "float32",
    ) -> None:
        super().__init__(name=name, reduction=reduction, dtype=dtype)
        self.positive_weights = [float(weight) for weight in positive_weights]
        if not self.positive_weights or not all(0 <= weight < float("inf") for weight in self.positive_weights):
            raise ValueError(f"positive_weights must be finite numbers of at least 0, got {positive_weights!r}.")

    def call(self, y_true: Any, y_pred: Any) -> Any:
        logits, labels = ops.cast(y_pred, "float32"), ops.cast(y_true, "float32")
        if logits.shape[-1] != len(self.positive_weights):
            raise ValueError(
                f"positive_weights must be as many as labels, {logits.shape[-1]}, got {len(self.positive_weights)}."
            )
        missed = ops.softplus(-logits) * ops.convert_to_tensor(self.positive_weights, "float32")
        return ops.mean(labels * missed + (1.0 - labels) * ops.softplus(logits), axis=-1)
