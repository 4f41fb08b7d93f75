"""Weights in floating-point numbers of 8 bits, of which blocks share a scale (DeepSeek-V3)."""

import dataclasses
import functools
from collections.abc import Sequence
from typing import Any, Literal

import numpy as np

from zoo.huggingface.quantized.packed import Packed, names_ending, numbers_of, of_blocks, require_dtypes, require_shape
from zoo.storage import TensorFiles

_SCALES = ".weight_scale_inv"
FLOATS_OF_8_BITS = ("float8_e4m3fn", "float8_e5m2")


@dataclasses.dataclass(frozen=True)
class Float8:
    """What `quantization_config` says of weights in 8 bits."""

    quant_method: Literal["fp8"]
    activation_scheme: Literal["dynamic", "static"] = "dynamic"
    weight_block_size: tuple[int, int] | None = None
    fmt: Literal["e4m3"] = "e4m3"
    scale_fmt: Literal["float"] = "float"
    expert_dtype: Literal["fp8"] = "fp8"
    modules_to_not_convert: Sequence[str] | None = None
    modules_to_convert: Sequence[str] | None = None
    ignored_layers: Sequence[str] | None = None
    dequantize: Any = None


def find_float8(files: TensorFiles, settings: Float8) -> dict[str, Packed]:
    """Returns the weights in 8 bits by name.

    Args:
        files: Tensors, of which `name.weight` `(outputs, inputs)` holds numbers in 8 bits, and `name.weight_scale_inv`
            what each block of them is multiplied by; one number for all without `weight_block_size`.
        settings: What the configuration says.

    Raises:
        ValueError: If tensors do not fit.

    Reference:
        DeepSeek-AI 2024, "DeepSeek-V3 Technical Report", section 3.3; Micikevicius et al. 2022, "FP8 Formats for Deep
        Learning".
    """
    packed = {}
    for name in names_ending(files, _SCALES):
        weight = f"{name}.weight"
        shape = tuple(files.shapes.get(weight, ()))
        if len(shape) != 2:
            raise ValueError(f"{files.source}: {weight} must have 2 axes beside {name}{_SCALES}, got {shape}.")
        block = settings.weight_block_size
        if block is None:
            require_shape(files, name + _SCALES, (), (1,), (1, 1))
        else:
            if min(block) < 1:
                raise ValueError(f"quantization_config.weight_block_size must be at least 1, got {list(block)}.")
            require_shape(files, name + _SCALES, (-(-shape[0] // block[0]), -(-shape[1] // block[1])))
        parts = {"numbers": weight, "scales": name + _SCALES}
        # what inputs would be divided by
        unread = tuple(tensor for tensor in (f"{name}.activation_scale",) if tensor in files.shapes)
        packed[weight] = Packed(shape, parts, functools.partial(_unpack, block=block), unread)
    return packed


def _unpack(numbers: np.ndarray, scales: np.ndarray, block: tuple[int, int] | None) -> np.ndarray:
    require_dtypes("weights", numbers, FLOATS_OF_8_BITS)
    scales = numbers_of("weight_scale_inv", scales)
    if block is None:
        return numbers.astype("float32") * scales.reshape(1, 1)
    return numbers.astype("float32") * of_blocks(scales, block, numbers.shape)
