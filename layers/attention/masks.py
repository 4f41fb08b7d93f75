"""Which query may see which key, described rather than stored.

An attention mask of a sequence of n tokens has n * n entries, and nearly always follows from a few short facts: the
order of time, a window, the padding, the segments of a packed row. `AttentionMask` keeps these facts. Each way of
computing attention (`layers.attention.kernels`) asks only for the piece of the matrix that it is working on.
"""

import dataclasses
from typing import Any

import keras
from keras import ops

from layers.attention.runs import larger, pad_axis, smaller, take_run


@dataclasses.dataclass(frozen=True, eq=False)
class AttentionMask:
    """A description of an attention mask; a key is visible to a query when every condition given holds.

    Conditions on order compare *positions*. By default the position of a query or key is its index. Pass
    `query_positions` where that does not hold, as in cached decoding (one query, at position 17, against 32 stored
    keys). In packed rows leave the positions out: the segment ids keep the texts apart and differences of indices
    are right within each.

    Args:
        causal: Whether a query sees only keys at its own position and before (Vaswani et al. 2017, section 3.2.3).
        window: Pair `(left, right)`: a query at position i sees keys from i - left to i + right, both included;
            `None` in the pair means no limit on that side. With `causal`, nothing right of i is seen anyway. An integer
            n is `(n, n)`.
        block_size: Positions are cut into blocks of this many; a query sees keys of its own block only.
        prefix_length: Integers `(batch,)`. Keys at positions below it are visible to every query in spite of
            `causal` (prefix language models, Raffel et al. 2020, section 3.2.1). Window, blocks, padding and
            segments still hold for them.
        query_positions: Integers `(query_length,)` or `(batch, query_length)`.
        key_positions: Integers `(key_length,)` or `(batch, key_length)`.
        key_padding_mask: Booleans `(batch, key_length)`, true where a key is a real token.
        query_segment_ids: Integers `(batch, query_length)`. A query sees keys of its own segment only.
        key_segment_ids: Integers `(batch, key_length)`. Both or neither must be given.
        allowed: Booleans `(query_length, key_length)`, `(batch, query_length, key_length)` or
            `(batch, heads, query_length, key_length)` (sizes of 1 broadcast): any further condition.

    Raises:
        ValueError: If a window or block size is out of range, or a tensor has the wrong rank or type.

    Example:

    ```python
    mask = AttentionMask(causal=True, window=(2, 0))
    mask.materialize(4, 4)  # (1, 1, 4, 4): a band of three diagonals
    ```
    """

    causal: bool = False
    window: tuple[int | None, int | None] | None = None
    block_size: int | None = None
    prefix_length: Any = None
    query_positions: Any = None
    key_positions: Any = None
    key_padding_mask: Any = None
    query_segment_ids: Any = None
    key_segment_ids: Any = None
    allowed: Any = None

    def __post_init__(self) -> None:
        object.__setattr__(self, "window", to_window(self.window))
        if self.block_size is not None and int(self.block_size) < 1:
            raise ValueError(f"block_size must be at least 1, got {self.block_size}.")
        if self.prefix_length is not None and not self.causal:
            raise ValueError(
                "prefix_length must be left out with causal=False: it lifts the causal condition, got one."
            )
        if (self.query_segment_ids is None) != (self.key_segment_ids is None):
            raise ValueError("query_segment_ids and key_segment_ids must be given together, got one of them.")
        for name, ranks, kind in (
            ("prefix_length", (1,), "int"),
            ("query_positions", (1, 2), "int"),
            ("key_positions", (1, 2), "int"),
            ("key_padding_mask", (2,), "bool"),
            ("query_segment_ids", (2,), "int"),
            ("key_segment_ids", (2,), "int"),
            ("allowed", (2, 3, 4), "bool"),
        ):
            value = getattr(self, name)
            if value is None:
                continue
            if not ops.is_tensor(value):
                value = ops.convert_to_tensor(value)
                object.__setattr__(self, name, value)
            rank, dtype = len(value.shape), keras.backend.standardize_dtype(value.dtype)
            if rank not in ranks or kind not in dtype:
                raise ValueError(
                    f"{name} must have rank {' or '.join(map(str, ranks))} and type {kind}, got shape "
                    f"{tuple(value.shape)} and type {dtype}."
                )

    @property
    def uses_order(self) -> bool:
        """Whether the mask compares positions at all."""
        return self.causal or self.window is not None or self.block_size is not None

    @property
    def default_positions(self) -> bool:
        """Whether positions are plain indices."""
        return self.query_positions is None and self.key_positions is None

    def sees_something(self, query_length: Any, key_length: Any) -> bool:
        """Whether it is certain, without looking at any tensor, that each query sees at least one key.

        Args:
            query_length: Number of queries, an int or a scalar tensor.
            key_length: Number of keys, likewise; at least one.

        Returns:
            True if it is certain, False if there may be rows without a visible key.
        """
        if self.key_padding_mask is not None or self.allowed is not None:
            return False
        if self.uses_order and not self.default_positions:
            return False
        if self.query_segment_ids is not None and self.query_segment_ids is not self.key_segment_ids:
            return False
        if self.window is None and self.block_size is None and self.query_segment_ids is None:
            return True  # at most causal: key 0 is visible to every query
        # Every other condition lets a query see the key at its own index, where there is one.
        both_known = isinstance(query_length, int) and isinstance(key_length, int)
        return query_length is key_length or (both_known and query_length <= key_length)

    @property
    def bounded_by_index(self) -> bool:
        """Whether indices alone, without any tensor, tell which keys a query cannot see."""
        return self.uses_order and self.default_positions and self.prefix_length is None

    def key_range(self, first_query: Any, last_query: Any, key_length: Any) -> Any:
        """The range of keys that a run of queries may see, judged by order alone.

        Args:
            first_query: Index of the first query, an int or a scalar tensor.
            last_query: Index of the last query (included), likewise.
            key_length: Number of keys, likewise.

        Returns:
            Index of the first key and index after the last. There are none if the latter is not the larger one.
        """
        if not self.bounded_by_index:
            return 0, key_length
        left, right = self.window or (None, None)
        if self.causal:
            right = 0
        first, last = 0, key_length
        if left is not None:
            first = larger(first, first_query - left)
        if right is not None:
            last = smaller(last, last_query + right + 1)
        if self.block_size is not None:
            first = larger(first, first_query // self.block_size * self.block_size)
            last = smaller(last, (last_query // self.block_size + 1) * self.block_size)
        return first, last

    def padded(self, more_queries: Any, more_keys: Any) -> "AttentionMask":
        """The same mask for longer sequences; its values for the added queries and keys have no meaning.

        Args:
            more_queries: Number of further queries, an int or a scalar tensor.
            more_keys: Number of further keys, likewise.
        """

        def longer(x: Any, more: Any, axis: Any = -1) -> Any:
            return x if x is None or x.shape[axis] == 1 else pad_axis(x, axis % len(x.shape), more)

        return dataclasses.replace(
            self,
            key_padding_mask=longer(self.key_padding_mask, more_keys),
            query_positions=longer(self.query_positions, more_queries),
            key_positions=longer(self.key_positions, more_keys),
            query_segment_ids=longer(self.query_segment_ids, more_queries),
            key_segment_ids=longer(self.key_segment_ids, more_keys),
            allowed=longer(longer(self.allowed, more_queries, axis=-2), more_keys),
        )

    def positions_of_queries(self, query_length: Any, query_start: Any = 0) -> Any:
        """Positions `(query_length,)` or `(batch, query_length)` of a run of queries."""
        return _run_of_positions(self.query_positions, query_start, query_length)

    def positions_of_keys(self, key_length: Any, key_start: Any = 0) -> Any:
        """Positions `(key_length,)` or `(batch, key_length)` of a run of keys."""
        return _run_of_positions(self.key_positions, key_start, key_length)

    def materialize(self, query_length: Any, key_length: Any, query_start: Any = 0, key_start: Any = 0) -> Any:
        """The piece of the mask for a run of queries and a run of keys.

        Args:
            query_length: Number of queries in the run, an int or a scalar tensor.
            key_length: Number of keys in the run, an int or a scalar tensor.
            query_start: Index of the first query.
            key_start: Index of the first key.

        Returns:
            Booleans that broadcast to `(batch, heads, query_length, key_length)`, true where the key is visible;
            `None` if nothing is hidden.
        """
        query_positions = key_positions = query_segments = key_segments = padding = prefix = allowed = None
        if self.uses_order:
            query_positions = _column(self.positions_of_queries(query_length, query_start))
            key_positions = _row(self.positions_of_keys(key_length, key_start))
        if self.query_segment_ids is not None:
            query_segments = _column(take_run(self.query_segment_ids, query_start, query_length))
            key_segments = _row(take_run(self.key_segment_ids, key_start, key_length))
        if self.key_padding_mask is not None:
            padding = _row(take_run(self.key_padding_mask, key_start, key_length))
        if self.prefix_length is not None:
            prefix = ops.reshape(self.prefix_length, (-1, 1, 1, 1))
        if self.allowed is not None:
            allowed = self.allowed
            if allowed.shape[-2] != 1:
                allowed = take_run(allowed, query_start, query_length, axis=-2)
            if allowed.shape[-1] != 1:
                allowed = take_run(allowed, key_start, key_length, axis=-1)
            for _ in range(4 - len(allowed.shape)):
                allowed = ops.expand_dims(allowed, -3)
        return self.visible(query_positions, key_positions, prefix, query_segments, key_segments, padding, allowed)

    def visible(
        self,
        query_positions: Any = None,
        key_positions: Any = None,
        prefix_length: Any = None,
        query_segments: Any = None,
        key_segments: Any = None,
        key_padding: Any = None,
        allowed: Any = None,
    ) -> Any:
        """The conditions of this mask on tensors that broadcast against each other, in any layout.

        Args:
            query_positions: Positions of queries; needed if the mask compares positions.
            key_positions: Positions of keys; likewise.
            prefix_length: Length of the visible prefix, if the mask has one.
            query_segments: Segment of each query, if the mask has segments.
            key_segments: Segment of each key, if the mask has segments.
            key_padding: True where a key is real, if the mask has padding.
            allowed: The further condition, if the mask has one.

        Returns:
            Booleans in the shape that the arguments broadcast to, or `None` if nothing is hidden.
        """
        conditions = []
        left, right = self.window or (None, None)
        if self.causal:
            condition = ops.less_equal(key_positions, query_positions)
            if prefix_length is not None:
                condition = ops.logical_or(condition, ops.less(key_positions, prefix_length))
            conditions.append(condition)
        if left is not None:
            conditions.append(ops.greater_equal(key_positions, query_positions - left))
        if right is not None and (not self.causal or prefix_length is not None):
            conditions.append(ops.less_equal(key_positions, query_positions + right))
        if self.block_size is not None:
            conditions.append(ops.equal(query_positions // self.block_size, key_positions // self.block_size))
        if query_segments is not None:
            conditions.append(ops.equal(query_segments, key_segments))
        conditions.extend(condition for condition in (key_padding, allowed) if condition is not None)
        if not conditions:
            return None
        result = conditions[0]
        for condition in conditions[1:]:
            result = ops.logical_and(result, condition)
        return result


def to_window(window: Any) -> tuple[int | None, int | None] | None:
    """Returns a window as a pair `(left, right)`, or None where there is no limit on either side.

    Args:
        window: A pair of integers of at least 0 or None, an integer for the same on both sides, or None.

    Raises:
        ValueError: If it is anything else.
    """
    if window is None:
        return None
    sides = (window, window) if isinstance(window, int) else window
    if (
        not isinstance(sides, list | tuple)
        or len(sides) != 2
        or any(side is not None and (isinstance(side, bool) or not isinstance(side, int) or side < 0) for side in sides)
    ):
        raise ValueError(
            "window must be a pair (left, right) of numbers of positions of at least 0, with None for no limit, or one "
            f"number for both sides, got {window!r}."
        )
    return None if tuple(sides) == (None, None) else tuple(sides)


def both(x: Any, y: Any) -> Any:
    """Where both masks are true; None stands for a mask that hides nothing."""
    if x is None or y is None:
        return y if x is None else x
    return ops.logical_and(x, y)


def _run_of_positions(positions: Any, start: Any, length: Any) -> Any:
    if positions is None:
        return ops.arange(length, dtype="int32") + start
    return take_run(positions, start, length)


def _column(x: Any) -> Any:
    """`(length,)` or `(batch, length)` to `(1 or batch, 1, length, 1)`."""
    return ops.reshape(x, (1, 1, -1, 1)) if len(x.shape) == 1 else ops.expand_dims(ops.expand_dims(x, 1), -1)


def _row(x: Any) -> Any:
    """`(length,)` or `(batch, length)` to `(1 or batch, 1, 1, length)`."""
    return ops.reshape(x, (1, 1, 1, -1)) if len(x.shape) == 1 else ops.expand_dims(ops.expand_dims(x, 1), 1)
