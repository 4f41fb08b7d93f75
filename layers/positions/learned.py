"""Learned absolute position embedding."""

from typing import Any

import keras
from keras import ops

from layers.positions.base import (
    PositionEncoding,
    check_offset,
    check_positive_integer,
    integer_positions,
    register_position,
    spec_of_vectors,
)


@register_position("learned")
@keras.saving.register_keras_serializable("keras_transformer_zoo")
class LearnedPositionEmbedding(PositionEncoding):
    """A learned vector per position, added to the token embeddings.

    Args:
        max_length: Number of positions. Allowed positions are 0 to `max_length - 1`.
        dim: Width of the vectors.
        embeddings_initializer: Initializer of the vectors.
        offset: Number of unused rows of the table before that of position 0: 2 in BART and RoBERTa.
        **kwargs: `name`, `dtype` and other arguments of `keras.layers.Layer`.

    Call arguments:
        positions: Integers of any shape, for example `(length,)` or `(batch, length)`.

    Returns:
        The vectors, shape `(*positions.shape, dim)`, in the compute dtype.

    Raises:
        ValueError: If `max_length` or `dim` is not a positive integer, or if positions are not integers from 0 to
            `max_length - 1`. A compiled function cannot check the values: there, a position out of range gives NaN, or
            the error of the backend.

    Example:

    >>> embedding = LearnedPositionEmbedding(max_length=512, dim=64)
    >>> embedding(np.arange(10)).shape   # (10, 64)

    Reference:
        Gehring et al. 2017, "Convolutional Sequence to Sequence Learning", section 3.1; Vaswani et al. 2017, section
        3.5 and table 3, row E.
    """

    shared_by_blocks = True

    def __init__(
        self, max_length: int, dim: int, embeddings_initializer: Any = "uniform", offset: int = 0, **kwargs: Any
    ) -> None:
        super().__init__(**kwargs)
        self.max_length = check_positive_integer("max_length", max_length)
        self.dim = check_positive_integer("dim", dim)
        self.embeddings_initializer = keras.initializers.get(embeddings_initializer)
        self.offset = check_offset(offset)

    def build(self, *input_shapes: Any) -> None:
        self.embeddings = self.add_weight(
            shape=(self.max_length + self.offset, self.dim),
            initializer=self.embeddings_initializer,
            name="embeddings",
        )
        self.built = True

    def on_embeddings(self, x: Any, positions: Any) -> Any:
        # positions below zero are left padding, for which any vector will do
        return x + ops.cast(self(ops.maximum(positions, 0)), x.dtype)

    def call(self, positions: Any) -> Any:
        positions = integer_positions("positions", positions)
        self._check_range(positions)
        vectors = ops.take(self.embeddings, positions + self.offset if self.offset else positions, axis=0)
        # in compiled functions some backends would use the last vector for a position out of range, without an error
        known = ops.logical_and(positions >= 0, positions < self.max_length)
        return ops.where(ops.expand_dims(known, -1), vectors, ops.cast(float("nan"), vectors.dtype))

    def _check_range(self, positions: Any) -> None:
        try:
            numbers = ops.convert_to_numpy(positions)
        except (NotImplementedError, TypeError):
            return  # a traced tensor of TensorFlow or JAX: there are no numbers yet
        if numbers.size and (numbers.min() < 0 or numbers.max() >= self.max_length):
            raise ValueError(
                f"positions must lie between 0 and max_length - 1 = {self.max_length - 1}, "
                f"got positions from {numbers.min()} to {numbers.max()}. Shorten the text or build the layer with a "
                "larger max_length."
            )

    def compute_output_spec(self, positions: Any) -> Any:
        return spec_of_vectors(self, positions)

    def compute_output_shape(self, positions_shape: tuple[int | None, ...]) -> tuple[int | None, ...]:
        return (*positions_shape, self.dim)
