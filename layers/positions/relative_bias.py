"""Learned bias of the attention scores per bucket of distances, as in T5."""

import math
from typing import Any

import keras
import numpy as np
from keras import ops

from layers.positions.base import (
    PositionEncoding,
    Projections,
    bias_shape,
    check_positive_integer,
    distances,
    float32_or_wider,
    register_position,
)


def relative_position_buckets(
    distance: np.ndarray, num_buckets: int = 32, max_distance: int = 128, bidirectional: bool = True
) -> np.ndarray:
    """Returns the bucket of each distance.

    Half of the buckets hold one distance each. The width of the other half grows logarithmically up to `max_distance`;
    larger distances are in the last bucket. If `bidirectional`, keys after the query have buckets of their own, the
    upper half. Otherwise they share bucket 0 with the query itself.

    Args:
        distance: Integers, key position minus query position, of any shape.
        num_buckets: Number of buckets.
        max_distance: Distance from which on all share the last bucket.
        bidirectional: Whether keys after the query have buckets of their own.

    Returns:
        Bucket numbers from 0 to `num_buckets - 1`, int32, of the shape of `distance`.

    Reference:
        Raffel et al. 2020, "Exploring the Limits of Transfer Learning", section 2.1, and its published code.
    """
    distance = np.asarray(distance)
    offset = 0
    if bidirectional:
        num_buckets //= 2
        offset = np.where(distance > 0, num_buckets, 0)
        distance = np.abs(distance)
    else:
        distance = np.maximum(-distance, 0)
    exact = num_buckets // 2
    # in float32, like the published code: rounding decides at the borders of buckets
    ratio = np.maximum(distance, exact).astype("float32") / np.float32(exact)
    steps = np.log(ratio) / np.float32(math.log(max_distance / exact)) * np.float32(num_buckets - exact)
    wide = np.minimum(exact + steps.astype("int32"), num_buckets - 1)
    return (offset + np.where(distance < exact, distance, wide)).astype("int32")


@register_position("relative_bias")
@keras.saving.register_keras_serializable("keras_transformer_zoo")
class RelativePositionBias(PositionEncoding):
    """Adds to each attention score a learned bias that depends on the head and on the bucket of the distance.

    T5 has one such layer per stack, shared by all its blocks, and does not scale the scores. UMT5 has one per block.

    Args:
        num_heads: Number of heads.
        num_buckets: Number of buckets; even if `bidirectional`.
        max_distance: Distance from which on all share the last bucket.
        bidirectional: True for encoders: keys before and after the query have buckets of their own. False for causal
            attention: all buckets are for keys before the query.
        embeddings_initializer: Initializer of the weights.
        **kwargs: `name`, `dtype` and other arguments of `keras.layers.Layer`.

    Call arguments:
        query_positions: Integers, shape `(query_length,)` or `(batch, query_length)`.
        key_positions: Integers, shape `(key_length,)` or `(batch, key_length)`.

    Returns:
        The bias to add to the scores, shape `(1 or batch, num_heads, query_length, key_length)`, in float32 whatever
        the policy. It has `batch` rows if one of the arguments has.

    Raises:
        ValueError: If there are too few buckets, or an odd number of them for two directions. If `max_distance` is not
            larger than the number of buckets that hold one distance each. If positions are not integers with one or two
            axes.

    Example:

    >>> bias = RelativePositionBias(num_heads=8, bidirectional=False)
    >>> bias(np.arange(4, 5), np.arange(5)).shape   # one decoding step: (1, 8, 1, 5)

    Reference:
        Raffel et al. 2020, "Exploring the Limits of Transfer Learning with a Unified Text-to-Text Transformer", section
        2.1.
    """

    shared_by_blocks = True
    depends_on_distance = True  # attention may evaluate one row for all queries

    def __init__(
        self,
        num_heads: int,
        num_buckets: int = 32,
        max_distance: int = 128,
        bidirectional: bool = True,
        embeddings_initializer: Any = "random_normal",
        **kwargs: Any,
    ) -> None:
        super().__init__(**kwargs)
        self.num_heads = check_positive_integer("num_heads", num_heads)
        self.num_buckets = check_positive_integer("num_buckets", num_buckets)
        self.max_distance = check_positive_integer("max_distance", max_distance)
        if not isinstance(bidirectional, bool):
            raise ValueError(f"bidirectional must be true or false, got {bidirectional!r}.")
        self.bidirectional = bidirectional
        if bidirectional and (num_buckets % 2 or num_buckets < 4):
            raise ValueError(f"num_buckets must be even and at least 4 if bidirectional is true, got {num_buckets}.")
        if num_buckets < 2:
            raise ValueError(f"num_buckets must be at least 2, got {num_buckets}.")
        exact = num_buckets // 4 if bidirectional else num_buckets // 2
        if max_distance <= exact:
            raise ValueError(
                f"max_distance must be larger than {exact}, the number of buckets per direction that hold "
                f"one distance each, got {max_distance}."
            )
        self.embeddings_initializer = keras.initializers.get(embeddings_initializer)

    def build(self, *input_shapes: Any) -> None:
        self.embeddings = self.add_weight(
            shape=(self.num_buckets, self.num_heads),
            initializer=self.embeddings_initializer,
            autocast=False,  # the scores it is added to are float32
            name="embeddings",
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
        return self  # the kernel calls it for the distances that it needs

    def call(self, query_positions: Any, key_positions: Any) -> Any:
        # beyond max_distance nothing changes, so logarithms are needed for that many distances only, not for each pair
        # of a query and a key
        limit = self.max_distance
        buckets = relative_position_buckets(
            np.arange(-limit, limit + 1), self.num_buckets, self.max_distance, self.bidirectional
        )
        by_distance = ops.take(self.embeddings, buckets, axis=0)
        distance = distances(query_positions, key_positions)
        bias = ops.take(by_distance, ops.clip(distance, -limit, limit) + limit, axis=0)
        return ops.cast(ops.transpose(bias, (0, 3, 1, 2)), float32_or_wider(self.compute_dtype))

    def compute_output_shape(
        self, query_positions_shape: tuple[int | None, ...], key_positions_shape: tuple[int | None, ...]
    ) -> tuple[int | None, ...]:
        return bias_shape(self.num_heads, query_positions_shape, key_positions_shape)
