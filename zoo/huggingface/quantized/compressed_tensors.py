"""Weights of compressed-tensors: integers or floating-point numbers of 8 bits, and packed integers of a few bits."""

import dataclasses
import functools
import math
from collections.abc import Sequence
from typing import Any, Literal

import numpy as np

from zoo.huggingface.quantized.float8 import FLOATS_OF_8_BITS
from zoo.huggingface.quantized.packed import (
    Packed,
    names_ending,
    numbers_of,
    of_blocks,
    require_axes,
    require_dtypes,
    require_shape,
    unpack_integers,
)
from zoo.storage import TensorFiles, quote_key, to_dataclass

# scales of inputs and outputs, which only programs need that compute in few bits
_OF_ACTIVATIONS = ("input_scale", "input_zero_point", "output_scale", "output_zero_point")


@dataclasses.dataclass(frozen=True)
class CompressedTensors:
    """What `quantization_config` says; keys of `Any` tell how the weights were found, not what they are."""

    quant_method: Literal["compressed-tensors"]
    config_groups: dict[str, dict[str, Any]]
    format: Literal["int-quantized", "float-quantized", "naive-quantized", "pack-quantized"]
    quantization_status: Literal["compressed"] = "compressed"
    kv_cache_scheme: None = None
    ignore: Sequence[str] | None = None
    sparsity_config: dict[str, Any] | None = None
    transform_config: dict[str, Any] | None = None
    moe_sparsity_config: None = None
    global_compression_ratio: Any = None
    version: Any = None


@dataclasses.dataclass(frozen=True)
class _Weights:
    """How the weights of a group are stored."""

    num_bits: int = 8
    type: Literal["int", "float"] = "int"
    strategy: Literal["tensor", "channel", "group", "block"] | None = None
    block_structure: tuple[int, int] | None = None


def find_compressed(files: TensorFiles, settings: CompressedTensors) -> dict[str, Packed]:
    """Returns the quantized weights by name.

    Args:
        files: Tensors. `name.weight` `(outputs, inputs)` holds numbers of 8 bits, or `name.weight_packed` integers of
            a few bits, packed along the inputs in int32, and `name.weight_shape` the shape; `name.weight_scale` is one
            number, `(outputs, 1)`, `(outputs, groups)` or one for each block, and `name.weight_zero_point` as large,
            packed along the outputs beside packed integers.
        settings: What the configuration says.

    Raises:
        ValueError: If tensors do not fit, or something else than weights is compressed.

    Reference:
        The formats "int-quantized", "float-quantized" and "pack-quantized" of the package compressed-tensors.
    """
    sparsity = (settings.sparsity_config or {}).get("format", "dense")
    if sparsity != "dense":
        raise ValueError(f"quantization_config.sparsity_config.format must be 'dense', got {sparsity!r}.")
    if settings.transform_config and settings.transform_config.get("config_groups"):
        raise ValueError("quantization_config.transform_config must have no config_groups: weights are rotated there.")
    groups = [
        to_dataclass(_Weights, group["weights"], f"quantization_config.config_groups.{quote_key(name)}.weights", True)
        for name, group in settings.config_groups.items()
        if group.get("weights") is not None
    ]
    packed = {}
    for name in names_ending(files, ".weight_packed"):
        packed[f"{name}.weight"] = _packed_integers(files, name, {group.num_bits for group in groups})
    blocks = {group.block_structure for group in groups if group.strategy == "block"}
    for name in names_ending(files, ".weight_scale"):
        if f"{name}.weight" not in packed:
            packed[f"{name}.weight"] = _numbers_of_8_bits(files, name, blocks)
    return packed


def _packed_integers(files: TensorFiles, name: str, widths: set[int]) -> Packed:
    parts = {"integers": f"{name}.weight_packed", "scales": f"{name}.weight_scale"}
    rows, words = require_axes(files, parts["integers"], 2)
    require_shape(files, f"{name}.weight_shape", (2,))
    sizes = np.asarray(files.get(f"{name}.weight_shape"))
    require_dtypes(f"{name}.weight_shape", sizes, ("int32", "int64"))
    outputs, inputs = map(int, sizes)
    found = [bits for bits in sorted(widths) if 1 <= bits <= 8 and -(-inputs * bits // 32) == words]
    if outputs != rows or inputs < 1 or len(found) != 1:
        raise ValueError(
            f"{files.file_of(parts['integers'])}: {quote_key(parts['integers'])} must fit {name}.weight_shape "
            f"({outputs}, {inputs}) and num_bits {sorted(widths)}, got shape ({rows}, {words})."
        )
    scales = require_axes(files, parts["scales"], 2) if parts["scales"] in files.shapes else (0, 0)
    require_shape(files, parts["scales"], (outputs, scales[1]))
    _require_groups(name, inputs, scales[1])
    if f"{name}.weight_zero_point" in files.shapes:
        parts["zeros"] = f"{name}.weight_zero_point"
        require_shape(files, parts["zeros"], (-(-outputs * found[0] // 32), scales[1]))
    if f"{name}.weight_g_idx" in files.shapes:
        parts["group_of"] = f"{name}.weight_g_idx"
        require_shape(files, parts["group_of"], (inputs,))
    unpack = functools.partial(_unpack_integers, bits=found[0], inputs=inputs)
    return Packed((outputs, inputs), parts, unpack, (f"{name}.weight_shape", *_unread(files, name)))


def _numbers_of_8_bits(files: TensorFiles, name: str, blocks: set[tuple[int, int] | None]) -> Packed:
    parts = {"numbers": f"{name}.weight", "scales": f"{name}.weight_scale"}
    if parts["numbers"] not in files.shapes:
        raise ValueError(f"{files.source} lacks {quote_key(parts['numbers'])}, whose scale is there.")
    outputs, inputs = require_axes(files, parts["numbers"], 2)
    shape = tuple(files.shapes[parts["scales"]])
    sizes = [size for size in blocks if size is not None and min(size) > 0]
    # a weight of few outputs has one row of blocks, of which the last may be smaller: no equal groups
    fitting = [size for size in sizes if shape == (-(-outputs // size[0]), -(-inputs // size[1]))]
    block = fitting[0] if len(fitting) == 1 else None
    if len(shape) == 2 and block is None and shape[0] not in (1, outputs):
        allowed = f"(1,), (1, 1), ({outputs}, 1), ({outputs}, groups) or that of blocks of {sizes}"
        raise ValueError(f"{name}.weight_scale must have shape {allowed}, got {shape}.")
    if len(shape) == 2 and block is None:
        _require_groups(name, inputs, shape[1])
    elif len(shape) != 2:
        require_shape(files, parts["scales"], (), (1,), (outputs,))
    if f"{name}.weight_zero_point" in files.shapes:
        parts["zeros"] = f"{name}.weight_zero_point"
        require_shape(files, parts["zeros"], shape)
    return Packed((outputs, inputs), parts, functools.partial(_unpack_8_bits, block=block), _unread(files, name))


def _unread(files: TensorFiles, name: str) -> tuple[str, ...]:
    return tuple(tensor for role in _OF_ACTIVATIONS if (tensor := f"{name}.{role}") in files.shapes)


def _require_groups(name: str, inputs: int, groups: int) -> None:
    if not groups or inputs % groups:
        raise ValueError(f"{name}.weight_scale must have equal groups of the {inputs} inputs, got {groups} groups.")


def _unpack_integers(
    integers: np.ndarray,
    scales: np.ndarray,
    zeros: np.ndarray | None = None,
    group_of: np.ndarray | None = None,
    *,
    bits: int,
    inputs: int,
) -> np.ndarray:
    values = unpack_integers(np.ascontiguousarray(integers.T), bits)[:inputs].T.astype("float32")
    scales = numbers_of("weight_scale", scales)
    groups = scales.shape[1]
    if group_of is None:
        group_of = np.repeat(np.arange(groups), inputs // groups)
    require_dtypes("weight_g_idx", group_of, ("int32", "int64"))
    if group_of.min() < 0 or group_of.max() >= groups:
        raise ValueError(f"weight_g_idx must name groups from 0 to {groups - 1}, got {group_of.max()}.")
    if zeros is None:
        values -= np.float32(2 ** (bits - 1))  # they are stored without a sign
    else:
        # as the integers are, so that what was added to both falls away
        values -= unpack_integers(np.ascontiguousarray(zeros), bits)[: len(values)][:, group_of]
    values *= scales[:, group_of]
    return values


def _unpack_8_bits(
    numbers: np.ndarray, scales: np.ndarray, zeros: np.ndarray | None = None, *, block: tuple[int, int] | None
) -> np.ndarray:
    require_dtypes("weights", numbers, ("int8", *FLOATS_OF_8_BITS))
    weight = numbers.astype("float32")

    def widened(values: np.ndarray) -> np.ndarray:
        """One value for each place, or each row."""
        if block is not None:
            return of_blocks(values, block, weight.shape)
        values = values.reshape(-1, values.shape[-1] if values.ndim == 2 else 1)
        return np.repeat(values, math.ceil(weight.shape[1] / values.shape[1]), axis=1)

    if zeros is not None:
        weight -= widened(zeros.astype("float32"))
    weight *= widened(numbers_of("weight_scale", scales))
    return weight
