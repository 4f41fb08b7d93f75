"""Rows of tokens as the endpoints of exports take them."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np


def padded(rows: Sequence[Sequence[int]]) -> np.ndarray:
    """Returns rows of token ids as an array, -1 behind those of a row.

    Args:
        rows: At least one row.
    """
    array = np.full((len(rows), max(1, *map(len, rows))), -1, "int32")
    for row, ids in enumerate(rows):
        array[row, : len(ids)] = ids
    return array
