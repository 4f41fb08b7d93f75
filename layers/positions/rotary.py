"""Rotary position embedding."""

from typing import Any

import keras
import numpy as np
from keras import ops

from layers.fusion import sizes
from layers.positions.base import (
    PositionEncoding,
    check_above_zero,
    check_choice,
    check_even,
    check_positive_integer,
    float32_or_wider,
    integer_positions,
    register_position,
)
from layers.positions.rotary_scaling import (
    LENGTH,
    LENGTH_DEPENDENT,
    ROTARY_SCALINGS,
    check_rotary_scaling,
    inverse_frequencies,
)


@register_position("rotary")
@keras.saving.register_keras_serializable("keras_transformer_zoo")
class RotaryEmbedding(PositionEncoding):
    """Rotates pairs of features of queries and keys by angles that grow with the position.

    Pair `i` of a token at position `p` is rotated by the angle `p * base ** (-2 i / rotary_dim)`, in radians. The
    product of a query and a key then depends on their contents and their distance, not on their absolute positions.

    Args:
        head_dim: Width of a head.
        base: Base of the frequencies ("theta" in many configurations).
        layout: Which features form pair `i`. `"half_split"` (GPT-NeoX, Llama in Transformers): `i` and
            `i + rotary_dim / 2`; `"interleaved"` (the paper, GPT-J): `2 i` and `2 i + 1`.
        rotary_dim: Number of features that are rotated, even. The others pass unchanged. Default `head_dim`.
        rotary_start: Index of the first rotated feature.
        frequency_dtype: "float16" to round the frequencies to this dtype, for models that were trained with rounded
            ones (ESM-2); None for exact ones. Not with a scaling that depends on the text.
        scaling: Other frequencies, for texts longer than those of training: a dict with a `"kind"` and its parameters,
            for example `{"kind": "linear", "factor": 4.0}`. Kinds are `"linear"`, `"dynamic_ntk"`, `"yarn"`,
            `"llama3"`, `"longrope"` and `"proportional"`, see `layers.positions.rotary_scaling`.
        sequence_length: Number of tokens for which the scalings `"dynamic_ntk"` and `"longrope"` are computed, for all
            texts. Default: they depend on each text, see the call argument.
        **kwargs: `name`, `dtype` and other arguments of `keras.layers.Layer`.

    Call arguments:
        x: Queries or keys, shape `(batch, length, heads, head_dim)`.
        positions: Integers, shape `(length,)` or `(batch, length)`.
        sequence_length: Number of tokens of the whole text: a scalar, one per row `(batch,)` or one per token
            `(batch, length)`. Only the scalings `"dynamic_ntk"` and `"longrope"` use it, and only if the layer has no
            `sequence_length` of its own. Default the largest position of the row plus one. Give it if rows are padded,
            and with a key-value cache, because queries and keys must be rotated for the same `sequence_length`.

    Returns:
        The rotated features, of the shape and dtype of `x`. Angles and rotation are computed in float32 whatever the
        policy. To rotate several tensors by the same angles, compute these once with `cos_sin(positions)` and pass them
        to `rotate(x, cos, sin)`.

    Raises:
        ValueError: If `head_dim` or `rotary_dim` is odd, `rotary_dim` is larger than `head_dim`, `layout` is unknown, a
            key of `scaling` is unknown, missing or out of range, or an argument of the call has a wrong rank or width.

    Example:

    >>> rotary = RotaryEmbedding(4, layout="interleaved")
    >>> rotary(np.array([[[[1.0, 0.0, 1.0, 0.0]]]]), np.array([1]))   # [[[[0.54, 0.84, 1.00, 0.01]]]]

    Reference:
        Su et al. 2021, "RoFormer: Enhanced Transformer with Rotary Position Embedding", section 3.2, equation 34.
    """

    def __init__(
        self,
        head_dim: int,
        base: float = 10000.0,
        layout: str = "half_split",
        rotary_dim: int | None = None,
        scaling: dict[str, Any] | None = None,
        sequence_length: int | None = None,
        rotary_start: int = 0,
        frequency_dtype: str | None = None,
        **kwargs: Any,
    ) -> None:
        super().__init__(**kwargs)
        self.head_dim = check_even("head_dim", head_dim)
        self.base = check_above_zero("base", base)
        self.layout = check_choice("layout", layout, ("half_split", "interleaved"))
        self.rotary_dim = check_even("rotary_dim", head_dim if rotary_dim is None else rotary_dim)
        if self.rotary_dim > self.head_dim:
            raise ValueError(f"rotary_dim must not exceed head_dim = {head_dim}, got {rotary_dim}.")
        self.rotary_start = rotary_start
        if isinstance(rotary_start, bool) or not 0 <= rotary_start <= head_dim - self.rotary_dim:
            allowed = f"from 0 to head_dim - rotary_dim = {head_dim - self.rotary_dim}"
            raise ValueError(f"rotary_start must be {allowed}, got {rotary_start!r}.")
        self.scaling = None if scaling is None else check_rotary_scaling(scaling, self.rotary_dim)
        self.sequence_length = sequence_length
        if sequence_length is not None:
            check_positive_integer("sequence_length", sequence_length)
        self.frequency_dtype = check_choice("frequency_dtype", frequency_dtype, (None, "float16"))
        if frequency_dtype is not None and self.depends_on_length:
            raise ValueError(
                f"frequency_dtype must be None with scaling of kind {self.scaling['kind']!r}, got {frequency_dtype!r}."
            )

    @property
    def depends_on_length(self) -> bool:  # type: ignore[override]  # a constant in the base class
        """Whether the angles depend on the number of tokens of the text."""
        return self.scaling is not None and self.scaling["kind"] in LENGTH_DEPENDENT and self.sequence_length is None

    def length_group(self, sequence_length: Any) -> Any:
        if not self.depends_on_length or self.scaling["kind"] != "longrope":
            return super().length_group(sequence_length)
        return ops.cast(sequence_length > self.scaling[LENGTH], "int32")

    def prepare(self, positions: Any, sequence_length: Any = None) -> Any:
        # with an axis for the heads, which all have the same angles
        return tuple(ops.expand_dims(factor, -2) for factor in self.cos_sin(positions, sequence_length))

    def on_queries(self, query: Any, prepared: Any) -> Any:
        return self._rotate_heads(query, *prepared)

    def on_keys(self, key: Any, prepared: Any) -> Any:
        return self._rotate_heads(key, *prepared)

    def call(self, x: Any, positions: Any, sequence_length: Any = None) -> Any:
        return self.on_queries(x, self.prepare(positions, sequence_length))

    def cos_sin(self, positions: Any, sequence_length: Any = None) -> Any:
        """Returns the cosines and sines of the rotation at each position, for `rotate`.

        Args:
            positions: Integers, shape `(length,)` or `(batch, length)`.
            sequence_length: As in the call.

        Returns:
            The cosine and the sine for each feature, both of shape `(*positions.shape, rotary_dim)`, in float32 or
            wider. The sine is negative for the first feature of a pair.
        """
        positions = integer_positions("positions", positions, ranks=(1, 2))
        dtype = float32_or_wider(self.compute_dtype)
        frequencies, attention_scaling = self._frequencies(positions, sequence_length, dtype)
        if self.frequency_dtype is not None:
            frequencies = np.asarray(frequencies, "float32").astype(self.frequency_dtype)
        angles = ops.expand_dims(ops.cast(positions, dtype), -1) * ops.cast(frequencies, dtype)
        cos, sin = ops.cos(angles) * attention_scaling, ops.sin(angles) * attention_scaling
        if self.layout == "half_split":
            return ops.concatenate([cos, cos], axis=-1), ops.concatenate([-sin, sin], axis=-1)
        shape = (*sizes(angles)[:-1], self.rotary_dim)
        return (
            ops.reshape(ops.stack([cos, cos], axis=-1), shape),
            ops.reshape(ops.stack([-sin, sin], axis=-1), shape),
        )

    def _frequencies(self, positions: Any, sequence_length: Any, dtype: Any) -> Any:
        if self.scaling is None:
            return inverse_frequencies(self.base, self.rotary_dim), 1.0
        if self.scaling["kind"] not in LENGTH_DEPENDENT:
            sequence_length = None
        elif self.sequence_length is not None:
            sequence_length = self.sequence_length
        elif sequence_length is None:
            sequence_length = ops.cast(ops.max(positions, axis=-1, keepdims=True, initial=0) + 1, dtype)
        else:
            sequence_length = ops.cast(sequence_length, dtype)
            if len(sequence_length.shape) == 1:
                sequence_length = ops.expand_dims(sequence_length, -1)  # one per row, the same for all its tokens
        return ROTARY_SCALINGS[self.scaling["kind"]](self.base, self.rotary_dim, self.scaling, sequence_length)

    def rotate(self, x: Any, cos: Any, sin: Any) -> Any:
        """Returns `x`, `(batch, length, heads, head_dim)`, rotated by the result of `cos_sin` for its positions."""
        return self._rotate_heads(x, ops.expand_dims(cos, -2), ops.expand_dims(sin, -2))

    def _rotate_heads(self, x: Any, cos: Any, sin: Any) -> Any:
        """Rotates `x` by factors with an axis for the heads."""
        if len(x.shape) != 4 or x.shape[-1] != self.head_dim:
            raise ValueError(
                f"x must have shape (batch, length, heads, head_dim = {self.head_dim}), got {tuple(x.shape)}."
            )
        start, end = self.rotary_start, self.rotary_start + self.rotary_dim
        is_part = self.rotary_dim < self.head_dim
        rotated = ops.cast(x[..., start:end] if is_part else x, cos.dtype)
        rotated = ops.cast(rotated * cos + self._swap_pairs(rotated) * sin, x.dtype)
        if not is_part:
            return rotated
        parts = (x[..., :start], rotated, x[..., end:])
        return ops.concatenate([part for part in parts if part.shape[-1]], axis=-1)

    def _swap_pairs(self, x: Any) -> Any:
        # on a CPU, reversing an axis of size two is several times faster than strided slices, gradient included
        shape, pairs = sizes(x), self.rotary_dim // 2
        if self.layout == "half_split":
            return ops.reshape(ops.flip(ops.reshape(x, (*shape[:-1], 2, pairs)), axis=-2), shape)
        return ops.reshape(ops.flip(ops.reshape(x, (*shape[:-1], pairs, 2)), axis=-1), shape)

    def compute_output_shape(
        self,
        x_shape: tuple[int | None, ...],
        positions_shape: tuple[int | None, ...] | None = None,
        sequence_length_shape: tuple[int | None, ...] | None = None,
    ) -> tuple[int | None, ...]:
        return x_shape
