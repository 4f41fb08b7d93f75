"""Checksums of weights, by which results that depend on them are known to be out of date."""

import os
import zlib
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import keras
import numpy as np
from keras import ops

from layers.devices import has_accelerator
from zoo.generation.compiled_functions import CompiledFunctions

# Entries of each weight that a quick look reads, at equal distances.
_FEW = 256
# Entries that are added up, an odd number: what adds the same to each of them, modulo 2**32, such as a factor of 2
# (2**23), changes their sum.
_GROUP = 255
_ODD = 0x45D9F3B


class Checksums:
    """Numbers that change with the weights of a model.

    Where they are in the memory of the processor they are read there, without a copy: a program of the backend would
    take seconds to trace. On an accelerator it takes one pass over the weights, as long as one token of one text.

    Args:
        backbone: The model, which has `active_variables`.

    Example:

    >>> checksums = Checksums(model.backbone)
    >>> before = checksums()
    >>> model.fit(texts)
    >>> np.array_equal(checksums(), before)
    False
    """

    def __init__(self, backbone: Any) -> None:
        self._backbone = backbone
        self._programs = CompiledFunctions(lambda: list(backbone.active_variables), 1)

    def __call__(self, quick: bool = False) -> np.ndarray:
        """Returns the numbers, int32 `(numbers,)`.

        Args:
            quick: Whether to return a few entries of each weight only. Training changes them too, unless it changes
                few rows of few weights.
        """
        variables = list(self._backbone.active_variables)
        if not has_accelerator() and all(map(_is_whole, variables)):
            arrays = [_in_memory(variable) for variable in variables]
            if quick:
                few = [np.ascontiguousarray(array[:: _step(array.size)]) for array in arrays]
                # those of 64 bits in halves
                return np.concatenate(
                    [each.view("int32") if each.itemsize > 4 else each.astype("int32") for each in few]
                )
            with ThreadPoolExecutor(os.cpu_count()) as threads:
                return np.array(list(threads.map(zlib.crc32, arrays)), "uint32").view("int32")
        if quick:  # in less time than a program is traced in
            return ops.convert_to_numpy(device_checksums(variables, quick=True))
        return ops.convert_to_numpy(self._programs.run((), lambda: device_checksums(variables), True))


def device_checksums(variables: Sequence[Any], quick: bool = False) -> Any:
    """Returns such numbers of variables wherever they are, int32 `(numbers,)`.

    Args:
        variables: The variables.
        quick: As for `Checksums`.
    """
    if quick:
        return ops.concatenate([_bits(_few(variable)) for variable in variables])
    return ops.stack([_checksum(_bits(ops.reshape(variable, (-1,)))) for variable in variables])


def _in_memory(variable: Any) -> np.ndarray:
    """The bits of a variable, which is not copied, int `(numbers,)`."""
    values = variable.value
    if keras.backend.backend() == "tensorflow":
        values = values.value()  # without the copy, and in a tenth of the time, of Keras' functions
        if values.dtype == "bfloat16":  # which NumPy does not know
            values = ops.view(values, "int16")
        array = np.from_dlpack(values)
    else:
        # no copy of JAX's
        array = np.asarray(values) if keras.backend.backend() == "jax" else ops.convert_to_numpy(values)
    array = array.reshape(-1)
    return array.view(f"int{8 * array.itemsize}")


def _is_whole(variable: Any) -> bool:
    """Whether this process has all of a variable in one place, and not parts of it on several devices of JAX."""
    return getattr(variable.value, "is_fully_replicated", True)


def _step(size: int) -> int:
    """The distance of the entries that a quick look reads."""
    return max(-(-size // _FEW), 1)


def _few(variable: Any) -> Any:
    values = ops.reshape(variable, (-1,))
    return values[:: _step(values.shape[0])]


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
