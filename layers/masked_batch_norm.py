"""Batch normalisation that does not count padding."""

from typing import Any

import keras
from keras import ops

from layers.keras_internals import mask_of
from layers.norms import LastAxisNorm


@keras.saving.register_keras_serializable("keras_transformer_zoo")
class MaskedBatchNorm(LastAxisNorm):
    """Batch normalisation of sequences that leaves out padding: statistics per feature over all real positions.

    The output is `(x - mean) / sqrt(variance + epsilon) * gamma + beta`. In training, mean and (biased) variance are
    those of the batch, which also update moving averages. At inference, or when `trainable` is False, they are the
    moving averages. A batch without real positions does not change the averages. Statistics are computed in float32
    whatever the policy. Under a distribution strategy each replica uses the statistics of its part of the batch.

    Outputs at padding are normalised with the same statistics. Their values do not affect real positions.

    Args:
        epsilon: Added to the variance.
        momentum: Fraction of the old moving average that is kept at each step, in [0, 1).

    Call arguments:
        inputs: `(batch, length, dim)`, or any shape whose last axis is the features.
        mask: True where a position is real, `(batch, length)`: the shape of the inputs without the last axis.
            Default: all positions are real.
        training: Whether the statistics of the batch are used.

    Returns:
        The shape of the inputs.

    Raises:
        ValueError: If `epsilon` is not positive, `momentum` is not in [0, 1), or `mask` has a wrong rank.

    Example:

    >>> norm = MaskedBatchNorm()
    >>> norm(keras.ops.ones((2, 3, 4)), mask=[[True, True, False], [True, False, False]], training=True).shape
    (2, 3, 4)

    Reference:
        Ioffe and Szegedy 2015, "Batch Normalization", algorithm 1; compared with layer norm: Shen et al. 2020,
        "PowerNorm", section 3.
    """

    def __init__(self, epsilon: float = 1e-5, momentum: float = 0.99, **kwargs: Any) -> None:
        super().__init__(epsilon, **kwargs)
        if not 0 <= momentum < 1:
            raise ValueError(f"momentum must be at least 0 and below 1, got {momentum}.")
        self.momentum = momentum

    def build(self, input_shape: tuple[int | None, ...]) -> None:
        width = (input_shape[-1],)
        self.gamma = self.add_weight(name="gamma", shape=width, initializer="ones")
        self.beta = self.add_weight(name="beta", shape=width, initializer="zeros")
        # replicas see different rows: their averages are combined to the mean
        moving = {"shape": width, "trainable": False, "aggregation": "mean"}
        self.moving_mean = self.add_weight(name="moving_mean", initializer="zeros", **moving)
        self.moving_variance = self.add_weight(name="moving_variance", initializer="ones", **moving)

    def call(self, inputs: Any, mask: Any = None, training: bool | None = None) -> Any:
        x = self._wide(inputs)
        if training and self.trainable:
            mean, variance, count = self._statistics(x, mask)
            self._update(self.moving_mean, mean, count)
            self._update(self.moving_variance, variance, count)
        else:
            mean, variance = self._wide(self.moving_mean), self._wide(self.moving_variance)
        factor = self._wide(self.gamma) * ops.rsqrt(variance + self.epsilon)
        return ops.cast(x * factor + (self._wide(self.beta) - mean * factor), self.compute_dtype)

    def compute_mask(self, inputs: Any, previous_mask: Any = None) -> Any:
        # The argument `mask` says which positions to count. Only a mask that the inputs carry is passed on.
        return mask_of(inputs)

    def _statistics(self, x: Any, mask: Any) -> Any:
        """Mean and variance per feature, `(dim,)`, and the number of positions."""
        axes = tuple(range(len(x.shape) - 1))
        if mask is None:
            mean, variance = ops.moments(x, axes=axes)
            return mean, variance, ops.cast(ops.size(x) // x.shape[-1], x.dtype)
        mask = ops.convert_to_tensor(mask, dtype="bool")
        if len(mask.shape) != len(x.shape) - 1:
            raise ValueError(
                f"mask must have the shape of the inputs, {tuple(x.shape)}, without the last axis, "
                f"got {tuple(mask.shape)}."
            )
        mask = ops.expand_dims(mask, -1)
        count = ops.sum(ops.cast(mask, x.dtype))
        divisor = ops.maximum(count, 1.0)
        # `where`, not a product: padding may hold NaN or infinity
        mean = ops.sum(ops.where(mask, x, 0.0), axis=axes) / divisor
        deviation = ops.where(mask, x - mean, 0.0)
        return mean, ops.sum(ops.square(deviation), axis=axes) / divisor, count

    def _update(self, moving: Any, value: Any, count: Any) -> None:
        old = self._wide(moving)
        updated = old * self.momentum + ops.stop_gradient(value) * (1 - self.momentum)
        moving.assign(ops.where(count > 0, updated, old))
