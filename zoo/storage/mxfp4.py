"""Tensors in the number format MXFP4: sixteen values, of which blocks of 32 share a power of two (gpt-oss)."""

from collections.abc import Mapping

import numpy as np

from zoo.storage.checkpoint import TensorFiles

_BLOCKS, _SCALES = "_blocks", "_scales"
_POSITIVE = [0.0, 0.5, 1.0, 1.5, 2.0, 3.0, 4.0, 6.0]
VALUES = np.array(_POSITIVE + [-value for value in _POSITIVE], "float32")
_BIAS = 127


def unpack_mxfp4(files: TensorFiles) -> TensorFiles:
    """Returns tensors in which each pair `name_blocks` and `name_scales` is one of numbers, `name`.

    Args:
        files: Tensors, of which `name_blocks` `(experts, outputs, groups, 16)` holds two numbers in each byte, those of
            32 inputs in a row, and `name_scales` `(experts, outputs, groups)` their exponents; in bytes both.

    Returns:
        The tensors, with `name` `(experts, 32 * groups, outputs)` as float32.

    Raises:
        ValueError: If blocks and scales do not fit.

    Reference:
        Rouhani et al. 2023, "OCP Microscaling Formats (MX) Specification", version 1.0, section 5.
    """
    packed = {name.removesuffix(_BLOCKS): shape for name, shape in files.shapes.items() if name.endswith(_BLOCKS)}
    packed = {name: shape for name, shape in packed.items() if name + _SCALES in files.shapes}
    if not packed:
        return files
    shapes, owner = dict(files.shapes), {name: files.file_of(name) for name in files.shapes}
    for name, shape in packed.items():
        of_scales = shapes.pop(name + _SCALES)
        del shapes[name + _BLOCKS]
        if len(shape) != 4 or shape[3] != 16 or of_scales != shape[:3]:
            allowed = "(experts, outputs, groups, 16) with scales (experts, outputs, groups)"
            raise ValueError(f"{name}{_BLOCKS} must have shape {allowed}, got {shape} with {of_scales}.")
        shapes[name] = (shape[0], 32 * shape[2], shape[1])
        owner[name] = owner[name + _BLOCKS]
    return TensorFiles(shapes, _Reader(files, packed).read, files.source, owner)


class _Reader:
    """Reads tensors, and numbers of packed ones."""

    def __init__(self, files: TensorFiles, packed: Mapping[str, tuple[int, ...]]) -> None:
        self._files, self._packed = files, packed

    def read(self, name: str) -> np.ndarray:
        if name not in self._packed:
            return self._files.get(name)
        blocks, scales = (np.asarray(self._files.get(name + ending)) for ending in (_BLOCKS, _SCALES))
        if (blocks.dtype, scales.dtype) != (np.uint8, np.uint8):
            raise ValueError(
                f"{name}{_BLOCKS} and {name}{_SCALES} must hold bytes, got {blocks.dtype}, {scales.dtype}."
            )
        numbers = np.empty((*blocks.shape[:2], 32 * blocks.shape[2]), "float32")
        for expert, (block, scale) in enumerate(zip(blocks, scales, strict=True)):
            pairs = VALUES[np.stack([block & 15, block >> 4], axis=-1)]  # the lower half of a byte comes first
            pairs = np.ldexp(pairs.reshape(*block.shape[:2], 32), scale[..., None].astype("int32") - _BIAS)
            numbers[expert] = pairs.reshape(block.shape[0], -1)
        return np.swapaxes(numbers, 1, 2)
