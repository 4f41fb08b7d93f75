"""How an attention layer makes the queries, keys and values of its heads."""

from typing import Any

import keras
from keras import ops

from layers.fusion import sizes, to_matrix


class Heads:
    """Queries, keys and values, each by one linear map of the inputs.

    Args:
        layer: The `MultiHeadAttention`, which holds the projections.
    """

    def __init__(self, layer: Any) -> None:
        self.layer = layer

    def widths(self) -> dict[str, int]:
        """The output widths of the projections."""
        layer = self.layer
        return {
            "query": layer.num_heads * layer.head_dim,
            "key": layer.num_key_value_heads * layer.head_dim,
            "value": layer.num_key_value_heads * layer.value_head_dim,
        }

    def build_queries(self, inputs_shape: tuple[int | None, ...]) -> None:
        """Builds the query projection for inputs of this shape."""
        self.layer.query_projection.build(inputs_shape)

    def build_memory(self, memory_shape: tuple[int | None, ...]) -> None:
        """Builds the key and value projections for a memory of this shape, unless they are built."""
        for projection in (self.layer.key_projection, self.layer.value_projection):
            if not projection.built:
                projection.build(memory_shape)

    def queries(self, inputs: Any, prepared: Any) -> Any:
        """Returns queries `(batch, heads, length, head_dim)` of inputs, with `prepared` for the position encoding."""
        layer = self.layer
        query = layer.query_projection(to_matrix(inputs))
        query = self.split(query, sizes(inputs)[:2], layer.num_heads, layer.head_dim, layer.query_norm)
        query = layer.position_hooks().on_queries(self._limited(query), prepared)  # (batch, length, heads, head_dim)
        return ops.transpose(query, (0, 2, 1, 3))

    def keys_and_values(self, memory: Any, prepared: Any) -> tuple[Any, Any]:
        """Returns keys and values `(batch, key_value_heads, memory_length, ...)` of a memory."""
        layer, (batch, length, _), rows = self.layer, sizes(memory), to_matrix(memory)
        heads, shape = layer.num_key_value_heads, (batch, length)
        key = self.split(layer.key_projection(rows), shape, heads, layer.head_dim, layer.key_norm)
        key = self.layer.position_hooks().on_keys(self._limited(key), prepared)  # (batch, length, heads, head_dim)
        value = self._limited(self.split(layer.value_projection(rows), shape, heads, layer.value_head_dim))
        return ops.transpose(key, (0, 2, 1, 3)), ops.transpose(value, (0, 2, 1, 3))

    def projected(self, inputs: Any, *projections: Any) -> list[Any]:
        """Returns what further projections of inputs give their heads, each `(batch, heads, length, width)`."""
        layer, rows, shape = self.layer, to_matrix(inputs), sizes(inputs)[:2]
        numbers = layer.num_heads, layer.num_key_value_heads, layer.num_key_value_heads
        widths = layer.head_dim, layer.head_dim, layer.value_head_dim
        parts = zip(projections, numbers, widths, strict=True)
        return [
            ops.transpose(ops.reshape(projection(rows), (*shape, heads, width)), (0, 2, 1, 3))
            for projection, heads, width in parts
        ]

    def split(
        self, x: Any, shape: tuple[Any, ...], heads: int, width: int, norm: keras.layers.Layer | None = None
    ) -> Any:
        """`(*shape, heads * width)`, or a matrix of such rows, to `(*shape, heads, width)`, normed on the way."""
        scope, dtype = self.layer.norm_scope, x.dtype
        if norm is not None and scope == "width":
            x = norm(x)
        x = ops.reshape(x, (*shape, heads, width))
        x = norm(x) if norm is not None and scope == "head" else x
        return ops.cast(x, dtype)  # a norm may have a dtype of its own

    def _limited(self, x: Any) -> Any:
        limit = self.layer.projection_limit
        return x if limit is None else ops.clip(x, -limit, limit)

    def cached_sizes(self) -> dict[str, int]:
        """Number of heads and widths of what a cache holds for each position."""
        layer = self.layer
        return {
            "num_heads": layer.num_key_value_heads,
            "head_dim": layer.head_dim,
            "value_head_dim": layer.value_head_dim,
        }

    def to_cache(self, memory: Any, prepared: Any) -> tuple[Any, Any]:
        """Returns what a cache holds for a memory: here its keys and values."""
        return self.keys_and_values(memory, prepared)

    def of_cache(self, query: Any, key: Any, value: Any) -> tuple[Any, Any, Any]:
        """Returns the queries, keys and values of attention, from queries and the contents of a cache."""
        return query, key, value

    def results_of_cache(self, heads: Any) -> Any:
        """Returns heads `(batch, heads, length, value_head_dim)` from weighted means of the values of `of_cache`."""
        return heads
