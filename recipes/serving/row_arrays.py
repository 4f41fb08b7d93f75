"""Rows of tokens as the endpoints of exports take them."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np


def padded(rows: Sequence[Sequence[float]], fill: int = -1, dtype: str = "int32") -> np.ndarray:
    """Returns rows of numbers, such as token ids, as an array.

    Args:
        rows: At least one row.
        fill: What stands behind the numbers of a row.
        dtype: Type of the array.
    """
    array = np.full((len(rows), max(1, *map(len, rows))), fill, dtype)
    for row, numbers in enumerate(rows):
        array[row, : len(numbers)] = numbers
    return array
