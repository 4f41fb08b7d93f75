"""Sinusoidal position encoding."""

from typing import Any

import keras
import numpy as np
from keras import ops

from layers.positions.base import (
    PositionEncoding,
    check_above_zero,
    check_choice,
    check_even,
    check_offset,
    float32_or_wider,
    integer_positions,
    register_position,
    spec_of_vectors,
)


@register_position("sinusoidal")
@keras.saving.register_keras_serializable("keras_transformer_zoo")
class SinusoidalPositionEncoding(PositionEncoding):
    """Fixed sines and cosines of the position with geometrically spaced wavelengths, added to the token embeddings.

    The features of position `p` are `sin(p * frequency_i)` and `cos(p * frequency_i)` for `i = 0 ... dim / 2 - 1`, with
    `frequency_i = base ** (-2 i / dim)`. The encoding of `p + k` is a rotation of the encoding of `p` that depends on
    `k` only. Frequencies from 1 to `1 / last` (tensor2tensor, fairseq) are those of
    `base=last ** (dim / (dim - 2))`.

    Args:
        dim: Width of the encoding, even.
        base: Base of the frequencies; 10,000 in the paper.
        layout: Order of the features. `"interleaved"` (the paper): sines at even, cosines at odd indices;
            `"concatenated"`: all sines, then all cosines.
        offset: Added to each position: 2 in fairseq, where the number of the padding token comes before all positions.
        **kwargs: `name`, `dtype` and other arguments of `keras.layers.Layer`.

    Call arguments:
        positions: Integers of any shape, for example `(length,)` or `(batch, length)`.

    Returns:
        The encoding, shape `(*positions.shape, dim)`, in the compute dtype. Angles are computed in float32 whatever the
        policy.

    Raises:
        ValueError: If `dim` is odd, `base` is not above zero, `layout` is unknown, `offset` is below zero or
            `positions` are not integers.

    Example:

    >>> encoding = SinusoidalPositionEncoding(4)
    >>> encoding(np.array([0, 2]))   # [[0, 1, 0, 1], [sin 2, cos 2, sin 0.02, cos 0.02]]

    Reference:
        Vaswani et al. 2017, "Attention Is All You Need", section 3.5.
    """

    shared_by_blocks = True

    def __init__(
        self, dim: int, base: float = 10000.0, layout: str = "interleaved", offset: int = 0, **kwargs: Any
    ) -> None:
        super().__init__(**kwargs)
        self.dim = check_even("dim", dim)
        self.base = check_above_zero("base", base)
        self.layout = check_choice("layout", layout, ("interleaved", "concatenated"))
        self.offset = check_offset(offset)
        self._frequencies = self.base ** (-np.arange(0, dim, 2, dtype="float64") / dim)

    def on_embeddings(self, x: Any, positions: Any) -> Any:
        # positions below zero are left padding, for which any encoding will do
        return x + ops.cast(self(ops.maximum(positions, 0)), x.dtype)

    def call(self, positions: Any) -> Any:
        positions = integer_positions("positions", positions)
        positions = positions + self.offset if self.offset else positions
        angle_dtype = float32_or_wider(self.compute_dtype)
        angles = ops.expand_dims(ops.cast(positions, angle_dtype), -1) * ops.cast(self._frequencies, angle_dtype)
        if self.layout == "interleaved":
            pairs = ops.stack([ops.sin(angles), ops.cos(angles)], axis=-1)
            encoding = ops.reshape(pairs, (*ops.shape(positions), self.dim))
        else:
            encoding = ops.concatenate([ops.sin(angles), ops.cos(angles)], axis=-1)
        return ops.cast(encoding, self.compute_dtype)

    def compute_output_spec(self, positions: Any) -> Any:
        return spec_of_vectors(self, positions)

    def compute_output_shape(self, positions_shape: tuple[int | None, ...]) -> tuple[int | None, ...]:
        return (*positions_shape, self.dim)
