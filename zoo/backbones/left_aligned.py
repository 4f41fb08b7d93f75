"""Rows whose real tokens stand first, so that their lengths say what their padding mask says.

Kernels of attention take the length of each row, and compute nothing for padding. A mask that says the same is a matrix
for them. Nobody knows when a program is compiled whether rows will be padded on the right, on the left or in between.
So a stack moves the real tokens of each row to its beginning, in their order, before its first layer, and back after
its last. Positions move with them. This takes two passes over the hidden states, for all layers.
"""

from typing import Any

from keras import ops


class LeftAligned:
    """The order in which the real tokens of each row stand first.

    Args:
        padding_mask: True where a token is real, `(batch, length)`.

    Attributes:
        lengths: Number of real tokens of each row, `(batch,)`.
        order: Where each token of the new order was, `(batch, length)`: its position by default.
        padding_mask: True where a token of the new order is real.

    Example:

    >>> rows = LeftAligned(np.array([[False, True, True], [True, False, True]]))
    >>> rows.lengths, rows.order
    ([2, 2], [[1, 2, 0], [0, 2, 1]])
    """

    def __init__(self, padding_mask: Any) -> None:
        real = ops.cast(padding_mask, "bool")
        length = ops.shape(real)[1]
        counted = ops.cast(real, "int32")
        self.lengths = ops.sum(counted, axis=1)
        # where each token goes: behind the real ones before it, or behind all of these and the padding before it
        padding = ops.cumsum(1 - counted, axis=1) - 1 + self.lengths[:, None]
        self._places = ops.where(real, ops.cumsum(counted, axis=1) - 1, padding)
        self.order = ops.cast(ops.argsort(self._places, axis=1), "int32")
        self.padding_mask = ops.arange(length, dtype="int32")[None] < self.lengths[:, None]

    def align(self, x: Any) -> Any:
        """Returns `x` `(batch, length, ...)` in the new order."""
        return _taken(x, self.order)

    def restore(self, x: Any) -> Any:
        """Returns `x` `(batch, length, ...)`, which is in the new order, in the old one."""
        return _taken(x, self._places)

    def positions(self, positions: Any = None) -> Any:
        """Returns the positions of the tokens in the new order, `(batch, length)`.

        Args:
            positions: Those in the old order, `(length,)` or `(batch, length)`; None for 0, 1, 2, ...
        """
        if positions is None:
            return self.order
        return self.align(ops.broadcast_to(ops.cast(positions, "int32"), ops.shape(self.order)))


def _taken(x: Any, order: Any) -> Any:
    return ops.take_along_axis(x, ops.reshape(order, (*ops.shape(order), *[1] * (len(x.shape) - 2))), axis=1)
