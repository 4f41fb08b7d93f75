"""Checks of arguments that samplers and logit processors share."""

import math
from collections.abc import Iterable
from typing import Any


def is_number(value: Any) -> bool:
    """Whether `value` is a finite Python number."""
    return isinstance(value, (int, float)) and not isinstance(value, bool) and math.isfinite(value)


def is_integer(value: Any) -> bool:
    """Whether `value` is an integer, of Python or NumPy."""
    return hasattr(value, "__index__") and not isinstance(value, bool)


def as_ids(name: str, ids: Any) -> tuple[int, ...]:
    """Returns one id or several as a tuple of Python integers.

    Raises:
        ValueError: If one is not an integer of at least 0.
    """
    ids = (ids,) if hasattr(ids, "__index__") or not isinstance(ids, Iterable) else tuple(ids)
    if any(not is_integer(i) or int(i) < 0 for i in ids):
        raise ValueError(f"`{name}` must be made of Python integers of at least 0. Received: {ids!r}")
    return tuple(int(i) for i in ids)


def as_sequences(name: str, sequences: Any) -> tuple[tuple[int, ...], ...]:
    """Returns ids and sequences of ids as a tuple of tuples: `[3, [4, 5]]` becomes `((3,), (4, 5))`.

    Raises:
        ValueError: If a sequence is empty or holds something else than integers of at least 0.
    """
    if not isinstance(sequences, Iterable) or isinstance(sequences, str):
        raise ValueError(f"`{name}` must be a list of token ids and of lists of token ids. Received: {sequences!r}")
    result = tuple(as_ids(name, sequence) for sequence in sequences)
    if not all(result):
        raise ValueError(f"`{name}` must not hold an empty sequence. Received: {sequences!r}")
    return result
