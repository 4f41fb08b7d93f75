"""Learned vectors for each distance, added to keys and values (Shaw et al.)."""

from typing import Any

import keras
from keras import ops

from layers.initializers import separate
from layers.positions.base import (
    PositionEncoding,
    Projections,
    check_positive_integer,
    distances,
    float32_or_wider,
    register_position,
)


@register_position("shaw")
@keras.saving.register_keras_serializable("keras_transformer_zoo")
class ShawRelativePositions(PositionEncoding):
    """Adds to each key and each value a learned vector that depends on the clipped distance from the query.

    With the distance `r = clip(key position - query position, -max_distance, max_distance)`, attention becomes
    `score = query . (key + a_key[r])` and `output = sum of weight * (value + a_value[r])`. All heads share the vectors.
    This layer computes the two terms that are added to plain attention, `query . a_key[r]` and
    `sum of weight * a_value[r]`.

    The vectors are not copied for each query and key, which would take `query_length * key_length * head_dim` numbers.
    For the first term, the query is multiplied by all `2 max_distance + 1` vectors, and the results are picked by
    distance. For the second, the weights are summed by distance and multiplied by the vectors. Each term takes
    `batch * heads * query_length * (2 max_distance + 1)` numbers of memory, and `head_dim` times as many
    multiplications. The second term needs the attention weights in full, so attention takes the plain path.

    Args:
        head_dim: Width of a query and key head.
        max_distance: Largest distance with a vector of its own; larger distances use the same vector.
        value_dim: Width of a value head. Default `head_dim`.
        embeddings_initializer: Initializer of both tables.
        **kwargs: `name`, `dtype` and other arguments of `keras.layers.Layer`.

    Raises:
        ValueError: If a size is not a positive integer, an argument of a call has a wrong rank or width, or positions
            are not integers.

    Example:

    >>> relative = ShawRelativePositions(head_dim=64, max_distance=16)
    >>> scores = scores + relative.key_bias(query, np.arange(10), np.arange(10)) / 8.0
    >>> output = weights @ value + relative.value_context(weights, np.arange(10), np.arange(10))

    Reference:
        Shaw, Uszkoreit and Vaswani 2018, "Self-Attention with Relative Position Representations", equations 3, 4 and 5.
    """

    needs_weights = True

    def __init__(
        self,
        head_dim: int,
        max_distance: int,
        value_dim: int | None = None,
        embeddings_initializer: Any = "glorot_uniform",
        **kwargs: Any,
    ) -> None:
        super().__init__(**kwargs)
        self.head_dim = check_positive_integer("head_dim", head_dim)
        self.max_distance = check_positive_integer("max_distance", max_distance)
        self.value_dim = check_positive_integer("value_dim", head_dim if value_dim is None else value_dim)
        self.embeddings_initializer = keras.initializers.get(embeddings_initializer)
        self.num_distances = 2 * max_distance + 1

    def build(self, *input_shapes: Any) -> None:
        self.key_embeddings = self.add_weight(
            shape=(self.num_distances, self.head_dim),
            initializer=separate(self.embeddings_initializer, 0),
            name="key_embeddings",
        )
        self.value_embeddings = self.add_weight(
            shape=(self.num_distances, self.value_dim),
            initializer=separate(self.embeddings_initializer, 1),
            name="value_embeddings",
        )
        self.built = True

    def score_bias(
        self,
        query: Any,
        key: Any,
        query_positions: Any,
        key_positions: Any,
        scale: Any,
        projections: Projections,
    ) -> Any:
        return scale * self.key_bias(query, query_positions, key_positions)

    def on_output(self, output: Any, weights: Any, query_positions: Any, key_positions: Any) -> Any:
        return output + self.value_context(weights, query_positions, key_positions)

    def key_bias(self, query: Any, query_positions: Any, key_positions: Any) -> Any:
        """Returns the term that the key vectors add to the scores, before scaling.

        Args:
            query: Shape `(batch, heads, query_length, head_dim)`.
            query_positions: Integers, shape `(query_length,)` or `(batch, query_length)`.
            key_positions: Integers, shape `(key_length,)` or `(batch, key_length)`.

        Returns:
            `query . a_key[distance]`, shape `(batch, heads, query_length, key_length)`, in float32 or wider like all
            scores.
        """
        self._check("query", query, self.head_dim)
        if not self.built:
            self.build()
        batch, heads, query_length, _ = ops.shape(query)
        slots, rows, key_length = self._slots(query_positions, key_positions)
        dtype = float32_or_wider(query.dtype)
        products = ops.matmul(ops.cast(query, dtype), ops.transpose(ops.cast(self.key_embeddings, dtype)))
        # rows with the same positions also share the gather, which then moves `batch / rows * heads` numbers at once
        together, width = _part(batch, rows) * heads, query_length * self.num_distances
        products = ops.reshape(products, (rows, together, width))
        products = ops.reshape(ops.transpose(products, (0, 2, 1)), (rows * width, together))
        # of no rows JAX takes nothing of the shape that it has otherwise
        picked = ops.reshape(ops.take(products, slots, axis=0), (rows, query_length * key_length, together))
        return ops.reshape(ops.transpose(picked, (0, 2, 1)), (batch, heads, query_length, key_length))

    def value_context(self, weights: Any, query_positions: Any, key_positions: Any) -> Any:
        """Returns the term that the value vectors add to the output of attention.

        Args:
            weights: Attention weights, shape `(batch, heads, query_length, key_length)`; zero where masked.
            query_positions: Integers, shape `(query_length,)` or `(batch, query_length)`.
            key_positions: Integers, shape `(key_length,)` or `(batch, key_length)`.

        Returns:
            `sum over keys of weight * a_value[distance]`, shape `(batch, heads, query_length, value_dim)`, in the dtype
            of `weights`. Sums are computed in float32 whatever the policy.
        """
        self._check("weights", weights, None)
        if not self.built:
            self.build()
        batch, heads, query_length, _ = ops.shape(weights)
        slots, rows, key_length = self._slots(query_positions, key_positions)
        sums = ops.cast(weights, float32_or_wider(weights.dtype))
        together, width = _part(batch, rows) * heads, query_length * self.num_distances
        sums = ops.reshape(sums, (rows, together, query_length * key_length))
        sums = ops.reshape(ops.transpose(sums, (0, 2, 1)), (rows * query_length * key_length, together))
        sums = ops.segment_sum(sums, ops.reshape(slots, (-1,)), rows * width)
        sums = ops.reshape(sums, (rows, width, together))
        sums = ops.reshape(ops.transpose(sums, (0, 2, 1)), (batch, heads, query_length, self.num_distances))
        return ops.cast(ops.matmul(sums, ops.cast(self.value_embeddings, sums.dtype)), weights.dtype)

    def _slots(self, query_positions: Any, key_positions: Any) -> Any:
        """The index of each query and key among all (row, query, distance), of shape `(rows, queries * keys)`."""
        distance = distances(query_positions, key_positions)
        rows, query_length, key_length = ops.shape(distance)
        number = ops.clip(distance, -self.max_distance, self.max_distance) + self.max_distance
        first = ops.reshape(ops.arange(rows * query_length, dtype="int32"), (rows, query_length, 1))
        number = number + first * self.num_distances
        return ops.reshape(number, (rows, query_length * key_length)), rows, key_length

    def _check(self, name: Any, tensor: Any, width: Any) -> None:
        if len(tensor.shape) != 4 or (width is not None and tensor.shape[-1] != width):
            last = "key_length" if width is None else f"head_dim = {width}"
            raise ValueError(f"{name} must have shape (batch, heads, query_length, {last}), got {tuple(tensor.shape)}.")


def _part(batch: Any, rows: Any) -> Any:
    """How many rows of a batch have the same positions, where `rows` of it have their own; 1 of none."""
    least = max if isinstance(rows, int) else ops.maximum
    return batch // least(rows, 1)
