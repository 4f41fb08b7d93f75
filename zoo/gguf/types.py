"""The types of numbers in GGUF files, which the package `gguf` knows."""

from __future__ import annotations

import functools
from types import ModuleType


@functools.cache
def library() -> ModuleType:
    """Returns the package `gguf`, an extra.

    Raises:
        ModuleNotFoundError: If it is not installed; the message says how to install it.
    """
    try:
        import gguf
    except ModuleNotFoundError as error:
        raise ModuleNotFoundError(
            'GGUF files need the package gguf: pip install "keras-transformer-zoo[gguf]"', name="gguf"
        ) from error
    return gguf


def sizes_of_type(kind: int) -> tuple[int, int] | None:
    """Returns the numbers and the bytes of a block of a type; None for an unknown one.

    Args:
        kind: Number of the type.
    """
    gguf = library()
    known = {member.value: member for member in gguf.GGMLQuantizationType}
    return gguf.GGML_QUANT_SIZES.get(known[kind]) if kind in known else None
