"""Normalisation layers."""

from typing import Any

import keras
from keras import ops


class _LastAxisNorm(keras.layers.Layer):
    """What the norms over the last axis have in common: an epsilon, statistics in float32, the output dtype."""

    def __init__(self, epsilon: float, **kwargs: Any) -> None:
        super().__init__(**kwargs)
        if epsilon <= 0:
            raise ValueError(f"epsilon must be above 0, got {epsilon}.")
        self.epsilon = epsilon
        self.supports_masking = True
        # Inputs and weights are cast by `_wide` only: a residual stream in float32 is not rounded on its way in.
        self.autocast = False

    def _wide(self, x: Any) -> Any:
        """Inputs or weights in the dtype of the statistics: at least float32 whatever the policy."""
        return ops.cast(x, keras.backend.result_type(self.variable_dtype, "float32"))

    def compute_output_shape(self, input_shape: tuple) -> tuple:
        return input_shape

    def get_config(self) -> dict[str, Any]:
        return {**super().get_config(), "epsilon": self.epsilon}


@keras.saving.register_keras_serializable("keras_transformer_zoo")
class LayerNorm(_LastAxisNorm):
    """Layer normalisation: `(x - mean) / sqrt(variance + epsilon) * gamma + beta` over the last axis.

    Statistics are computed in float32 whatever the policy.

    Args:
        epsilon: Added to the variance.
        center: Whether there is an offset `beta`.
        scale: Whether there is a factor `gamma`.

    Call arguments:
        inputs: `(..., dim)`.

    Returns:
        The shape of the inputs.

    Raises:
        ValueError: If `epsilon` is not positive.

    Example:

    >>> LayerNorm()(keras.ops.convert_to_tensor([[1.0, 3.0]]))  # [[-1, 1]]

    Reference:
        Ba et al. 2016, equations 3 and 4.
    """

    def __init__(self, epsilon: float = 1e-5, center: bool = True, scale: bool = True, **kwargs: Any) -> None:
        super().__init__(epsilon, **kwargs)
        self.center = center
        self.scale = scale

    def build(self, input_shape: tuple) -> None:
        width = (input_shape[-1],)
        self.gamma = self.add_weight(name="gamma", shape=width, initializer="ones") if self.scale else None
        self.beta = self.add_weight(name="beta", shape=width, initializer="zeros") if self.center else None

    def call(self, inputs: Any) -> Any:
        x = self._wide(inputs)
        outputs = ops.layer_normalization(x, self.gamma, self.beta, axis=-1, epsilon=self.epsilon)
        return ops.cast(outputs, self.compute_dtype)

    def get_config(self) -> dict[str, Any]:
        return {**super().get_config(), "center": self.center, "scale": self.scale}


@keras.saving.register_keras_serializable("keras_transformer_zoo")
class RMSNorm(_LastAxisNorm):
    """Root mean square normalisation: `x / sqrt(mean(x^2) + epsilon) * scale` over the last axis.

    Statistics are computed in float32 whatever the policy.

    Args:
        epsilon: Added to the mean square.
        unit_offset: Whether the factor is `1 + scale` with `scale` starting at zero (Gemma), so that weight decay
            pulls it to one.
        use_scale: Whether there is a factor at all.

    Call arguments:
        inputs: `(..., dim)`.

    Returns:
        The shape of the inputs.

    Raises:
        ValueError: If `epsilon` is not positive, or `unit_offset` is set without `use_scale`.

    Example:

    >>> RMSNorm()(keras.ops.convert_to_tensor([[3.0, 4.0]]))  # [[0.8485, 1.1314]]

    Reference:
        Zhang and Sennrich 2019, equation 4.
    """

    def __init__(self, epsilon: float = 1e-6, unit_offset: bool = False, use_scale: bool = True, **kwargs: Any) -> None:
        super().__init__(epsilon, **kwargs)
        if unit_offset and not use_scale:
            raise ValueError("unit_offset must be False with use_scale=False, got True: there is no factor.")
        self.unit_offset = unit_offset
        self.use_scale = use_scale

    def build(self, input_shape: tuple) -> None:
        initializer = "zeros" if self.unit_offset else "ones"
        self.scale = (
            self.add_weight(name="scale", shape=(input_shape[-1],), initializer=initializer) if self.use_scale else None
        )

    def call(self, inputs: Any) -> Any:
        scale = 1.0 + self._wide(self.scale) if self.unit_offset else self.scale
        outputs = ops.rms_normalization(self._wide(inputs), scale, axis=-1, epsilon=self.epsilon)
        return ops.cast(outputs, self.compute_dtype)

    def get_config(self) -> dict[str, Any]:
        return {**super().get_config(), "unit_offset": self.unit_offset, "use_scale": self.use_scale}


@keras.saving.register_keras_serializable("keras_transformer_zoo")
class ScaleNorm(_LastAxisNorm):
    """Scaled L2 normalisation with one learned length: `scale * x / max(||x||, epsilon)` over the last axis.

    The length starts at `sqrt(dim)`, where the layer does what `RMSNorm` does at its start. It is computed in float32
    whatever the policy.

    Args:
        epsilon: Least length that is divided by.

    Call arguments:
        inputs: `(..., dim)`.

    Returns:
        The shape of the inputs.

    Raises:
        ValueError: If `epsilon` is not positive.

    Example:

    >>> ScaleNorm()(keras.ops.convert_to_tensor([[3.0, 4.0]]))  # [[0.8485, 1.1314]]

    Reference:
        Nguyen and Salazar 2019, section 2.2, equation 3.
    """

    def __init__(self, epsilon: float = 1e-5, **kwargs: Any) -> None:
        super().__init__(epsilon, **kwargs)

    def build(self, input_shape: tuple) -> None:
        length = keras.initializers.Constant(input_shape[-1] ** 0.5)
        self.scale = self.add_weight(name="scale", shape=(), initializer=length)

    def call(self, inputs: Any) -> Any:
        x = self._wide(inputs)
        squared_length = ops.sum(ops.square(x), axis=-1, keepdims=True)
        # The maximum is taken before the root, whose derivative at zero is infinite.
        outputs = x * (self._wide(self.scale) * ops.rsqrt(ops.maximum(squared_length, self.epsilon**2)))
        return ops.cast(outputs, self.compute_dtype)


@keras.saving.register_keras_serializable("keras_transformer_zoo")
class DynamicTanh(keras.layers.Layer):
    """An element-wise stand-in for a norm: `gamma * tanh(alpha * x) + beta`, without statistics.

    Args:
        alpha: Initial value of the one learned slope.

    Call arguments:
        inputs: `(..., dim)`.

    Returns:
        The shape of the inputs.

    Example:

    >>> DynamicTanh()(keras.ops.convert_to_tensor([[1.0, 3.0]]))  # tanh of 0.5 and 1.5: [[0.4621, 0.9051]]

    Reference:
        Zhu et al. 2025, section 4, equation 3.
    """

    def __init__(self, alpha: float = 0.5, **kwargs: Any) -> None:
        super().__init__(**kwargs)
        self.initial_alpha = alpha
        self.supports_masking = True

    def build(self, input_shape: tuple) -> None:
        width = (input_shape[-1],)
        slope = keras.initializers.Constant(self.initial_alpha)
        self.alpha = self.add_weight(name="alpha", shape=(), initializer=slope)
        self.gamma = self.add_weight(name="gamma", shape=width, initializer="ones")
        self.beta = self.add_weight(name="beta", shape=width, initializer="zeros")

    def call(self, inputs: Any) -> Any:
        return self.gamma * ops.tanh(self.alpha * inputs) + self.beta

    def compute_output_shape(self, input_shape: tuple) -> tuple:
        return input_shape

    def get_config(self) -> dict[str, Any]:
        return {**super().get_config(), "alpha": self.initial_alpha}


@keras.saving.register_keras_serializable("keras_transformer_zoo")
class MaskedBatchNorm(_LastAxisNorm):
    """Batch normalisation of sequences that does not count padding: statistics per feature over all real positions.

    At training `(x - mean) / sqrt(variance + epsilon) * gamma + beta` with the mean and the (biased) variance of the
    batch, which also update moving averages; at inference, or when `trainable` is False, with the moving averages.
    A batch without a single real position leaves the averages alone. Statistics are computed in float32 whatever the
    policy. Under a distribution strategy each replica uses the statistics of its own part of the batch.

    The outputs at padding are normalised with the same numbers; whatever is there does not reach the real positions.

    Args:
        epsilon: Added to the variance.
        momentum: Share of the old moving average that is kept at each step, in [0, 1).

    Call arguments:
        inputs: `(batch, length, dim)`, or any shape whose last axis is the features.
        mask: True where a position is real, `(batch, length)`: the shape of the inputs without the last axis.
            Default: all positions are real.
        training: Whether the statistics of the batch are used.

    Returns:
        The shape of the inputs.

    Raises:
        ValueError: If `epsilon` is not positive, `momentum` not in [0, 1), or `mask` has a wrong rank.

    Example:

    >>> norm = MaskedBatchNorm()
    >>> norm(keras.ops.ones((2, 3, 4)), mask=[[True, True, False], [True, False, False]], training=True).shape
    (2, 3, 4)

    Reference:
        Ioffe and Szegedy 2015, algorithm 1; compared with layer norm in Shen et al. 2020, section 3.
    """

    def __init__(self, epsilon: float = 1e-5, momentum: float = 0.99, **kwargs: Any) -> None:
        super().__init__(epsilon, **kwargs)
        if not 0 <= momentum < 1:
            raise ValueError(f"momentum must be at least 0 and below 1, got {momentum}.")
        self.momentum = momentum

    def build(self, input_shape: tuple) -> None:
        width = (input_shape[-1],)
        self.gamma = self.add_weight(name="gamma", shape=width, initializer="ones")
        self.beta = self.add_weight(name="beta", shape=width, initializer="zeros")
        self.moving_mean = self.add_weight(name="moving_mean", shape=width, initializer="zeros", trainable=False)
        self.moving_variance = self.add_weight(name="moving_variance", shape=width, initializer="ones", trainable=False)

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
        # The argument says what to count. What goes on with the outputs is only a mask that the inputs carry.
        return getattr(inputs, "_keras_mask", None)

    def _statistics(self, x: Any, mask: Any) -> Any:
        """Mean and variance per feature, `(dim,)`, and the number of positions that they were taken over."""
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
        # `where`, not a product: padding may hold NaN or infinity.
        mean = ops.sum(ops.where(mask, x, 0.0), axis=axes) / divisor
        deviation = ops.where(mask, x - mean, 0.0)
        return mean, ops.sum(ops.square(deviation), axis=axes) / divisor, count

    def _update(self, moving: Any, value: Any, count: Any) -> None:
        old = self._wide(moving)
        updated = old * self.momentum + ops.stop_gradient(value) * (1 - self.momentum)
        moving.assign(ops.where(count > 0, updated, old))

    def get_config(self) -> dict[str, Any]:
        return {**super().get_config(), "momentum": self.momentum}
