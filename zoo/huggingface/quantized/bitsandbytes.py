"""Weights of bitsandbytes: four bits that number the values of a table (NF4, FP4), or integers of 8 bits."""

import dataclasses
import functools
import math
from collections.abc import Sequence
from typing import Any, Literal

import ml_dtypes
import numpy as np

from zoo.huggingface.quantized.packed import (
    Packed,
    names_ending,
    numbers_of,
    require_axes,
    require_dtypes,
    require_shape,
)
from zoo.storage import TensorFiles, quote, quote_key
from zoo.storage.json_files import parse_json
from zoo.storage.typed import to_dataclass

_STATE = ".quant_state.bitsandbytes__"
# the largest JSON text that says how a weight is stored
_MOST_BYTES = 10_000
_MOST_IN_A_BLOCK = 65_536
# bytes of the numbers that codes may be stored as: uint8, float16, float32
_BYTES_OF_STORAGE = (1, 2, 4)


@dataclasses.dataclass(frozen=True)
class BitsAndBytes:
    """What `quantization_config` says; keys of `Any` tell how a program computes, not what the weights are."""

    quant_method: Literal["bitsandbytes"]
    load_in_4bit: bool = False
    load_in_8bit: bool = False
    _load_in_4bit: Any = None
    _load_in_8bit: Any = None
    bnb_4bit_quant_type: Literal["nf4", "fp4"] = "fp4"
    bnb_4bit_use_double_quant: bool = False
    bnb_4bit_quant_storage: Any = None
    bnb_4bit_compute_dtype: Any = None
    llm_int8_threshold: Any = None
    llm_int8_skip_modules: Sequence[str] | None = None
    llm_int8_enable_fp32_cpu_offload: Any = None
    llm_int8_has_fp16_weight: Literal[False] = False


@dataclasses.dataclass(frozen=True)
class _State:
    """What a file says of one weight in 4 bits."""

    quant_type: Literal["nf4", "fp4"]
    blocksize: int
    dtype: Literal["float16", "bfloat16", "float32"]
    shape: list[int]
    nested_blocksize: int | None = None
    nested_dtype: Literal["float32"] | None = None
    nested_offset: float | None = None


def find_bitsandbytes(files: TensorFiles, settings: BitsAndBytes) -> dict[str, Packed]:
    """Returns the weights in 4 and in 8 bits by name.

    Args:
        files: Tensors. In 4 bits `name.weight` holds two numbers of a table in each byte, the higher half first,
            `name.weight.quant_map` the table, `name.weight.absmax` the scale of each block, themselves numbers of a
            table where scales are quantized, too, and `name.weight.quant_state.bitsandbytes__nf4` the shape, as JSON.
            In 8 bits `name.SCB` `(outputs,)` holds the largest absolute value of each row of `name.weight`.
        settings: What the configuration says.

    Raises:
        ValueError: If tensors do not fit.

    Reference:
        Dettmers et al. 2023, "QLoRA: Efficient Finetuning of Quantized LLMs", section 3; Dettmers et al. 2022,
        "LLM.int8(): 8-bit Matrix Multiplication for Transformers at Scale", section 2.1.
    """
    packed = {}
    for kind in ("nf4", "fp4"):
        for name in names_ending(files, _STATE + kind):
            packed[name] = _of_4_bits(files, name, _read_state(files, name + _STATE + kind))
    for name in names_ending(files, ".SCB"):
        weight = f"{name}.weight"
        outputs, inputs = require_axes(files, weight, 2) if weight in files.shapes else (0, 0)
        require_shape(files, weight, (outputs, inputs))
        require_shape(files, f"{name}.SCB", (outputs,))
        parts = {"integers": weight, "largest": f"{name}.SCB"}
        if f"{name}.weight_format" in files.shapes:
            parts["layout"] = f"{name}.weight_format"
        packed[weight] = Packed((outputs, inputs), parts, _unpack_8_bits)
    return packed


def _read_state(files: TensorFiles, name: str) -> _State:
    where = f"{files.file_of(name)}: {quote_key(name)}"
    (length,) = require_axes(files, name, 1)
    if length > _MOST_BYTES:
        raise ValueError(f"{where} must have at most {_MOST_BYTES} bytes, got {length}.")
    text = np.asarray(files.get(name))
    require_dtypes(where, text, ("uint8",))
    state = to_dataclass(_State, parse_json(text.tobytes(), where), where)
    for key, size in (("blocksize", state.blocksize), ("nested_blocksize", state.nested_blocksize)):
        if size is not None and not 1 <= size <= _MOST_IN_A_BLOCK:
            raise ValueError(f"{where}.{key} must be from 1 to {_MOST_IN_A_BLOCK}, got {size}.")
    if not state.shape or min(state.shape) < 1 or len(state.shape) > 8:
        raise ValueError(f"{where}.shape must be one to eight sizes of at least 1, got {quote(state.shape)}.")
    return state


def _of_4_bits(files: TensorFiles, name: str, state: _State) -> Packed:
    if name not in files.shapes:
        raise ValueError(f"{files.source} lacks {quote_key(name)}, whose {_STATE[1:]}{state.quant_type} is there.")
    count = math.prod(state.shape)
    blocks = -(-count // state.blocksize)
    _require_bytes(name, state, math.prod(files.shapes[name]), _BYTES_OF_STORAGE)
    parts = {"codes": name, "scales": f"{name}.absmax", "table": f"{name}.quant_map"}
    require_shape(files, parts["scales"], (blocks,))
    require_shape(files, parts["table"], (16,))
    if state.nested_blocksize is not None:
        parts |= {"nested_scales": f"{name}.nested_absmax", "nested_table": f"{name}.nested_quant_map"}
        require_shape(files, parts["nested_scales"], (-(-blocks // state.nested_blocksize),))
        require_shape(files, parts["nested_table"], (256,))
    unpack = functools.partial(_unpack_4_bits, name=name, state=state)
    return Packed(tuple(state.shape), parts, unpack, (f"{name}{_STATE}{state.quant_type}",))


def _require_bytes(name: str, state: _State, stored: int, sizes: tuple[int, ...]) -> None:
    """Checks that so many stored numbers, of one of these sizes, are the bytes of a weight."""
    needed = -(-math.prod(state.shape) // 2)
    if needed not in [stored * size for size in sizes]:
        raise ValueError(f"{name} must have {needed} bytes for shape {quote(state.shape)}, got {stored} numbers.")


def _unpack_4_bits(
    codes: np.ndarray,
    scales: np.ndarray,
    table: np.ndarray,
    nested_scales: np.ndarray | None = None,
    nested_table: np.ndarray | None = None,
    *,
    name: str,
    state: _State,
) -> np.ndarray:
    count = math.prod(state.shape)
    # the bytes may be stored as other numbers, which some programs can send to other devices
    codes = np.ascontiguousarray(codes).reshape(-1).view("uint8")
    _require_bytes(name, state, codes.size, (1,))
    if nested_table is not None and nested_scales is not None:
        require_dtypes(f"{name}.absmax", scales, ("uint8",))
        factors = np.repeat(numbers_of(f"{name}.nested_absmax", nested_scales), state.nested_blocksize or 1)
        scales = numbers_of(f"{name}.nested_quant_map", nested_table)[scales] * factors[: scales.size]
        scales += np.float32(state.nested_offset or 0.0)
    else:
        scales = numbers_of(f"{name}.absmax", scales)
    pairs = np.stack([codes >> 4, codes & 15], axis=-1).reshape(-1)
    pairs = np.pad(pairs[:count], (0, scales.size * state.blocksize - count))
    numbers = numbers_of(f"{name}.quant_map", table)[pairs].reshape(scales.size, state.blocksize)
    numbers *= scales[:, None]
    # what the package gives, it gives in the precision that the weight had
    dtype = ml_dtypes.bfloat16 if state.dtype == "bfloat16" else state.dtype
    return numbers.reshape(-1)[:count].reshape(state.shape).astype(dtype).astype("float32")


def _unpack_8_bits(integers: np.ndarray, largest: np.ndarray, layout: np.ndarray | None = None) -> np.ndarray:
    require_dtypes("weights in 8 bits", integers, ("int8",))
    if layout is not None and layout.any():
        raise ValueError(f"weight_format must be 0 (rows), got {layout.reshape(-1)[0]}.")
    return integers.astype("float32") * (numbers_of("SCB", largest)[:, None] / 127)
