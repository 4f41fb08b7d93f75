"""Loss and metric of spans: of the first and the last token of an answer."""

from typing import Any

import keras
from keras import ops

from layers.constructor_arguments import ConfigFromArguments
from zoo.counts import CountedLoss


def _by_side(y_true: Any, y_pred: Any) -> tuple[Any, Any]:
    """Places `(rows, 2)` and logits of the positions `(rows, 2, length)`."""
    y_true, y_pred = ops.convert_to_tensor(y_true), ops.convert_to_tensor(y_pred)
    if len(y_pred.shape) != 3 or y_pred.shape[-1] != 2 or len(y_true.shape) != 2 or y_true.shape[-1] != 2:
        raise ValueError(
            "y_true must hold the first and last token of each row, (rows, 2), and y_pred two logits per token, "
            f"(rows, length, 2), got the shapes {tuple(y_true.shape)} and {tuple(y_pred.shape)}."
        )
    return ops.cast(y_true, "int32"), ops.transpose(ops.cast(y_pred, "float32"), (0, 2, 1))


@keras.saving.register_keras_serializable("keras_transformer_zoo")
class SpanCrossEntropy(CountedLoss):
    """The mean of two cross-entropies over the tokens of a row: of the first and of the last token of a span.

    Args:
        reduction, name: See `zoo.counts.CountedLoss`.

    Call arguments:
        y_true: Positions of first and last token, ints `(rows, 2)`.
        y_pred: Two logits per token, `(rows, length, 2)`.

    Raises:
        ValueError: If `y_true` or `y_pred` has another shape.

    Example:

    >>> answerer.compile("adam", SpanCrossEntropy())

    Reference:
        Devlin et al. 2019, "BERT", section 4.2.
    """

    def __init__(
        self,
        reduction: str | None = "sum_over_batch_size",
        name: str = "span_cross_entropy",
        dtype: str = "float32",
    ) -> None:
        super().__init__(name=name, reduction=reduction, dtype=dtype)

    def call(self, y_true: Any, y_pred: Any) -> Any:
        places, logits = _by_side(y_true, y_pred)
        chosen = ops.squeeze(ops.take_along_axis(logits, places[:, :, None], axis=-1), -1)
        return ops.mean(ops.logsumexp(logits, axis=-1) - chosen, axis=-1)


@keras.saving.register_keras_serializable("keras_transformer_zoo")
class SpanAccuracy(ConfigFromArguments, keras.metrics.MeanMetricWrapper):
    """Fraction of rows whose first and last token are both predicted correctly.

    Args:
        name: Name in the logs.

    Example:

    >>> answerer.compile("adam", SpanCrossEntropy(), weighted_metrics=[SpanAccuracy()])
    """

    def __init__(self, name: str = "span_accuracy", dtype: str = "float32") -> None:
        super().__init__(_are_right, name=name, dtype=dtype)
        self._direction = "up"


def _are_right(y_true: Any, y_pred: Any) -> Any:
    places, logits = _by_side(y_true, y_pred)
    return ops.cast(ops.all(ops.cast(ops.argmax(logits, axis=-1), "int32") == places, axis=-1), "float32")
