"""A tensor of a GGUF file as numbers."""

from __future__ import annotations

import ml_dtypes
import numpy as np

from zoo.gguf.header import GGUFTensor
from zoo.gguf.types import library

_FLOATS = {0: np.dtype("float32"), 1: np.dtype("float16"), 30: np.dtype(ml_dtypes.bfloat16)}


def read_tensor(tensor: GGUFTensor, index: int | None = None) -> np.ndarray:
    """Returns a tensor as numbers: views of float types, and float32 for all others.

    Args:
        tensor: Where it is.
        index: Which part along the first axis; None for all of it.
    """
    if tensor.kind in _FLOATS:
        stored = np.memmap(tensor.file, _FLOATS[tensor.kind], "r", tensor.offset, tensor.shape)
        return stored if index is None else stored[index]
    gguf = library()
    kind = gguf.GGMLQuantizationType(tensor.kind)
    block, block_bytes = gguf.GGML_QUANT_SIZES[kind]
    rows = (*tensor.shape[:-1], tensor.shape[-1] // block * block_bytes)
    stored = np.memmap(tensor.file, np.uint8, "r", tensor.offset, rows)
    if index is None:
        return gguf.quants.dequantize(stored, kind).reshape(tensor.shape)
    return gguf.quants.dequantize(stored[index], kind).reshape(tensor.shape[1:])
