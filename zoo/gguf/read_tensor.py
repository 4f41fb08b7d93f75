"""A tensor of a GGUF file as numbers."""

from __future__ import annotations

import ml_dtypes
import numpy as np

from zoo.gguf.header import GGUFTensor
from zoo.gguf.types import library
from zoo.storage import quote

_FLOATS = {0: np.dtype("float32"), 1: np.dtype("float16"), 30: np.dtype(ml_dtypes.bfloat16)}


def read_tensor(tensor: GGUFTensor, index: int | None = None) -> np.ndarray:
    """Returns a tensor as numbers: views of float types, and float32 for all others.

    Args:
        tensor: Where it is.
        index: Which part along the first axis; None for all of it.

    Raises:
        ValueError: If the package gguf does not turn its type into floats, as it does not those of integers.
    """
    if tensor.kind in _FLOATS:
        stored = np.memmap(tensor.file, _FLOATS[tensor.kind], "r", tensor.offset, tensor.shape)
        return stored if index is None else stored[index]
    gguf = library()
    kind = gguf.GGMLQuantizationType(tensor.kind)
    block, block_bytes = gguf.GGML_QUANT_SIZES[kind]
    rows = (*tensor.shape[:-1], tensor.shape[-1] // block * block_bytes)
    stored = np.memmap(tensor.file, np.uint8, "r", tensor.offset, rows)
    part, shape = (stored, tensor.shape) if index is None else (stored[index], tensor.shape[1:])
    try:
        return gguf.quants.dequantize(part, kind).reshape(shape)
    except NotImplementedError as error:
        raise ValueError(
            f"{tensor.file}: tensor {quote(tensor.name)} must be of a type that the package gguf turns into floats, "
            f"got {kind.name}."
        ) from error
