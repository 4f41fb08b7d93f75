"""Attention with linear biases."""

import math
from typing import Any

import keras
import numpy as np
from keras import ops

from layers.positions.base import (
    PositionEncoding,
    Projections,
    bias_shape,
    check_above_zero,
    check_positive_integer,
    distances,
    float32_or_wider,
    register_position,
)


def alibi_slopes(num_heads: int, bias_max: float = 8.0) -> np.ndarray:
    """Returns the slope of each head.

    If the number of heads is a power of two, the slopes are `2 ** (-bias_max i / num_heads)` for `i = 1 ... num_heads`.
    Otherwise they are those of the next lower power of two, followed by every second slope of the next higher one.

    Args:
        num_heads: Number of heads.
        bias_max: Minus the binary logarithm of the smallest slope.

    Returns:
        Slopes, float64, shape `(num_heads,)`.

    Reference:
        Press, Smith and Lewis 2022, "Train Short, Test Long", section 3, and its published code.
    """
    power = 2 ** math.floor(math.log2(num_heads))
    slopes = 2.0 ** (-bias_max * np.arange(1, power + 1) / power)
    between = 2.0 ** (-bias_max * np.arange(1, 2 * power + 1, 2) / (2 * power))
    return np.concatenate([slopes, between[: num_heads - power]])


@register_position("alibi")
@keras.saving.register_keras_serializable("keras_transformer_zoo")
class ALiBi(PositionEncoding):
    """Lowers the score of a key in proportion to its distance from the query, with a fixed slope per head.

    The bias is `-slope_scale * slope * abs(key position - query position)`. With a causal mask this is the bias of the
    paper, without one its symmetric form for encoders. The layer has no weights.

    Args:
        num_heads: Number of heads, any positive integer.
        bias_max: Minus the binary logarithm of the smallest slope (MPT's `alibi_bias_max`); 8 in the paper.
        slope_scale: Factor on the slopes. Falcon adds the bias before it scales the scores: `head_dim ** -0.5`.
        **kwargs: `name`, `dtype` and other arguments of `keras.layers.Layer`.

    Call arguments:
        query_positions: Integers, shape `(query_length,)` or `(batch, query_length)`.
        key_positions: Integers, shape `(key_length,)` or `(batch, key_length)`.

    Returns:
        The bias to add to the scaled scores, shape `(1 or batch, num_heads, query_length, key_length)`, in float32
        whatever the policy. It has `batch` rows if one of the arguments has.

    Raises:
        ValueError: If `num_heads` is not a positive integer, another number is not above 0, or positions are not
            integers with one or two axes.

    Example:

    >>> ALiBi(num_heads=2)(np.arange(3), np.arange(3))[0, 0]   # slope 1/16: [[0, -1/16, -2/16], [-1/16, 0, ...

    Reference:
        Press, Smith and Lewis 2022, "Train Short, Test Long: Attention with Linear Biases", section 3.
    """

    shared_by_blocks = True
    depends_on_distance = True  # attention may evaluate one row for all queries

    def __init__(self, num_heads: int, bias_max: float = 8.0, slope_scale: float = 1.0, **kwargs: Any) -> None:
        super().__init__(**kwargs)
        self.num_heads = check_positive_integer("num_heads", num_heads)
        self.bias_max = check_above_zero("bias_max", bias_max)
        self.slope_scale = check_above_zero("slope_scale", slope_scale)

    def score_bias(
        self,
        query: Any,
        key: Any,
        query_positions: Any,
        key_positions: Any,
        scale: Any,
        projections: Projections,
    ) -> Any:
        return self  # the kernel calls it for the distances that it needs

    def call(self, query_positions: Any, key_positions: Any) -> Any:
        dtype = float32_or_wider(self.compute_dtype)
        distance = ops.cast(-ops.abs(distances(query_positions, key_positions)), dtype)
        slopes = ops.cast(self.slope_scale * alibi_slopes(self.num_heads, self.bias_max), dtype)
        return ops.expand_dims(distance, 1) * ops.reshape(slopes, (1, self.num_heads, 1, 1))

    def compute_output_shape(
        self, query_positions_shape: tuple[int | None, ...], key_positions_shape: tuple[int | None, ...]
    ) -> tuple[int | None, ...]:
        return bias_shape(self.num_heads, query_positions_shape, key_positions_shape)
