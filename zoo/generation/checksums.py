"""Checksums of weights, by which results that depend on them are known to be out of date."""

from collections.abc import Sequence
from typing import Any

import keras
from keras import ops

# Entries of each weight that a quick look reads, at equal distances.
_FEW = 256
# Entries that are added up, an odd number: what adds the same to each of them, modulo 2**32, such as a factor of 2
# (2**23), changes their sum.
_GROUP = 255
_ODD = 0x45D9F3B


def checksums(variables: Sequence[Any], quick: bool = False) -> Any:
    """Returns numbers that change with any entry of the variables, int32 `(numbers,)`.

    It takes one pass over the weights, as long as one token of one text.

    Args:
        variables: The variables.
        quick: Whether to return a few entries of each only. Training changes them too, unless it changes few rows of
            few weights.
    """
    if quick:
        return ops.concatenate([_bits(_few(variable)) for variable in variables])
    return ops.stack([_checksum(_bits(ops.reshape(variable, (-1,)))) for variable in variables])


def _few(variable: Any) -> Any:
    values = ops.reshape(variable, (-1,))
    return values[:: max(-(-values.shape[0] // _FEW), 1)]


def _bits(values: Any) -> Any:
    """The bits of numbers, int32: sums of numbers would be rounded."""
    dtype = keras.backend.standardize_dtype(values.dtype)
    if dtype == "float64":  # in halves
        values = ops.reshape(ops.view(ops.expand_dims(values, -1), "int32"), (-1,))
    elif keras.backend.is_float_dtype(dtype):
        values = ops.view(values, f"int{dtype.removeprefix('b').removeprefix('float')}")
    return ops.cast(values, "int32")


def _checksum(bits: Any) -> Any:
    """The sum of sums of groups, whose bits are mixed with their places before."""
    # else the signs (2**31) of an even number of entries would add 0 modulo 2**32
    bits = ops.bitwise_xor(bits, ops.right_shift(bits, 15))
    grouped = bits.shape[0] // _GROUP * _GROUP
    sums = ops.sum(ops.reshape(bits[:grouped], (-1, _GROUP)), axis=1)
    sums = ops.concatenate([sums, bits[grouped:]])
    mixed = (sums + ops.arange(sums.shape[0], dtype="int32")) * _ODD
    return ops.sum(ops.bitwise_xor(mixed, ops.right_shift(mixed, 15)))
