"""Checksums of weights, by which results that depend on them are known to be out of date."""

from collections.abc import Sequence
from typing import Any

import keras
from keras import ops

# Entries of each weight that a quick look reads, at equal distances.
_FEW = 256


def checksums(variables: Sequence[Any], quick: bool = False) -> Any:
    """Returns a number for each variable, which changes with any of its entries, int32 `(variables,)`.

    It takes one pass over the weights, as long as one token of one text.

    Args:
        variables: The variables.
        quick: Whether to read a few entries of each only. Training changes them too, unless it changes few rows of few
            weights.
    """
    return ops.stack([_checksum(variable, quick) for variable in variables])


def _checksum(variable: Any, quick: bool) -> Any:
    values = ops.reshape(ops.convert_to_tensor(variable), (-1,))
    if quick:
        values = values[:: -(-values.shape[0] // _FEW)]
    dtype = keras.backend.standardize_dtype(values.dtype)
    if keras.backend.is_float_dtype(dtype):
        # sums of numbers would be rounded: the bits are summed, modulo 2**32
        values = ops.view(values, f"int{dtype.removeprefix('b').removeprefix('float')}")
    return ops.sum(ops.cast(values, "int32"))
