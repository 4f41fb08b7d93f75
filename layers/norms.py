"""Normalisation layers, and `make_norm`, which makes one by name."""

import keras
from keras import ops


class _LastAxisNorm(keras.layers.Layer):
    """What the norms over the last axis have in common: an epsilon, statistics in float32, the output dtype."""

    def __init__(self, epsilon: float, **kwargs):
        super().__init__(**kwargs)
        if epsilon <= 0:
            raise ValueError(f"`epsilon` is {epsilon}, it must be above 0.")
        self.epsilon = epsilon
        self.supports_masking = True
        # The layer casts by itself: half-precision inputs to float32, and the weights stay in float32.
        self.autocast = False

    def compute_output_shape(self, input_shape):
        return input_shape

    def get_config(self):
        return {**super().get_config(), "epsilon": self.epsilon}


@keras.saving.register_keras_serializable("keras_transformer_zoo")
class LayerNorm(_LastAxisNorm):
    """Layer normalisation: `(x - mean) / sqrt(variance + epsilon) * gamma + beta` over the last axis.

    Statistics are computed in float32 whatever the policy.

    Args:
        epsilon: added to the variance.
        center: whether there is an offset `beta`.
        scale: whether there is a factor `gamma`.

    Call arguments:
        inputs: `(..., dim)`.

    Returns:
        The shape of the inputs.

    Raises:
        ValueError: if `epsilon` is not positive.

    Example:

    >>> LayerNorm()(keras.ops.convert_to_tensor([[1.0, 3.0]]))  # [[-1, 1]]

    Source: Ba et al. 2016, equations 3 and 4.
    """

    def __init__(self, epsilon: float = 1e-5, center: bool = True, scale: bool = True, **kwargs):
        super().__init__(epsilon, **kwargs)
        self.center = center
        self.scale = scale

    def build(self, input_shape):
        width = (input_shape[-1],)
        self.gamma = self.add_weight(name="gamma", shape=width, initializer="ones") if self.scale else None
        self.beta = self.add_weight(name="beta", shape=width, initializer="zeros") if self.center else None

    def call(self, inputs):
        outputs = ops.layer_normalization(inputs, self.gamma, self.beta, axis=-1, epsilon=self.epsilon)
        return ops.cast(outputs, self.compute_dtype)

    def get_config(self):
        return {**super().get_config(), "center": self.center, "scale": self.scale}


@keras.saving.register_keras_serializable("keras_transformer_zoo")
class RMSNorm(_LastAxisNorm):
    """Root mean square normalisation: `x / sqrt(mean(x^2) + epsilon) * scale` over the last axis.

    Statistics are computed in float32 whatever the policy.

    Args:
        epsilon: added to the mean square.
        unit_offset: whether the factor is `1 + scale` with `scale` starting at zero (Gemma), so that weight decay
            pulls it to one.
        use_scale: whether there is a factor at all.

    Call arguments:
        inputs: `(..., dim)`.

    Returns:
        The shape of the inputs.

    Raises:
        ValueError: if `epsilon` is not positive, or `unit_offset` is set without `use_scale`.

    Example:

    >>> RMSNorm()(keras.ops.convert_to_tensor([[3.0, 4.0]]))  # [[0.8485, 1.1314]]

    Source: Zhang and Sennrich 2019, equation 4.
    """

    def __init__(self, epsilon: float = 1e-6, unit_offset: bool = False, use_scale: bool = True, **kwargs):
        super().__init__(epsilon, **kwargs)
        if unit_offset and not use_scale:
            raise ValueError("`unit_offset` is True, which needs `use_scale=True`: without it there is no factor.")
        self.unit_offset = unit_offset
        self.use_scale = use_scale

    def build(self, input_shape):
        initializer = "zeros" if self.unit_offset else "ones"
        self.scale = (
            self.add_weight(name="scale", shape=(input_shape[-1],), initializer=initializer) if self.use_scale else None
        )

    def call(self, inputs):
        scale = self.scale
        if self.unit_offset:
            scale = 1.0 + ops.cast(scale, "float32")
        outputs = ops.rms_normalization(inputs, scale, axis=-1, epsilon=self.epsilon)
        return ops.cast(outputs, self.compute_dtype)

    def get_config(self):
        return {**super().get_config(), "unit_offset": self.unit_offset, "use_scale": self.use_scale}


_NORMS = {"layer": LayerNorm, "rms": RMSNorm}


def make_norm(kind: str, epsilon: float | None = None, **options) -> keras.layers.Layer:
    """The norm layer of that kind.

    Args:
        kind: "layer", "rms".
        epsilon: of the layer, default the layer's own.
        options: further arguments of the layer, among them `name` and `dtype`.

    Raises:
        ValueError: if there is no such kind.

    Example:

    >>> norm = make_norm("rms", 1e-6, unit_offset=True, name="attention_norm")
    """
    if kind not in _NORMS:
        raise ValueError(f"`kind` is {kind!r}, allowed are {', '.join(map(repr, _NORMS))}.")
    if epsilon is not None:
        options["epsilon"] = epsilon
    return _NORMS[kind](**options)
