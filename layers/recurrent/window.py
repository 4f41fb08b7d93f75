"""Local attention of recurrent models: a window of source positions, and its centre."""

import math
from typing import Any

import keras
from keras import ops

from layers.constructor_arguments import ConfigFromArguments
from layers.dense import Dense

CENTERS = ("predicted", "monotonic")


@keras.saving.register_keras_serializable("keras_transformer_zoo")
class AttentionWindow(ConfigFromArguments, keras.layers.Layer):
    """A window of `2 D + 1` source positions around a centre `p_t`, to which a decoder attends in step t.

    * "predicted" (local-p): `p_t = S sigmoid(v_p^T tanh(W_p h_t))`, with S the number of source tokens and `h_t` the
      query. The attention weights are multiplied by `exp(-(s - p_t)^2 / (2 sigma^2))` with `sigma = D / 2`. Through
      these factors the gradient reaches the prediction.
    * "monotonic" (local-m): `p_t = min(t, S)`, without factors and without weights.

    Positions count from 1 to S, so that every window has at least one real position.

    The weight of `position_projection` is `v_p` times the square root of the query's width. Adam changes every weight
    by about the learning rate. Without the factor these changes would add up over the width, the sigmoid would
    saturate, and the centre would stay at an end of the sentence.

    Args:
        radius: D, the number of positions on each side of the centre, at least 1.
        center: "predicted" or "monotonic".

    Call arguments:
        query: `h_t`, `(batch, query_dim)` or `(batch, query_length, query_dim)`.
        mask: True where a source token is real, `(batch, source_length)`. Padding must be on the right.
        step: t, counted from 1, integers `(batch,)` or `(query_length,)`. Needed by "monotonic".

    Returns:
        The mask, true for real tokens in the window, and the factors on the weights (None for "monotonic"), both
        `(batch, source_length)` or `(batch, query_length, source_length)`.

    Raises:
        ValueError: If `radius` or `center` is not allowed, or `step` is missing with "monotonic".

    Example:

    >>> window = AttentionWindow(2, "monotonic")
    >>> visible, factors = window(keras.ops.ones((1, 8)), keras.ops.ones((1, 6), "bool"), step=[3])
    >>> visible
    [[True, True, True, True, True, False]]

    Reference:
        Luong et al. 2015, "Effective Approaches to Attention-based Neural Machine Translation", section 3.2, equations
        9 and 10.
    """

    def __init__(self, radius: int, center: str = "predicted", **kwargs: Any) -> None:
        super().__init__(**kwargs)
        if radius < 1:
            raise ValueError(f"radius must be at least 1, got {radius}.")
        if center not in CENTERS:
            raise ValueError(f"center must be one of {', '.join(map(repr, CENTERS))}, got {center!r}.")
        self.radius = radius
        self.center = center
        self.hidden_projection = self.position_projection = None

    def build(self, query_shape: tuple[int | None, ...], mask_shape: tuple[int | None, ...] | None = None) -> None:
        if self.center == "predicted":
            dim = query_shape[-1]
            self.hidden_projection = Dense(
                dim, activation="tanh", use_bias=False, dtype=self.dtype_policy, name="hidden_projection"
            )
            self.hidden_projection.build(query_shape)
            # in float32, because half precision cannot represent all positions of a long source
            dtype = keras.backend.result_type(self.variable_dtype, "float32")
            self.position_projection = Dense(1, use_bias=False, dtype=dtype, name="position_projection")
            self.position_projection.build((*query_shape[:-1], dim))

    def call(self, query: Any, mask: Any, step: Any = None) -> Any:
        length = ops.shape(mask)[1]
        token_mask = ops.convert_to_tensor(mask, dtype="bool")
        tokens = ops.sum(ops.cast(token_mask, "float32"), axis=1)
        places = ops.cast(ops.arange(length), "float32") + 1
        many = len(query.shape) == 3
        if many:
            tokens, token_mask = ops.expand_dims(tokens, 1), ops.expand_dims(token_mask, 1)
        if self.center == "monotonic":
            if step is None:
                raise ValueError("step must be given with center='monotonic', got None.")
            step = ops.cast(ops.convert_to_tensor(step), "float32")
            centers = ops.minimum(ops.expand_dims(step, 0) if many else step, tokens)
        else:
            logits = self.position_projection(self.hidden_projection(query)) / math.sqrt(query.shape[-1])
            centers = tokens * ops.squeeze(ops.sigmoid(logits), -1)
        distance = places - ops.expand_dims(centers, -1)
        visible = ops.logical_and(ops.abs(distance) <= self.radius, token_mask)
        if self.center == "monotonic":
            return visible, None
        return visible, ops.exp(-2.0 * ops.square(distance / self.radius))

    def compute_mask(self, query: Any, previous_mask: Any) -> Any:
        return None
