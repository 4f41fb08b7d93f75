"""Padding: positions where a mask is false."""

from typing import Any

from keras import ops


def hide_padding(x: Any, mask: Any) -> Any:
    """Returns `x` with zeros where `mask` is false, even if `x` holds NaN there.

    Args:
        x: `(batch, length, dim)`.
        mask: True where a position is real, `(batch, length)`; None if all are.

    Raises:
        ValueError: If `mask` has another rank.
    """
    if mask is None:
        return x
    mask = ops.cast(mask, "bool")
    if len(mask.shape) != 2:
        raise ValueError(f"mask must have shape (batch, length), got {tuple(mask.shape)}.")
    return ops.where(ops.expand_dims(mask, -1), x, ops.cast(0, x.dtype))
