"""Cutting attention into blocks of queries and keys, for the path that never holds the whole score matrix."""

import dataclasses
from typing import Any

from keras import ops

from layers.attention.kernels.plain import HIDDEN, penalty
from layers.attention.masks import AttentionMask
from layers.attention.slices import pad_axis


@dataclasses.dataclass(frozen=True)
class BlockGrid:
    """Sizes of the blocks, and the layout in which a block is one contiguous piece of memory.

    The heads of a group (those that share a key head) are stacked along the rows of a block. A block of queries is
    then multiplied with its keys in one matrix product, and keys are never repeated.

    Args:
        batch: Batch size, an int or a scalar tensor.
        key_value_heads: Number of key heads.
        groups: Query heads for each key head.
        query_length: Number of queries, an int or a scalar tensor.
        key_length: Number of keys, likewise.
        query_block: Queries in a block.
        key_block: Keys in a block.
    """

    batch: Any
    key_value_heads: int
    groups: int
    query_length: Any
    key_length: Any
    query_block: int
    key_block: int

    @property
    def query_blocks(self) -> Any:
        """Number of blocks of queries."""
        return -(-self.query_length // self.query_block)

    @property
    def key_blocks(self) -> Any:
        """Number of blocks of keys."""
        return -(-self.key_length // self.key_block)

    @property
    def rows(self) -> int:
        """Rows of a block of queries: one for each query of each head in a group."""
        return self.groups * self.query_block

    def cut_queries(self, x: Any) -> Any:
        """`(batch, heads, query_length, dim)` to `(query_blocks, batch, key_value_heads, rows, dim)`."""
        x = pad_axis(x, 2, self.query_blocks * self.query_block - self.query_length)
        x = ops.reshape(
            x, (self.batch, self.key_value_heads, self.groups, self.query_blocks, self.query_block, x.shape[-1])
        )
        x = ops.transpose(x, (3, 0, 1, 2, 4, 5))
        return ops.reshape(x, (self.query_blocks, self.batch, self.key_value_heads, self.rows, x.shape[-1]))

    def join_queries(self, x: Any) -> Any:
        """The inverse of `cut_queries`."""
        dim = x.shape[-1]
        x = ops.reshape(x, (self.query_blocks, self.batch, self.key_value_heads, self.groups, self.query_block, dim))
        x = ops.transpose(x, (1, 2, 3, 0, 4, 5))
        heads = self.key_value_heads * self.groups
        x = ops.reshape(x, (self.batch, heads, self.query_blocks * self.query_block, dim))
        return x[:, :, : self.query_length]

    def cut_keys(self, x: Any) -> Any:
        """`(batch, key_value_heads, key_length, dim)` to `(key_blocks, batch, key_value_heads, key_block, dim)`."""
        x = pad_axis(x, 2, self.key_blocks * self.key_block - self.key_length)
        x = ops.reshape(x, (self.batch, self.key_value_heads, self.key_blocks, self.key_block, x.shape[-1]))
        return ops.transpose(x, (2, 0, 1, 3, 4))

    def join_keys(self, x: Any) -> Any:
        """The inverse of `cut_keys`."""
        dim = x.shape[-1]
        x = ops.transpose(x, (1, 2, 0, 3, 4))
        x = ops.reshape(x, (self.batch, self.key_value_heads, self.key_blocks * self.key_block, dim))
        return x[:, :, : self.key_length]

    def by_group(self, x: Any) -> Any:
        """A block `(batch, key_value_heads, rows, key_block)` with the axis of rows split into groups and queries."""
        return ops.reshape(x, (self.batch, self.key_value_heads, self.groups, self.query_block, self.key_block))

    def by_row(self, x: Any) -> Any:
        """The inverse of `by_group`."""
        return ops.reshape(x, (self.batch, self.key_value_heads, self.rows, self.key_block))

    def heads_to_groups(self, x: Any) -> Any:
        """`(batch or 1, heads or 1, a, b)` with the axis of heads split, to broadcast against `by_group`."""
        if x.shape[1] == 1:
            return ops.expand_dims(x, 1)
        batch, _, a, b = ops.shape(x)
        return ops.reshape(x, (batch, self.key_value_heads, self.groups, a, b))


class BlockMask:
    """An `AttentionMask` applied to the blocks of a grid: which to visit, which to mask, and how.

    Padding of keys, in the mask or at the end of the last block, is treated apart from the other conditions. It depends
    on the key only, so `key_offsets` can be a feature of the matrix product of queries and keys at no cost.

    Args:
        mask: The mask, or `None`.
        grid: The grid.
    """

    def __init__(self, mask: AttentionMask | None, grid: BlockGrid) -> None:
        self.grid = grid
        mask = AttentionMask() if mask is None else mask
        self.key_padding_mask: Any = mask.key_padding_mask
        more_queries = grid.query_blocks * grid.query_block - grid.query_length
        more_keys = grid.key_blocks * grid.key_block - grid.key_length
        self.pads_keys: bool = not (isinstance(more_keys, int) and more_keys == 0)
        self.mask: AttentionMask = dataclasses.replace(mask, key_padding_mask=None).padded(more_queries, more_keys)
        others = self.mask.query_segment_ids is not None or self.mask.allowed is not None
        self.order_alone: bool = self.mask.bounded_by_index and not others
        self.hides: bool = self.mask.uses_order or others

    @property
    def descending(self) -> bool:
        """Whether to visit key blocks from last to first: with `causal` each query surely sees a key of the last."""
        return self.mask.causal

    def key_offsets(self, dtype: str) -> Any:
        """`(key_blocks, batch, key_value_heads, key_block, 1)`: 0 for a real key, very low for padding; or `None`."""
        grid = self.grid
        if self.key_padding_mask is None and not self.pads_keys:
            return None
        key_padding_mask = self.key_padding_mask
        if key_padding_mask is None:
            key_padding_mask = ops.ones((1, grid.key_length), dtype="bool")
        key_padding_mask = ops.cast(
            pad_axis(key_padding_mask, 1, grid.key_blocks * grid.key_block - grid.key_length), dtype
        )
        offsets = ops.reshape((1 - key_padding_mask) * HIDDEN, (-1, 1, grid.key_blocks * grid.key_block, 1))
        offsets = ops.broadcast_to(offsets, (grid.batch, grid.key_value_heads, grid.key_blocks * grid.key_block, 1))
        offsets = ops.reshape(offsets, (grid.batch, grid.key_value_heads, grid.key_blocks, grid.key_block, 1))
        return ops.transpose(offsets, (2, 0, 1, 3, 4))

    def key_range(self, query_block: Any) -> tuple[Any, Any]:
        """Returns the first block of keys that the queries of a block may see, and the one after the last."""
        grid = self.grid
        low = query_block * grid.query_block
        first, last = self.mask.key_range(low, low + grid.query_block - 1, grid.key_length)
        return first // grid.key_block, -(-last // grid.key_block)

    def all_visible(self, query_block: Any, key_block: Any) -> Any:
        """Returns a scalar boolean: whether the order hides nothing between two blocks. Only if `order_alone`."""
        query_low = query_block * self.grid.query_block
        query_high = query_low + self.grid.query_block - 1
        key_low = key_block * self.grid.key_block
        key_high = key_low + self.grid.key_block - 1
        left, right = self.mask.window or (None, None)
        if self.mask.causal:
            right = 0
        conditions = []
        if right is not None:
            conditions.append(key_high <= query_low + right)
        if left is not None:
            conditions.append(key_low >= query_high - left)
        if self.mask.block_size is not None:
            low, high = ops.minimum(query_low, key_low), ops.maximum(query_high, key_high)
            conditions.append(ops.equal(low // self.mask.block_size, high // self.mask.block_size))
        result = conditions[0]
        for condition in conditions[1:]:
            result = ops.logical_and(result, condition)
        return result

    def hide(self, scores: Any, query_block: Any, key_block: Any) -> Any:
        """Returns `scores` of two blocks, very low where the mask hides the key; padding of keys is left out."""
        if not self.hides:
            return scores
        grid = self.grid

        def masked() -> Any:
            visible = self.mask.materialize(
                grid.query_block, grid.key_block, query_block * grid.query_block, key_block * grid.key_block
            )
            return grid.by_row(grid.by_group(scores) - grid.heads_to_groups(penalty(visible, scores.dtype)))

        if not self.order_alone:
            return masked()
        return ops.cond(self.all_visible(query_block, key_block), lambda: scores, masked)
