"""Means over all data: a batch is a sum divided by what counts in it, and weighs as much in the mean of an epoch."""

import contextlib
from collections.abc import Iterator
from contextvars import ContextVar
from typing import Any

import keras
import numpy as np
from keras import ops

from layers.constructor_arguments import ConfigFromArguments
from layers.keras_internals import mask_of

# reductions of Keras that divide by the number of losses
MEANS = ("sum_over_batch_size", "mean")
# what the batch of the present step counts; each thread of `tf.distribute` has its own
_COUNT: ContextVar[Any] = ContextVar("_COUNT", default=None)


def is_concrete(tensor: Any) -> bool:
    """Returns whether the values of a tensor can be read now, or only exist while a graph runs.

    Args:
        tensor: The tensor.
    """
    if isinstance(tensor, keras.KerasTensor):
        return False
    if keras.backend.backend() == "jax":
        import jax

        return not isinstance(tensor, jax.core.Tracer)
    if keras.backend.backend() == "tensorflow":
        return hasattr(tensor, "numpy")
    return True


def number_counted(weights: Any) -> Any:
    """Returns how many weights are not 0, a float32 scalar.

    Args:
        weights: Numbers of any shape.
    """
    return ops.sum(ops.cast(ops.not_equal(weights, 0), "float32"))


def counted_weights(sample_weight: Any, y_pred: Any = None) -> Any:
    """Returns weights with which a mean of Keras is divided by the number of weights that are not 0.

    Keras divides by the number of all losses, padding included.

    Args:
        sample_weight: Weights of rows or tokens; None where all count.
        y_pred: What Keras will look at for an implicit mask (`Embedding(mask_zero=True)`).

    Example:

    >>> counted_weights(np.array([2.0, 0.0]))  # [4.0, 0.0]: the mean of two losses is then 2 * the first
    """
    if sample_weight is None:
        return None
    weights = ops.cast(ops.convert_to_tensor(sample_weight), "float32")
    mask = mask_of(y_pred)
    if mask is None:
        return weights * ops.divide_no_nan(ops.cast(ops.size(weights), "float32"), number_counted(weights))
    # of the masked losses Keras takes the mean already
    mask = ops.cast(mask, "float32")
    both = weights * mask if len(weights.shape) == len(mask.shape) else ops.expand_dims(weights, -1) * mask
    return weights * ops.divide_no_nan(ops.sum(mask), number_counted(both))


def weights_of_tokens(labels: Any, sample_weight: Any) -> Any:
    """Returns the weight of each token: that of its row, or its own.

    Keras would take weights of rows for those of columns where a batch has as many rows as columns.

    Args:
        labels: `(rows, length)`, with or without further axes. Weights of other labels stay as they are.
        sample_weight: `(rows,)`, `(rows, 1)`, `(rows, length)`, `(rows, length, 1)` or None.

    Returns:
        Weights `(rows, length)`, or None.

    Raises:
        ValueError: If the weights have another shape.

    Example:

    >>> weights_of_tokens(np.zeros((2, 3)), np.array([1.0, 0.5]))  # [[1, 1, 1], [0.5, 0.5, 0.5]]
    """
    if not hasattr(labels, "shape") or not hasattr(sample_weight, "shape") or len(labels.shape) < 2:
        return sample_weight
    shape, allowed = tuple(sample_weight.shape), tuple(labels.shape)[:2]
    if shape == tuple(labels.shape)[: len(shape)] and len(shape) > 1 and None not in shape and shape[2:] != (1,):
        return sample_weight
    # sizes that are unknown in a graph are left to it
    sizes = (*shape, 1)[:2] if shape else ()
    fits = [None in pair or pair[0] == pair[1] for pair in zip(sizes, allowed, strict=False)]
    if len(sizes) != 2 or shape[2:] not in ((), (1,)) or not fits[0] or not (fits[1] or sizes[1] == 1):
        raise ValueError(
            f"sample_weight must have the shape (rows,), (rows, 1) or (rows, length), got {shape} with labels of the "
            f"shape {tuple(labels.shape)}."
        )
    if len(shape) == 1:
        sample_weight = ops.expand_dims(sample_weight, -1)
    elif len(shape) == 3:
        sample_weight = ops.squeeze(sample_weight, -1)
    return ops.broadcast_to(sample_weight, ops.shape(labels)[:2])


class CountedLoss(ConfigFromArguments, keras.losses.Loss):
    """Base class of losses whose mean is over what counts: over all rows or tokens whose weight is not 0.

    The mean is `sum(weight * loss) / number of weights that are not 0`. So a weight scales the gradient of its row
    or token, whatever else is in the batch, and a weight of 0 leaves it out.

    Args:
        reduction: "sum_over_batch_size" for this mean; "mean_with_sample_weight" to divide by the sum of the weights of
            each batch; others as in `keras.losses.Loss`.
        name, dtype: See `keras.losses.Loss`.
    """

    def __init__(
        self, name: str | None = None, reduction: str | None = "sum_over_batch_size", dtype: Any = None
    ) -> None:
        super().__init__(name=name, reduction=reduction, dtype=dtype)

    def __call__(self, y_true: Any, y_pred: Any, sample_weight: Any = None) -> Any:
        if self.reduction in MEANS:
            sample_weight = counted_weights(sample_weight, y_pred)
        return super().__call__(y_true, y_pred, sample_weight)


def losses_of(loss: Any) -> list[Any]:
    """Returns the losses in the argument `loss` of `compile`; of one around another the inner one.

    Args:
        loss: Names, functions and objects, nested in any way, or None.
    """
    return [getattr(each, "loss", each) for each in keras.tree.flatten(loss) if each is not None]


def reduction_of(loss: Any) -> str | None:
    """Returns the reduction of a loss. Keras takes the mean of one that is given by name or as a function.

    Args:
        loss: The argument `loss` of `compile`. Of several losses, the first one counts.
    """
    return next((getattr(each, "reduction", MEANS[0]) for each in losses_of(loss)), MEANS[0])


def weights_for(loss: Any, sample_weight: Any, y_pred: Any) -> Any:
    """Returns the weights that a loss is called with, so that its mean is over what counts.

    Args:
        loss: The argument `loss` of `compile`.
        sample_weight: The weights of a batch, or None.
        y_pred: The outputs, which may have implicit masks.
    """
    if reduction_of(loss) not in MEANS or any(isinstance(each, CountedLoss) for each in losses_of(loss)):
        return sample_weight
    weights, outputs = keras.tree.flatten(sample_weight), keras.tree.flatten(y_pred)
    if len(weights) != len(outputs):
        outputs = [None] * len(weights)
    counted = [counted_weights(*pair) for pair in zip(weights, outputs, strict=True)]
    return keras.tree.pack_sequence_as(sample_weight, counted)


def count_of(loss: Any, x: Any, y: Any, sample_weight: Any) -> Any:
    """Returns what the loss of a batch is divided by, a float32 scalar, which is its weight in the mean of an epoch.

    Args:
        loss: The argument `loss` of `compile`. Sums are not divided, and all batches weigh the same.
        x, y, sample_weight: The batch. Without weights each label counts, without labels each row.
    """
    reduction = reduction_of(loss)
    if reduction == "sum":
        return ops.ones((), "float32")
    weights = [each for each in keras.tree.flatten(sample_weight) if each is not None]
    if weights:
        if reduction == "mean_with_sample_weight":
            return ops.sum(ops.cast(weights[0], "float32"))
        return number_counted(weights[0])
    labels = [each for each in keras.tree.flatten(y) if each is not None]
    if labels:
        return ops.cast(ops.size(labels[0]), "float32")
    return ops.cast(ops.shape(keras.tree.flatten(x)[0])[0], "float32")


@contextlib.contextmanager
def counting_batch(count: Any) -> Iterator[None]:
    """A context for a step on a batch.

    Args:
        count: What the batch counts. With several replicas, the mean over them.
    """
    before = _COUNT.set(count)
    try:
        yield
    finally:
        _COUNT.reset(before)


def current_count() -> Any:
    """Returns what the batch of the present step counts; None outside of a step."""
    return _COUNT.get()


class ExactSum:
    """A sum in two float32 variables of a metric, exact for whole numbers up to 2^48.

    One float32 variable stops growing at 2^24 if ones are added.

    Args:
        metric: The metric.
        name: Name of the variables.

    Reference:
        Knuth 1997, "The Art of Computer Programming", volume 2, section 4.2.2, theorem B.
    """

    def __init__(self, metric: keras.metrics.Metric, name: str) -> None:
        self.high, self.low = (
            metric.add_variable(shape=(), initializer="zeros", dtype="float32", name=part)
            for part in (name, f"{name}_rest")
        )

    def add(self, value: Any) -> None:
        """Adds a scalar."""
        value, old = ops.cast(value, "float32"), ops.convert_to_tensor(self.high)
        new = old + value
        part = new - old
        rest = (old - (new - part)) + (value - part)
        self.high.assign(new)
        # an infinite sum has no rest
        self.low.assign_add(ops.where(ops.isfinite(new), rest, 0.0))

    def value(self) -> Any:
        """Returns the sum: in float64, but in float32 within compiled functions of JAX, which has no float64."""
        high, low = ops.convert_to_tensor(self.high), ops.convert_to_tensor(self.low)
        if keras.backend.backend() != "jax":
            return ops.cast(high, "float64") + ops.cast(low, "float64")
        if is_concrete(high) and is_concrete(low):
            return np.float64(high) + np.float64(low)
        return high + low


def quotient(total: ExactSum, count: ExactSum) -> Any:
    """Returns `total / count` in float32, 0 if both are 0.

    Args:
        total, count: The sums.
    """
    dividend, divisor = total.value(), count.value()
    return ops.cast(ops.divide_no_nan(dividend, divisor), "float32")


@keras.saving.register_keras_serializable("keras_transformer_zoo")
class CountedMean(keras.metrics.Metric):
    """Mean of a value of each batch, in which a batch weighs as much as counts in it.

    Args:
        name: Name in the logs.
    """

    def __init__(self, name: str = "loss", dtype: str = "float32") -> None:
        super().__init__(name=name, dtype=dtype)
        self.total, self.count = ExactSum(self, "total"), ExactSum(self, "count")

    def update_state(self, value: Any, sample_weight: Any = 1.0) -> None:
        """Adds a batch.

        Args:
            value: The mean of the batch, or all its losses (`reduction=None`).
            sample_weight: What the batch counts.
        """
        count = ops.cast(sample_weight, "float32")
        self.total.add(ops.mean(ops.cast(value, "float32")) * count)
        self.count.add(count)

    def result(self) -> Any:
        return quotient(self.total, self.count)


@keras.saving.register_keras_serializable("keras_transformer_zoo")
class LossMean(CountedMean):
    """The mean of the loss over all data, in place of the mean of Keras, in which a batch weighs as its rows."""

    def update_state(self, value: Any, sample_weight: Any = 1.0) -> None:
        count = current_count()
        super().update_state(value, sample_weight if count is None else count)
