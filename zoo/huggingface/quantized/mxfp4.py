"""Weights in the number format MXFP4: sixteen values, of which blocks of 32 share a power of two (gpt-oss)."""

import dataclasses
from collections.abc import Sequence
from typing import Literal

import numpy as np

from zoo.huggingface.quantized.packed import Packed, names_ending, require_dtypes, require_shape
from zoo.storage import TensorFiles

_BLOCKS, _SCALES = "_blocks", "_scales"
_POSITIVE = [0.0, 0.5, 1.0, 1.5, 2.0, 3.0, 4.0, 6.0]
VALUES = np.array(_POSITIVE + [-value for value in _POSITIVE], "float32")
_BIAS = 127
# the exponent that stands for NaN (OCP Microscaling Formats, section 5.4.1)
_NO_NUMBER = 255


@dataclasses.dataclass(frozen=True)
class MXFP4:
    """What `quantization_config` says of weights in MXFP4."""

    quant_method: Literal["mxfp4"]
    modules_to_not_convert: Sequence[str] | None = None
    dequantize: bool = False


def find_mxfp4(files: TensorFiles, settings: MXFP4) -> dict[str, Packed]:
    """Returns the weights that pairs `name_blocks` and `name_scales` are, by name.

    Args:
        files: Tensors, of which `name_blocks` `(experts, outputs, groups, 16)` holds two numbers in each byte, those of
            32 inputs in a row, and `name_scales` `(experts, outputs, groups)` their exponents; in bytes both. The
            weight is `(experts, 32 * groups, outputs)`.
        settings: What the configuration says.

    Raises:
        ValueError: If blocks and scales do not fit.

    Reference:
        Rouhani et al. 2023, "OCP Microscaling Formats (MX) Specification", version 1.0, section 5.
    """
    packed = {}
    for name in names_ending(files, _BLOCKS):
        shape = tuple(files.shapes[name + _BLOCKS])
        if len(shape) != 4 or shape[3] != 16:
            raise ValueError(f"{name}{_BLOCKS} must have shape (experts, outputs, groups, 16), got {shape}.")
        require_shape(files, name + _SCALES, shape[:3])
        parts = {"blocks": name + _BLOCKS, "scales": name + _SCALES}
        packed[name] = Packed((shape[0], 32 * shape[2], shape[1]), parts, _unpack)
    return packed


def _unpack(blocks: np.ndarray, scales: np.ndarray) -> np.ndarray:
    require_dtypes("blocks of MXFP4", blocks, ("uint8",))
    require_dtypes("scales of MXFP4", scales, ("uint8",))
    if (scales == _NO_NUMBER).any():
        raise ValueError(f"scales of MXFP4 must be below {_NO_NUMBER}, which stands for NaN.")
    numbers = np.empty((*blocks.shape[:2], 32 * blocks.shape[2]), "float32")
    for expert, (block, scale) in enumerate(zip(blocks, scales, strict=True)):
        pairs = VALUES[np.stack([block & 15, block >> 4], axis=-1)]  # the lower half of a byte comes first
        pairs = np.ldexp(pairs.reshape(*block.shape[:2], 32), scale[..., None].astype("int32") - _BIAS)
        numbers[expert] = pairs.reshape(block.shape[0], -1)
    return np.swapaxes(numbers, 1, 2)
