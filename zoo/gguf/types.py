"""The types of numbers in GGUF files, which the package `gguf` knows."""

from __future__ import annotations

from types import ModuleType

from zoo.extras import import_extra


def library() -> ModuleType:
    """Returns the package `gguf`, an extra.

    Raises:
        MissingExtraError: If it is not installed; the message says how to install it.
    """
    return import_extra("gguf", "gguf")


def sizes_of_type(kind: int) -> tuple[int, int] | None:
    """Returns the numbers and the bytes of a block of a type; None for an unknown one.

    Args:
        kind: Number of the type.
    """
    gguf = library()
    known = {member.value: member for member in gguf.GGMLQuantizationType}
    return gguf.GGML_QUANT_SIZES.get(known[kind]) if kind in known else None
