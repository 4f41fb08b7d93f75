"""Disentangled attention: scores between content and relative position, as in DeBERTa."""

from typing import Any

import keras
import numpy as np
from keras import ops

from layers.norms import LayerNorm
from layers.positions.base import (
    PositionEncoding,
    Projections,
    check_positive_integer,
    distances,
    float32_or_wider,
    register_position,
)


def log_buckets(distance: np.ndarray, num_buckets: int, max_distance: int) -> np.ndarray:
    """Returns the signed bucket of each distance.

    Distances up to half the number of buckets have a bucket each. Larger distances share buckets of logarithmically
    growing width; `max_distance - 1` is in the last one.

    Args:
        distance: Integers of any shape.
        num_buckets: Number of buckets in each direction.
        max_distance: Smallest distance beyond the last bucket.

    Returns:
        Integers with the shape and the signs of `distance`.

    Reference:
        He et al. 2021, "DeBERTa", published code of version 2.
    """
    distance = np.asarray(distance)
    exact = num_buckets // 2
    # in float32, like the published code: rounding decides at the borders of buckets
    ratio = np.maximum(np.abs(distance), exact).astype("float32") / np.float32(exact)
    steps = np.log(ratio) / np.log(np.float32((max_distance - 1) / exact)) * np.float32(exact - 1)
    wide = np.sign(distance) * (np.ceil(steps).astype("int32") + exact)
    return np.where(np.abs(distance) <= exact, distance, wide).astype("int32")


@register_position("disentangled")
@keras.saving.register_keras_serializable("keras_transformer_zoo")
class DisentangledPositions(PositionEncoding):
    """Adds to each score the product of the query and a position vector, and that of the position vector and the key.

    The score is `scale * (q . k + q . (r W_K) + (r W_Q) . k)`. Here `q = x_i W_Q` and `k = x_j W_K`, with the
    projections `W_Q` and `W_K` of the attention layer, and `r` is the learned vector for the bucket of the distance of
    `i` and `j`. The second term is "content to position", the third "position to content". Each can be left out.

    DeBERTa uses `scale = (head_dim * number of terms) ** -0.5`. All layers share the vectors, which may be normed. The
    scores of all pairs of tokens are in memory at once.

    Args:
        hidden_dim: Width of the vectors, equal to that of the inputs of the attention layers.
        num_buckets: Number of buckets of distances in each direction, even (256 in the published models).
        max_distance: Distance from which on all are in the last bucket (512 in the published models).
        buckets: Whether distances share buckets. If False, each distance below `max_distance` has its own vector.
        content_to_position: Whether scores have the product of the query and the vector.
        position_to_content: Whether scores have the product of the vector and the key.
        norm_epsilon: Epsilon of a layer norm of the vectors; None for no norm.
        embeddings_initializer: Initializer of the vectors.
        **kwargs: `name`, `dtype` and other arguments of `keras.layers.Layer`.

    Raises:
        ValueError: If a number is out of range, or both terms are left out.

    Example:

    >>> attention = MultiHeadAttention(4, 16, position=DisentangledPositions(64, 8, 32))
    >>> attention(np.ones((2, 10, 64), "float32")).shape
    (2, 10, 64)

    Reference:
        He et al. 2021, "DeBERTa: Decoding-enhanced BERT with Disentangled Attention", section 3.1, equation 4; shared
        projections and buckets: version 2 of its published code.
    """

    shared_by_blocks = True

    def __init__(
        self,
        hidden_dim: int,
        num_buckets: int,
        max_distance: int,
        buckets: bool = True,
        content_to_position: bool = True,
        position_to_content: bool = True,
        norm_epsilon: float | None = None,
        embeddings_initializer: Any = "random_normal",
        **kwargs: Any,
    ) -> None:
        super().__init__(**kwargs)
        self.hidden_dim = check_positive_integer("hidden_dim", hidden_dim)
        self.num_buckets = check_positive_integer("num_buckets", num_buckets)
        self.max_distance = check_positive_integer("max_distance", max_distance)
        if buckets and (num_buckets % 2 or max_distance - 1 <= num_buckets // 2):
            raise ValueError(
                "num_buckets must be even and max_distance larger than half of it and one, got "
                f"num_buckets={num_buckets} and max_distance={max_distance}."
            )
        if not (content_to_position or position_to_content):
            raise ValueError("content_to_position or position_to_content must be True, got False for both.")
        self.buckets = buckets
        self.content_to_position = content_to_position
        self.position_to_content = position_to_content
        self.norm_epsilon = norm_epsilon
        self.embeddings_initializer = keras.initializers.get(embeddings_initializer)
        self.span = num_buckets if buckets else max_distance
        self.table = keras.layers.Embedding(
            2 * self.span,
            hidden_dim,
            embeddings_initializer=self.embeddings_initializer,
            dtype=self.dtype_policy,
            name="table",
        )
        self.norm = None
        if norm_epsilon is not None:
            self.norm = LayerNorm(norm_epsilon, dtype=self.dtype_policy, name="norm")

    def build(self, *input_shapes: Any) -> None:
        self.table.build((None,))
        if self.norm is not None:
            self.norm.build((None, self.hidden_dim))
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
        dtype = float32_or_wider(query.dtype)
        query, key = ops.cast(query, dtype), ops.cast(key, dtype)
        batch, heads, length, head_dim = ops.shape(query)
        groups, key_length = key.shape[1], ops.shape(key)[2]
        vectors = self.table(ops.arange(2 * self.span))  # (2 span, hidden_dim)
        vectors = vectors if self.norm is None else self.norm(vectors)
        rows = self._rows(query_positions, key_positions)  # (1 or batch, 1, length, key_length)
        bias = 0
        if self.content_to_position:
            keys = ops.cast(projections.keys(vectors), dtype)  # (key_value_heads, 2 span, head_dim)
            query = ops.reshape(query, (batch, groups, heads // groups, length, head_dim))
            scores = ops.reshape(ops.einsum("bkgqd,knd->bkgqn", query, keys), (batch, heads, length, 2 * self.span))
            bias = bias + ops.take_along_axis(scores, rows, axis=3)
        if self.position_to_content:
            queries = ops.cast(projections.queries(vectors), dtype)  # (heads, 2 span, head_dim)
            queries = ops.reshape(queries, (groups, heads // groups, 2 * self.span, head_dim))
            scores = ops.einsum("kgnd,bkmd->bkgnm", queries, key)
            scores = ops.reshape(scores, (batch, heads, 2 * self.span, key_length))
            bias = bias + ops.take_along_axis(scores, rows, axis=2)
        return scale * bias  # (batch, heads, length, key_length)

    def _rows(self, query_positions: Any, key_positions: Any) -> Any:
        """The row of the table for each query and key."""
        # beyond max_distance nothing changes, so logarithms are needed for that many distances only
        limit = max(self.max_distance, self.span)
        distance = np.arange(-limit, limit + 1)
        if self.buckets:
            distance = log_buckets(distance, self.num_buckets, self.max_distance)
        table = np.clip(distance + self.span, 0, 2 * self.span - 1).astype("int32")
        # the table counts from the key to the query
        found = ops.clip(-distances(query_positions, key_positions), -limit, limit) + limit
        return ops.expand_dims(ops.take(ops.convert_to_tensor(table), found, axis=0), 1)
