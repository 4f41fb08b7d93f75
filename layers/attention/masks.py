"""Which query may see which key, described rather than stored.

The attention mask of n tokens has n * n entries. It nearly always follows from a few short facts: causal order, a
window, padding, the segments of a packed row. `AttentionMask` keeps these facts. Each attention path
(`layers.attention.kernels`) asks only for the part of the matrix that it is working on.
"""

import dataclasses
from typing import Any

import keras
from keras import ops

from layers.attention.slices import larger, pad_axis, slice_axis, smaller


@dataclasses.dataclass(frozen=True, eq=False)
class AttentionMask:
    """A description of an attention mask. A key is visible to a query if all given conditions hold.

    Conditions on order compare *positions*. By default the position of a query or key is its index. Pass
    `query_positions` if it is not, as in cached decoding (one query, at position 17, with 32 stored keys). Packed rows
    need no positions: the segment ids separate the texts, and differences of indices are right within each text.

    Args:
        causal: Whether a query sees only keys at its own and earlier positions (Vaswani et al. 2017, section 3.2.3).
        window: Pair `(left, right)`: a query at position i sees keys from i - left to i + right, both included.
            `None` in the pair means no limit on that side. With `causal`, no key after i is seen. An integer n stands
            for `(n, n)`.
        block_size: Number of positions in a block. A query sees keys of its own block only.
        prefix_length: Integers `(batch,)`. Keys at lower positions are visible to every query in spite of `causal`
            (prefix language models, Raffel et al. 2020, section 3.2.1). Window, blocks, padding and segments still
            apply to them.
        query_positions: Integers `(query_length,)` or `(batch, query_length)`.
        key_positions: Integers `(key_length,)` or `(batch, key_length)`.
        global_keys: Booleans `(batch, key_length)`, true where a key is visible to every query in spite of `window`
            (global tokens, Beltagy et al. 2020, "Longformer", section 3.1). Padding and segments still apply to them.
        key_padding_mask: Booleans `(batch, key_length)`, true where a key is a real token.
        key_lengths: Integers `(batch,)`: the keys of a row from this index on are padding. It says what a
            `key_padding_mask` with padding on the right says, in the form that kernels take.
        query_segment_ids: Integers `(batch, query_length)`. A query sees keys of its own segment only.
        key_segment_ids: Integers `(batch, key_length)`. Must be given exactly when `query_segment_ids` are.
        allowed: Any further condition, true where a key is visible: booleans `(query_length, key_length)`,
            `(batch, query_length, key_length)` or `(batch, heads, query_length, key_length)`. Sizes of 1 broadcast.
        drawn: The whole matrix as the plain path uses it, where it is small and many layers use it (`draw_once`).

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
    key_lengths: Any = None
    query_segment_ids: Any = None
    key_segment_ids: Any = None
    allowed: Any = None
    drawn: Any = None
    global_keys: Any = None

    def __post_init__(self) -> None:
        object.__setattr__(self, "window", to_window(self.window))
        if self.block_size is not None and int(self.block_size) < 1:
            raise ValueError(f"block_size must be at least 1, got {self.block_size}.")
        if self.prefix_length is not None and not self.causal:
            raise ValueError(
                "prefix_length must be left out with causal=False: it lifts the causal condition, got one."
            )
        if self.global_keys is not None and (self.causal or self.window is None):
            raise ValueError(
                "global_keys must be left out with causal=True or window=None: they widen a window, got some."
            )
        if (self.query_segment_ids is None) != (self.key_segment_ids is None):
            raise ValueError("query_segment_ids and key_segment_ids must be given together, got one of them.")
        for name, ranks, kind in (
            ("prefix_length", (1,), "int"),
            ("query_positions", (1, 2), "int"),
            ("key_positions", (1, 2), "int"),
            ("global_keys", (2,), "bool"),
            ("key_padding_mask", (2,), "bool"),
            ("key_lengths", (1,), "int"),
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
        """Whether the mask has a condition on positions."""
        return self.causal or self.window is not None or self.block_size is not None

    @property
    def default_positions(self) -> bool:
        """Whether positions are the indices."""
        return self.query_positions is None and self.key_positions is None

    def sees_something(self, query_length: Any, key_length: Any) -> bool:
        """Returns whether each query surely sees at least one key, judged without reading any tensor.

        Args:
            query_length: Number of queries, an int or a scalar tensor.
            key_length: Number of keys, at least one, an int or a scalar tensor.

        Returns:
            True if it is certain, False if a query may see no key.
        """
        if any(given is not None for given in (self.key_padding_mask, self.key_lengths, self.allowed)):
            return False
        if self.uses_order and not self.default_positions:
            return False
        if self.query_segment_ids is not None and self.query_segment_ids is not self.key_segment_ids:
            return False
        if self.window is None and self.block_size is None and self.query_segment_ids is None:
            return True  # at most causal: key 0 is visible to every query
        # with every other condition a query sees the key at its own index, if there is one
        both_known = isinstance(query_length, int) and isinstance(key_length, int)
        return query_length is key_length or (both_known and query_length <= key_length)

    @property
    def bounded_by_index(self) -> bool:
        """Whether indices alone, without any tensor, rule out keys that a query cannot see."""
        is_lifted = self.prefix_length is not None or self.global_keys is not None
        return self.uses_order and self.default_positions and not is_lifted

    def key_range(self, first_query: Any, last_query: Any, key_length: Any) -> Any:
        """Returns the range of keys that a run of queries may see, judged by the conditions on order alone.

        Args:
            first_query: Index of the first query, an int or a scalar tensor.
            last_query: Index of the last query, included, an int or a scalar tensor.
            key_length: Number of keys, an int or a scalar tensor.

        Returns:
            Index of the first key, and index after the last. The range is empty unless the second is larger.
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
        """Returns the mask for longer sequences; its values for the added queries and keys have no meaning.

        Args:
            more_queries: Number of added queries, an int or a scalar tensor.
            more_keys: Number of added keys, an int or a scalar tensor.
        """

        def longer(x: Any, more: Any, axis: Any = -1) -> Any:
            return x if x is None or x.shape[axis] == 1 else pad_axis(x, axis % len(x.shape), more)

        return dataclasses.replace(
            self,
            global_keys=longer(self.global_keys, more_keys),
            key_padding_mask=longer(self.key_padding_mask, more_keys),
            query_positions=longer(self.query_positions, more_queries),
            key_positions=longer(self.key_positions, more_keys),
            query_segment_ids=longer(self.query_segment_ids, more_queries),
            key_segment_ids=longer(self.key_segment_ids, more_keys),
            allowed=longer(longer(self.allowed, more_queries, axis=-2), more_keys),
            drawn=None,
        )

    def with_padding_mask(self, key_length: Any) -> "AttentionMask":
        """Returns the same mask with a `key_padding_mask` in the place of `key_lengths`, if it has these.

        Args:
            key_length: Number of keys, an int or a scalar tensor.
        """
        if self.key_lengths is None:
            return self
        real = ops.arange(key_length, dtype="int32") < ops.expand_dims(ops.cast(self.key_lengths, "int32"), 1)
        return dataclasses.replace(self, key_padding_mask=both(self.key_padding_mask, real), key_lengths=None)

    def positions_of_queries(self, query_length: Any, query_start: Any = 0) -> Any:
        """Returns the positions of a run of queries, `(query_length,)` or `(batch, query_length)`."""
        return _run_of_positions(self.query_positions, query_start, query_length)

    def positions_of_keys(self, key_length: Any, key_start: Any = 0) -> Any:
        """Returns the positions of a run of keys, `(key_length,)` or `(batch, key_length)`."""
        return _run_of_positions(self.key_positions, key_start, key_length)

    def materialize(self, query_length: Any, key_length: Any, query_start: Any = 0, key_start: Any = 0) -> Any:
        """Returns the part of the mask for a run of queries and a run of keys.

        Args:
            query_length: Number of queries in the run, an int or a scalar tensor.
            key_length: Number of keys in the run, an int or a scalar tensor.
            query_start: Index of the first query.
            key_start: Index of the first key.

        Returns:
            Booleans that broadcast to `(batch, heads, query_length, key_length)`, true where the key is visible;
            `None` if nothing is hidden.
        """
        if self.key_lengths is not None:
            mask = self.with_padding_mask(key_start + key_length)
            return mask.materialize(query_length, key_length, query_start, key_start)
        query_positions = key_positions = query_segments = key_segments = padding = prefix = allowed = None
        global_keys = None
        if self.uses_order:
            query_positions = _column(self.positions_of_queries(query_length, query_start))
            key_positions = _row(self.positions_of_keys(key_length, key_start))
        if self.query_segment_ids is not None:
            query_segments = _column(slice_axis(self.query_segment_ids, query_start, query_length))
            key_segments = _row(slice_axis(self.key_segment_ids, key_start, key_length))
        if self.key_padding_mask is not None:
            padding = _row(slice_axis(self.key_padding_mask, key_start, key_length))
        if self.global_keys is not None:
            global_keys = _row(slice_axis(self.global_keys, key_start, key_length))
        if self.prefix_length is not None:
            prefix = ops.reshape(self.prefix_length, (-1, 1, 1, 1))
        if self.allowed is not None:
            allowed = self.allowed
            if allowed.shape[-2] != 1:
                allowed = slice_axis(allowed, query_start, query_length, axis=-2)
            if allowed.shape[-1] != 1:
                allowed = slice_axis(allowed, key_start, key_length, axis=-1)
            for _ in range(4 - len(allowed.shape)):
                allowed = ops.expand_dims(allowed, -3)
        segments = query_segments, key_segments
        return self.visible(query_positions, key_positions, prefix, *segments, padding, allowed, global_keys)

    def visible(
        self,
        query_positions: Any = None,
        key_positions: Any = None,
        prefix_length: Any = None,
        query_segments: Any = None,
        key_segments: Any = None,
        key_padding: Any = None,
        allowed: Any = None,
        global_keys: Any = None,
    ) -> Any:
        """Returns where all conditions of the mask hold, for tensors in any layout that broadcast against each other.

        Args:
            query_positions: Positions of queries; needed if the mask has a condition on positions.
            key_positions: Positions of keys; needed in the same case.
            prefix_length: Length of the visible prefix, if the mask has one.
            query_segments: Segment of each query, if the mask has segments.
            key_segments: Segment of each key, if the mask has segments.
            key_padding: True where a key is real, if the mask has padding.
            allowed: The further condition `allowed`, if the mask has one.
            global_keys: True where a key is global, if the mask has such keys.

        Returns:
            Booleans in the shape that the arguments broadcast to, true where visible; `None` if nothing is hidden.
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
        if global_keys is not None:
            conditions = [ops.logical_or(_all(conditions), global_keys)]
        if self.block_size is not None:
            conditions.append(ops.equal(query_positions // self.block_size, key_positions // self.block_size))
        if query_segments is not None:
            conditions.append(ops.equal(query_segments, key_segments))
        conditions.extend(condition for condition in (key_padding, allowed) if condition is not None)
        return _all(conditions) if conditions else None


def _all(conditions: list[Any]) -> Any:
    result = conditions[0]
    for condition in conditions[1:]:
        result = ops.logical_and(result, condition)
    return result


def to_window(window: Any) -> tuple[int | None, int | None] | None:
    """Returns a window as a pair `(left, right)`, or None where there is no limit on either side.

    Args:
        window: A pair whose members are integers of at least 0 or None; an integer for both sides; or None.

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
    """Returns where both masks are true; None stands for a mask that hides nothing."""
    if x is None or y is None:
        return y if x is None else x
    return ops.logical_and(x, y)


def _run_of_positions(positions: Any, start: Any, length: Any) -> Any:
    if positions is None:
        return ops.arange(length, dtype="int32") + start
    return slice_axis(positions, start, length)


def _column(x: Any) -> Any:
    """`(length,)` or `(batch, length)` to `(1 or batch, 1, length, 1)`."""
    return ops.reshape(x, (1, 1, -1, 1)) if len(x.shape) == 1 else ops.expand_dims(ops.expand_dims(x, 1), -1)


def _row(x: Any) -> Any:
    """`(length,)` or `(batch, length)` to `(1 or batch, 1, 1, length)`."""
    return ops.reshape(x, (1, 1, 1, -1)) if len(x.shape) == 1 else ops.expand_dims(ops.expand_dims(x, 1), 1)
