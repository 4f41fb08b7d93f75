"""Rows that a model is too short for: left out, and counted."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any, TypeVar

from recipes.common.errors import BadLines, DataError

Row = TypeVar("Row")


def short_enough(rows: Sequence[Row], lengths: Iterable[Any], most: int, dropped: BadLines, *, what: str) -> list[Row]:
    """Returns the rows of at most the given number of tokens, and notes the others.

    Args:
        rows: Rows with an `origin`, `FILE:line`.
        lengths: The tokens of each that are fed.
        most: Most tokens.
        dropped: Where the others are noted.
        what: What a row is, for the error.

    Raises:
        DataError: If none is left.

    Example:

    >>> short_enough(pairs, [12, 80], 64, BadLines("skip"), what="pair of texts")
    """
    kept = []
    for row, length in zip(rows, lengths, strict=True):
        if length > most:
            dropped.add(f"longer than {most} tokens", row.origin, f"it has {int(length)}")
        else:
            kept.append(row)
    if not kept:
        raise DataError(f"no {what} is left: {dropped.report()}")
    return kept
