"""The state of rows of text: taken apart, kept, and put together in batches of other sizes."""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import tensorflow as tf

# Positions of the smallest state; others are so many times a power of two.
FEWEST_POSITIONS = 64

# A state: a tensor for each cache, by name.
State = Mapping[str, Any]


@dataclasses.dataclass(frozen=True)
class StateFormat:
    """What the caches of a model look like.

    Args:
        tensors: The property `state` of its endpoint `advance`: name, shape, type and most slots of each tensor.
    """

    tensors: Sequence[Mapping[str, Any]]

    def size(self, rows: int, positions: int) -> int:
        """Returns the number of bytes of a state.

        Args:
            rows: Number of rows.
            positions: Number of positions that they have room for.
        """
        return sum(
            math.prod(_shape(tensor, rows, positions)) * np.dtype(tf.as_dtype(tensor["dtype"]).as_numpy_dtype).itemsize
            for tensor in self.tensors
        )

    def forgets_by(self, index: int) -> bool:
        """Whether a row of so many positions cannot be taken back to fewer of them.

        Caches of a window keep the last positions only, and a tensor without slots is changed as a whole by each.
        """
        return any(index > (_slots(tensor, index) if "slots" in tensor["shape"] else 0) for tensor in self.tensors)

    def empty(self, rows: int, positions: int) -> dict[str, Any]:
        """Returns the state of rows without a token.

        Args:
            rows: Number of rows.
            positions: Number of positions that they have room for.
        """
        return {tensor["name"]: _zeros(tensor, rows, positions) for tensor in self.tensors}

    def arrange(self, parts: Sequence[tuple[State, Sequence[int]]], rows: int, positions: int) -> dict[str, Any]:
        """Returns a state that is put together from rows of others, the rest of it empty.

        Args:
            parts: States, and which of their rows are taken.
            rows: Number of rows of the new one.
            positions: Number of positions of the new one, no fewer than any of the rows has been fed.
        """
        arranged = {}
        for tensor in self.tensors:
            name, slots = tensor["name"], _slots(tensor, positions)
            axis = tensor["shape"].index("slots") if "slots" in tensor["shape"] else None
            pieces = []
            for state, taken in parts:
                if not len(taken):
                    continue
                whole = list(taken) == list(range(state[name].shape[0]))
                piece = state[name] if whole else tf.gather(state[name], list(taken))
                pieces.append(piece if axis is None else _resized(piece, axis, slots))
            missing = rows - sum(piece.shape[0] for piece in pieces)
            if missing:
                pieces.append(_zeros(tensor, missing, positions))
            arranged[name] = pieces[0] if len(pieces) == 1 else tf.concat(pieces, axis=0)
        return arranged


def rounded_positions(positions: int, most: int) -> int:
    """Returns a number of positions of which there are few different ones, at least those wanted.

    Args:
        positions: Positions that are wanted.
        most: Positions that the model has.
    """
    rounded = FEWEST_POSITIONS
    while rounded < positions:
        rounded *= 2
    return max(min(rounded, most), positions)


def size_of(state: State) -> int:
    """Returns the number of bytes of a state."""
    return sum(int(np.prod(tensor.shape)) * tensor.dtype.size for tensor in state.values())


def _slots(tensor: Mapping[str, Any], positions: int) -> int:
    most = tensor["most_slots"]
    return positions if most is None else min(positions, most)


def _zeros(tensor: Mapping[str, Any], rows: int, positions: int) -> Any:
    return tf.zeros(_shape(tensor, rows, positions), tensor["dtype"])


def _shape(tensor: Mapping[str, Any], rows: int, positions: int) -> list[int]:
    sizes = {"rows": rows, "slots": _slots(tensor, positions)}
    return [sizes.get(size, size) for size in tensor["shape"]]


def _resized(tensor: Any, axis: int, slots: int) -> Any:
    """The first slots of a tensor, or zeros behind them: those that go were not written."""
    have = tensor.shape[axis]
    if have == slots:
        return tensor
    if have > slots:
        return tf.gather(tensor, tf.range(slots), axis=axis)
    padding = [[0, 0] for _ in tensor.shape]
    padding[axis] = [0, slots - have]
    return tf.pad(tensor, padding)
