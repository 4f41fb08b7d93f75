"""Biases of attention scores, block by block, with their gradients."""

from typing import Any

from keras import ops

from layers.attention.kernels.bias import sum_diagonals, toeplitz
from layers.attention.kernels.blocks import BlockGrid
from layers.attention.slices import pad_axis


class MatrixBias:
    """A bias with an entry for each pair of a query and a key (or one for all of them along an axis of size 1).

    Args:
        grid: The `BlockGrid`.
        bias: `(batch or 1, heads or 1, query_length or 1, key_length or 1)`.
    """

    def __init__(self, grid: BlockGrid, bias: Any) -> None:
        self.grid = grid
        self.lengths: Any = ops.shape(bias)[2:]
        # an axis of size 1 is not cut into blocks
        self.per_query: bool
        self.per_key: bool
        self.per_query, self.per_key = (size != 1 for size in bias.shape[2:])
        if self.per_query:
            bias = pad_axis(bias, 2, grid.query_blocks * grid.query_block - grid.query_length)
        if self.per_key:
            bias = pad_axis(bias, 3, grid.key_blocks * grid.key_block - grid.key_length)
        self.bias = bias

    def block(self, i: Any, j: Any) -> Any:
        """Returns the bias of query block i and key block j, which broadcasts against `BlockGrid.by_group`."""
        return self.grid.heads_to_groups(ops.slice(self.bias, self._start(i, j), self._size()))

    def add_gradient(self, gradient: Any, score_gradients: Any, i: Any, j: Any) -> Any:
        """Returns `gradient`, in the shape of `self.bias`, with the part of blocks i and j added.

        Args:
            gradient: The sum so far.
            score_gradients: `(batch, heads, query_block, key_block)`.
            i: Index of the query block.
            j: Index of the key block.
        """
        axes = [axis for axis, size in enumerate(self.bias.shape) if size == 1]
        if axes:
            score_gradients = ops.sum(score_gradients, axis=axes, keepdims=True)
        start = self._start(i, j)
        return ops.slice_update(gradient, start, score_gradients + ops.slice(gradient, start, self._size()))

    def finish_gradient(self, gradient: Any) -> Any:
        """Returns the gradient in the shape of the given bias."""
        return gradient[:, :, : self.lengths[0], : self.lengths[1]]

    def _start(self, i: Any, j: Any) -> list[Any]:
        row = i * self.grid.query_block if self.per_query else 0
        column = j * self.grid.key_block if self.per_key else 0
        return [0, 0, row, column]

    def _size(self) -> list[Any]:
        batch, heads, _, _ = ops.shape(self.bias)
        return [
            batch,
            heads,
            self.grid.query_block if self.per_query else 1,
            self.grid.key_block if self.per_key else 1,
        ]


class DistanceBias:
    """A bias with an entry for each distance of a key from a query. Its memory and its gradient's are linear in length.

    Args:
        grid: The `BlockGrid`.
        bias: `(1, heads, query_length + key_length - 1)`, from the lowest distance to the highest.
    """

    def __init__(self, grid: BlockGrid, bias: Any) -> None:
        self.grid = grid
        self.size: Any = ops.shape(bias)[2]
        self.front: Any = grid.query_blocks * grid.query_block - grid.query_length
        bias = pad_axis(bias, 2, self.front, front=True)
        self.bias: Any = pad_axis(bias, 2, grid.key_blocks * grid.key_block - grid.key_length)

    def block(self, i: Any, j: Any) -> Any:
        """As `MatrixBias.block`."""
        diagonals = ops.slice(self.bias, self._start(i, j), self._size())
        return self.grid.heads_to_groups(toeplitz(diagonals, self.grid.query_block, self.grid.key_block))

    def add_gradient(self, gradient: Any, score_gradients: Any, i: Any, j: Any) -> Any:
        """As `MatrixBias.add_gradient`."""
        score_gradients = ops.sum(score_gradients, axis=0, keepdims=True)
        if self.bias.shape[1] == 1:
            score_gradients = ops.sum(score_gradients, axis=1, keepdims=True)
        update = sum_diagonals(score_gradients, self.grid.query_block, self.grid.key_block)
        start = self._start(i, j)
        return ops.slice_update(gradient, start, update + ops.slice(gradient, start, self._size()))

    def finish_gradient(self, gradient: Any) -> Any:
        """As `MatrixBias.finish_gradient`."""
        return gradient[:, :, self.front : self.front + self.size]

    def _start(self, i: Any, j: Any) -> list[Any]:
        grid = self.grid
        return [0, 0, j * grid.key_block + (grid.query_blocks - 1 - i) * grid.query_block]

    def _size(self) -> list[Any]:
        return [1, self.bias.shape[1], self.grid.query_block + self.grid.key_block - 1]
