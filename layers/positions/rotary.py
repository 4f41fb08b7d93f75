"""Rotary position embedding."""

import keras
import numpy as np
from keras import ops

from layers.positions.common import (
    check_above_zero,
    check_choice,
    check_even,
    float32_or_wider,
    integer_positions,
)


@keras.saving.register_keras_serializable("keras_transformer_zoo")
class RotaryEmbedding(keras.layers.Layer):
    """Rotates pairs of features of queries and keys by angles that grow with the position.

    Pair `i` of a token at position `p` is turned by `p * base ** (-2 i / rotary_dim)`, so that the product of a query
    and a key depends on their contents and on the distance between them, not on where they stand.

    Args:
        head_dim: width of a head.
        base: ratio of the longest to the shortest wavelength ("theta" in many configurations).
        layout: which features form pair `i`. `"half_split"` (GPT-NeoX, Llama in Transformers): `i` and
            `i + rotary_dim / 2`; `"interleaved"` (the paper, GPT-J): `2 i` and `2 i + 1`.
        rotary_dim: how many features, the first ones, are rotated; the others pass unchanged. Even; default all.
        **kwargs: `name`, `dtype` and what else `keras.layers.Layer` takes.

    Call arguments:
        x: queries or keys, shape `(batch, length, heads, head_dim)`.
        positions: integers, shape `(length,)` or `(batch, length)`.

    Returns:
        The rotated features, of the shape and dtype of `x`. Angles and rotation are computed in float32 whatever the
        policy. To rotate queries and keys, or the heads of several layers, by the same angles, compute these once with
        `cos_sin(positions)` and pass them to `rotate(x, cos, sin)`.

    Raises:
        ValueError: `head_dim` or `rotary_dim` is odd, `rotary_dim` is larger than `head_dim`, `layout` is unknown, or a
            call has a wrong rank or width.

    Example:

    >>> rotary = RotaryEmbedding(4, layout="interleaved")
    >>> rotary(np.array([[[[1.0, 0.0, 1.0, 0.0]]]]), np.array([1]))   # [[[[0.54, 0.84, 1.00, 0.01]]]]

    Source: Su et al. 2021, "RoFormer: Enhanced Transformer with Rotary Position Embedding", section 3.2, equation 34.
    """

    acts_on = "query_key"

    def __init__(
        self,
        head_dim: int,
        base: float = 10000.0,
        layout: str = "half_split",
        rotary_dim: int | None = None,
        **kwargs,
    ):
        super().__init__(**kwargs)
        self.head_dim = check_even("RotaryEmbedding", "head_dim", head_dim)
        self.base = check_above_zero("RotaryEmbedding", "base", base)
        self.layout = check_choice("RotaryEmbedding", "layout", layout, ("half_split", "interleaved"))
        self.rotary_dim = check_even("RotaryEmbedding", "rotary_dim", head_dim if rotary_dim is None else rotary_dim)
        if self.rotary_dim > self.head_dim:
            raise ValueError(f"RotaryEmbedding: `rotary_dim` must not exceed head_dim = {head_dim}, got {rotary_dim}.")
        self._frequencies = self.base ** (-np.arange(0, self.rotary_dim, 2, dtype="float64") / self.rotary_dim)

    def build(self, *input_shapes):
        self.built = True

    def call(self, x, positions):
        return self.rotate(x, *self.cos_sin(positions))

    def cos_sin(self, positions):
        """Cosines and sines of the angles, each of shape `(*positions.shape, rotary_dim / 2)`, in float32 or wider."""
        positions = integer_positions("RotaryEmbedding", "positions", positions, ranks=(1, 2))
        dtype = float32_or_wider(self.compute_dtype)
        angles = ops.expand_dims(ops.cast(positions, dtype), -1) * ops.cast(self._frequencies, dtype)
        return ops.cos(angles), ops.sin(angles)

    def rotate(self, x, cos, sin):
        """Rotates `x`, `(batch, length, heads, head_dim)`, by the angles that `cos_sin` gave for its positions."""
        if len(x.shape) != 4 or x.shape[-1] != self.head_dim:
            raise ValueError(
                f"RotaryEmbedding: `x` must have shape (batch, length, heads, head_dim = {self.head_dim}), "
                f"got {tuple(x.shape)}."
            )
        dtype = x.dtype
        cos, sin = ops.expand_dims(cos, -2), ops.expand_dims(sin, -2)  # the same for all heads
        rotated, passed = x[..., : self.rotary_dim], x[..., self.rotary_dim :]
        rotated = ops.cast(rotated, cos.dtype)
        half = self.rotary_dim // 2
        if self.layout == "half_split":
            first, second = rotated[..., :half], rotated[..., half:]
        else:
            first, second = rotated[..., 0::2], rotated[..., 1::2]
        first, second = first * cos - second * sin, second * cos + first * sin
        if self.layout == "half_split":
            rotated = ops.concatenate([first, second], axis=-1)
        else:
            rotated = ops.reshape(ops.stack([first, second], axis=-1), (*ops.shape(x)[:-1], self.rotary_dim))
        rotated = ops.cast(rotated, dtype)
        return ops.concatenate([rotated, passed], axis=-1) if self.rotary_dim < self.head_dim else rotated

    def compute_output_shape(self, x_shape, positions_shape=None):
        return x_shape

    def get_config(self):
        return {
            **super().get_config(),
            "head_dim": self.head_dim,
            "base": self.base,
            "layout": self.layout,
            "rotary_dim": self.rotary_dim,
        }
