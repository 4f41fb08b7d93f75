"""Slices and padding of tensors, with lengths that may be integers or scalar tensors."""

from typing import Any

from keras import ops


def slice_axis(x: Any, start: Any, length: Any, axis: Any = -1) -> Any:
    """Returns `length` entries of `x` along `axis`, from index `start` on (ints or scalar tensors)."""
    axis %= len(x.shape)
    if isinstance(start, int) and start == 0 and (length is x.shape[axis] or length == x.shape[axis]):
        return x
    starts = [0] * len(x.shape)
    sizes = list(ops.shape(x))
    starts[axis], sizes[axis] = start, length
    return ops.slice(x, starts, sizes)


def pad_axis(x: Any, axis: Any, more: Any, front: bool = False) -> Any:
    """Returns `x` with `more` (an int or a scalar tensor) zeros, or false, at the end or the `front` of an axis."""
    if isinstance(more, int) and more == 0:
        return x
    widths = [[0, 0] for _ in x.shape]
    widths[axis][0 if front else 1] = more
    return ops.pad(x, widths)


def larger(x: Any, y: Any) -> Any:
    """Returns the larger of two ints or scalar tensors; an int if both are ints."""
    return max(x, y) if isinstance(x, int) and isinstance(y, int) else ops.maximum(x, y)


def smaller(x: Any, y: Any) -> Any:
    """Returns the smaller of two ints or scalar tensors; an int if both are ints."""
    return min(x, y) if isinstance(x, int) and isinstance(y, int) else ops.minimum(x, y)
