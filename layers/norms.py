"""Normalisation layers over the features of a position."""

from typing import Any

import keras
from keras import ops

from layers.constructor_arguments import ConfigFromArguments
from layers.fusion import joined_layer_norm, layer_norm_is_joined
from layers.roles import WHOLE


class LastAxisNorm(ConfigFromArguments, keras.layers.Layer):
    """Base of the norms over the last axis: an epsilon, statistics in float32, the output dtype."""

    # small, and the same on all devices
    weight_role = WHOLE

    def __init__(self, epsilon: float, **kwargs: Any) -> None:
        super().__init__(**kwargs)
        if epsilon <= 0:
            raise ValueError(f"epsilon must be above 0, got {epsilon}.")
        self.epsilon = epsilon
        self.supports_masking = True
        # inputs and weights are cast by `_wide` only, so that a float32 residual stream is not rounded
        self.autocast = False

    def _wide(self, x: Any) -> Any:
        """Inputs or weights in the dtype of the statistics: at least float32 whatever the policy."""
        return ops.cast(x, keras.backend.result_type(self.variable_dtype, "float32"))

    def compute_output_shape(self, input_shape: tuple[int | None, ...]) -> tuple[int | None, ...]:
        return input_shape


class FeatureWeightedNorm(LastAxisNorm):
    """Base of the norms with a weight for each feature, or for each head and feature."""

    def __init__(self, epsilon: float, weight_axes: int, **kwargs: Any) -> None:
        super().__init__(epsilon, **kwargs)
        if weight_axes not in (1, 2):
            raise ValueError(f"weight_axes must be 1 or 2, got {weight_axes!r}.")
        self.weight_axes = weight_axes

    def _weight_shape(self, input_shape: tuple[int | None, ...]) -> tuple[int | None, ...]:
        return tuple(input_shape[-self.weight_axes :])


@keras.saving.register_keras_serializable("keras_transformer_zoo")
class LayerNorm(FeatureWeightedNorm):
    """Layer normalisation: `(x - mean) / sqrt(variance + epsilon) * gamma + beta` over the last axis.

    Statistics are computed in float32 whatever the policy.

    Args:
        epsilon: Added to the variance, above 0.
        center: Whether there is an offset `beta`.
        scale: Whether there is a factor `gamma`.
        weight_axes: Number of last axes along which `gamma` and `beta` differ, 1 or 2. With 2, each head of queries or
            keys `(batch, length, heads, head_dim)` has its own weights.
        unit_offset: Whether the factor is `1 + gamma`, with `gamma` initially zero (Nemotron), see `RMSNorm`.

    Call arguments:
        inputs: `(..., dim)`.

    Returns:
        The shape of the inputs.

    Raises:
        ValueError: If `epsilon` is not positive, `weight_axes` is neither 1 nor 2, or `unit_offset` is set without
            `scale`.

    Example:

    >>> LayerNorm()(keras.ops.convert_to_tensor([[1.0, 3.0]]))  # [[-1, 1]]

    Reference:
        Ba et al. 2016, "Layer Normalization", equations 3 and 4.
    """

    def __init__(
        self,
        epsilon: float = 1e-5,
        center: bool = True,
        scale: bool = True,
        weight_axes: int = 1,
        unit_offset: bool = False,
        **kwargs: Any,
    ) -> None:
        super().__init__(epsilon, weight_axes, **kwargs)
        if unit_offset and not scale:
            raise ValueError("unit_offset must be False with scale=False, got True: there is no factor.")
        self.unit_offset = unit_offset
        self.center = center
        self.scale = scale

    def build(self, input_shape: tuple[int | None, ...]) -> None:
        shape = self._weight_shape(input_shape)
        initializer = "zeros" if self.unit_offset else "ones"
        self.gamma = self.add_weight(name="gamma", shape=shape, initializer=initializer) if self.scale else None
        self.beta = self.add_weight(name="beta", shape=shape, initializer="zeros") if self.center else None

    def call(self, inputs: Any, training: bool | None = None) -> Any:
        if self._is_joined(inputs, training):
            return joined_layer_norm(inputs, self.gamma.value, self.beta.value, self.epsilon)
        x = self._wide(inputs)
        gamma = 1.0 + self._wide(self.gamma) if self.unit_offset else self.gamma
        if self.weight_axes == 1:
            outputs = ops.layer_normalization(x, gamma, self.beta, axis=-1, epsilon=self.epsilon)
        else:  # Keras knows weights of the normed axis only
            outputs = ops.layer_normalization(x, axis=-1, epsilon=self.epsilon)
            outputs = outputs if gamma is None else outputs * self._wide(gamma)
            outputs = outputs if self.beta is None else outputs + self._wide(self.beta)
        return ops.cast(outputs, self.compute_dtype)

    def _is_joined(self, inputs: Any, training: bool | None) -> bool:
        """Whether the graph that is being built has a kernel for this norm. It needs one type for all tensors."""
        if self.gamma is None or self.beta is None or self.unit_offset or self.weight_axes != 1:
            return False
        types = {keras.backend.standardize_dtype(inputs.dtype), self.variable_dtype, self.compute_dtype}
        return len(types) == 1 and layer_norm_is_joined(inputs, training)


@keras.saving.register_keras_serializable("keras_transformer_zoo")
class RMSNorm(FeatureWeightedNorm):
    """Root mean square normalisation: `x / sqrt(mean(x^2) + epsilon) * scale` over the last axis.

    Statistics are computed in float32 whatever the policy.

    Args:
        epsilon: Added to the mean square, above 0.
        unit_offset: Whether the factor is `1 + scale`, with `scale` initially zero (Gemma). Weight decay then pulls the
            factor to one.
        use_scale: Whether there is a factor.
        weight_axes: Number of last axes along which the factor differs, 1 or 2, see `LayerNorm`.

    Call arguments:
        inputs: `(..., dim)`.

    Returns:
        The shape of the inputs.

    Raises:
        ValueError: If `epsilon` is not positive, `weight_axes` is neither 1 nor 2, or `unit_offset` is set without
            `use_scale`.

    Example:

    >>> RMSNorm()(keras.ops.convert_to_tensor([[3.0, 4.0]]))  # [[0.8485, 1.1314]]

    Reference:
        Zhang and Sennrich 2019, "Root Mean Square Layer Normalization", equation 4.
    """

    def __init__(
        self,
        epsilon: float = 1e-6,
        unit_offset: bool = False,
        use_scale: bool = True,
        weight_axes: int = 1,
        **kwargs: Any,
    ) -> None:
        super().__init__(epsilon, weight_axes, **kwargs)
        if unit_offset and not use_scale:
            raise ValueError("unit_offset must be False with use_scale=False, got True: there is no factor.")
        self.unit_offset = unit_offset
        self.use_scale = use_scale

    def build(self, input_shape: tuple[int | None, ...]) -> None:
        initializer = "zeros" if self.unit_offset else "ones"
        shape = self._weight_shape(input_shape)
        self.scale = self.add_weight(name="scale", shape=shape, initializer=initializer) if self.use_scale else None

    def call(self, inputs: Any) -> Any:
        scale = 1.0 + self._wide(self.scale) if self.unit_offset else self.scale
        if self.weight_axes == 1:
            outputs = ops.rms_normalization(self._wide(inputs), scale, axis=-1, epsilon=self.epsilon)
        else:  # Keras knows weights of the normed axis only
            outputs = ops.rms_normalization(self._wide(inputs), axis=-1, epsilon=self.epsilon)
            outputs = outputs if scale is None else outputs * self._wide(scale)
        return ops.cast(outputs, self.compute_dtype)


@keras.saving.register_keras_serializable("keras_transformer_zoo")
class ScaleNorm(LastAxisNorm):
    """L2 normalisation with one learned factor: `scale * x / max(||x||, epsilon)` over the last axis.

    The initial `scale` is `sqrt(dim)`, with which the layer equals a new `RMSNorm`. It computes in float32 whatever the
    policy.

    Args:
        epsilon: Smallest divisor, above 0.

    Call arguments:
        inputs: `(..., dim)`.

    Returns:
        The shape of the inputs.

    Raises:
        ValueError: If `epsilon` is not positive.

    Example:

    >>> ScaleNorm()(keras.ops.convert_to_tensor([[3.0, 4.0]]))  # [[0.8485, 1.1314]]

    Reference:
        Nguyen and Salazar 2019, "Transformers without Tears", section 2.2, equation 3.
    """

    def __init__(self, epsilon: float = 1e-5, **kwargs: Any) -> None:
        super().__init__(epsilon, **kwargs)

    def build(self, input_shape: tuple[int | None, ...]) -> None:
        length = keras.initializers.Constant(input_shape[-1] ** 0.5)
        self.scale = self.add_weight(name="scale", shape=(), initializer=length)

    def call(self, inputs: Any) -> Any:
        x = self._wide(inputs)
        squared_length = ops.sum(ops.square(x), axis=-1, keepdims=True)
        # the maximum is taken before the root, because the derivative of the root at zero is infinite
        outputs = x * (self._wide(self.scale) * ops.rsqrt(ops.maximum(squared_length, self.epsilon**2)))
        return ops.cast(outputs, self.compute_dtype)


@keras.saving.register_keras_serializable("keras_transformer_zoo")
class DynamicTanh(ConfigFromArguments, keras.layers.Layer):
    """An element-wise replacement for a norm: `gamma * tanh(alpha * x) + beta`, without statistics.

    Args:
        alpha: Initial value of the learned slope, a scalar.

    Call arguments:
        inputs: `(..., dim)`.

    Returns:
        The shape of the inputs.

    Example:

    >>> DynamicTanh()(keras.ops.convert_to_tensor([[1.0, 3.0]]))  # tanh of 0.5 and 1.5: [[0.4621, 0.9051]]

    Reference:
        Zhu et al. 2025, "Transformers without Normalization", section 4, equation 3.
    """

    argument_attributes = {"alpha": "initial_alpha"}
    # small, and the same on all devices
    weight_role = WHOLE

    def __init__(self, alpha: float = 0.5, **kwargs: Any) -> None:
        super().__init__(**kwargs)
        self.initial_alpha = alpha
        self.supports_masking = True

    def build(self, input_shape: tuple[int | None, ...]) -> None:
        width = (input_shape[-1],)
        slope = keras.initializers.Constant(self.initial_alpha)
        self.alpha = self.add_weight(name="alpha", shape=(), initializer=slope)
        self.gamma = self.add_weight(name="gamma", shape=width, initializer="ones")
        self.beta = self.add_weight(name="beta", shape=width, initializer="zeros")

    def call(self, inputs: Any) -> Any:
        return self.gamma * ops.tanh(self.alpha * inputs) + self.beta

    def compute_output_shape(self, input_shape: tuple[int | None, ...]) -> tuple[int | None, ...]:
        return input_shape
