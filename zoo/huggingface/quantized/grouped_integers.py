"""Weights of GPTQ and AWQ: integers of a few bits, of which groups of inputs share a scale and a zero point."""

import dataclasses
import functools
from collections.abc import Callable
from typing import Any, Literal

import numpy as np

from zoo.huggingface.quantized.packed import (
    Packed,
    names_ending,
    numbers_of,
    require_axes,
    require_dtypes,
    require_shape,
    unpack_integers,
)
from zoo.storage import TensorFiles

# which of eight outputs each four bits of a word of AWQ belong to
_ORDER_OF_AWQ = (0, 2, 4, 6, 1, 3, 5, 7)


@dataclasses.dataclass(frozen=True)
class GPTQ:
    """What `quantization_config` says of weights of GPTQ; keys of `Any` tell how they were found, not what they are."""

    quant_method: Literal["gptq"]
    bits: Literal[2, 3, 4, 8]
    # files of before there was a second one have no name of a form
    checkpoint_format: Literal["gptq", "gptq_v2"] | None = None
    format: Literal["gptq", "gptq_v2"] | None = None
    is_marlin_format: Literal[False] = False
    # settings of single modules
    dynamic: dict[str, Any] | None = None
    group_size: Any = None
    desc_act: Any = None
    sym: Any = None
    act_group_aware: Any = None
    static_groups: Any = None
    true_sequential: Any = None
    damp_percent: Any = None
    damp_auto_increment: Any = None
    dataset: Any = None
    tokenizer: Any = None
    lm_head: Any = None
    meta: Any = None
    backend: Any = None
    pack_dtype: Literal["int32"] | None = None
    batch_size: Any = None
    block_name_to_quantize: Any = None
    module_name_preceding_first_block: Any = None
    modules_in_block_to_quantize: Any = None
    cache_block_outputs: Any = None
    max_input_length: Any = None
    model_seqlen: Any = None
    pad_token_id: Any = None
    model_name_or_path: Any = None
    model_file_base_name: Any = None
    use_cuda_fp16: Any = None
    use_exllama: Any = None
    disable_exllama: Any = None
    exllama_config: Any = None


@dataclasses.dataclass(frozen=True)
class AWQ:
    """What `quantization_config` says of weights of AWQ; keys of `Any` tell how they were found, not what they are."""

    quant_method: Literal["awq"]
    bits: Literal[4] = 4
    version: Literal["gemm", "GEMM"] = "gemm"
    format: Literal["gemm", "GEMM"] = "gemm"
    group_size: Any = None
    zero_point: Any = None
    backend: Any = None
    modules_to_not_convert: Any = None
    do_fuse: Any = None
    fuse_max_seq_len: Any = None
    modules_to_fuse: Any = None
    exllama_config: Any = None


def find_gptq(files: TensorFiles, settings: GPTQ) -> dict[str, Packed]:
    """Returns the weights of GPTQ by name.

    Args:
        files: Tensors, of which `name.qweight` `(bits * inputs / 32, outputs)` packs the integers along the inputs,
            `name.qzeros` `(groups, bits * outputs / 32)` the zero points, `name.scales` is `(groups, outputs)`, and
            `name.g_idx` `(inputs,)` says which group each input is in; without it they follow one another.
        settings: What the configuration says.

    Raises:
        ValueError: If tensors do not fit, or modules have settings of their own.

    Reference:
        Frantar et al. 2023, "GPTQ: Accurate Post-Training Quantization for Generative Pre-trained Transformers"; the
        form of the files is that of AutoGPTQ.
    """
    if settings.dynamic:
        raise ValueError(f"quantization_config.dynamic must be null or empty, got {len(settings.dynamic)} entries.")
    # the first form has zero points less 1
    less = 0 if "gptq_v2" in (settings.checkpoint_format, settings.format) else 1
    unpack = functools.partial(_unpack_gptq, bits=settings.bits, less=less)
    return _find(files, settings.bits, words_along_inputs=True, unpack=unpack)


def find_awq(files: TensorFiles, settings: AWQ) -> dict[str, Packed]:
    """Returns the weights of AWQ by name.

    Args:
        files: Tensors as GPTQ has them, where `name.qweight` `(inputs, outputs / 8)` packs along the outputs.
        settings: What the configuration says.

    Raises:
        ValueError: If tensors do not fit.

    Reference:
        Lin et al. 2024, "AWQ: Activation-aware Weight Quantization for On-Device LLM Compression and Acceleration"; the
        form of the files is AutoAWQ's "gemm".
    """
    return _find(files, 4, words_along_inputs=False, unpack=_unpack_awq)


def _find(files: TensorFiles, bits: int, words_along_inputs: bool, unpack: Callable[..., Any]) -> dict[str, Packed]:
    packed = {}
    for name in names_ending(files, ".qweight"):
        rows, columns = require_axes(files, f"{name}.qweight", 2)
        inputs, outputs = (rows * 32 // bits, columns) if words_along_inputs else (rows, columns * 32 // bits)
        if outputs * bits % 32:
            raise ValueError(
                f"{name}.qweight must have outputs that fill words of 32 bits, got {outputs} of {bits} bits."
            )
        parts = {role: f"{name}.{tensor}" for role, tensor in (("integers", "qweight"), ("scales", "scales"))}
        groups = require_axes(files, parts["scales"], 2)[0] if parts["scales"] in files.shapes else 1
        require_shape(files, parts["scales"], (groups, outputs))
        parts["zeros"] = f"{name}.qzeros"
        require_shape(files, parts["zeros"], (groups, outputs * bits // 32))
        if f"{name}.g_idx" in files.shapes:
            parts["group_of"] = f"{name}.g_idx"
            require_shape(files, parts["group_of"], (inputs,))
        elif inputs % groups:
            raise ValueError(f"{name}.scales must have groups of equal sizes of {inputs} inputs, got {groups} groups.")
        packed[f"{name}.weight"] = Packed((outputs, inputs), parts, unpack)
    return packed


def _unpack_gptq(
    integers: np.ndarray,
    scales: np.ndarray,
    zeros: np.ndarray,
    group_of: np.ndarray | None = None,
    *,
    bits: int,
    less: int,
) -> np.ndarray:
    values = unpack_integers(integers, bits)
    points = unpack_integers(np.ascontiguousarray(zeros.T), bits).T
    return _weight(values, scales, (points + np.uint8(less)) & np.uint8(2**bits - 1), group_of)


def _unpack_awq(
    integers: np.ndarray, scales: np.ndarray, zeros: np.ndarray, group_of: np.ndarray | None = None
) -> np.ndarray:
    values, points = (_unpack_words_of_awq(words) for words in (integers, zeros))
    return _weight(values, scales, points, group_of)


def _unpack_words_of_awq(words: np.ndarray) -> np.ndarray:
    require_dtypes("packed integers", words, ("int32", "uint32"))
    shifts = 4 * np.argsort(_ORDER_OF_AWQ).astype("uint32")
    integers = (np.ascontiguousarray(words).view("uint32")[..., None] >> shifts).astype("uint8") & np.uint8(15)
    return integers.reshape(len(words), -1)


def _weight(values: np.ndarray, scales: np.ndarray, points: np.ndarray, group_of: np.ndarray | None) -> np.ndarray:
    """`(outputs, inputs)` from integers `(inputs, outputs)`, scales and zero points `(groups, outputs)`."""
    scales = numbers_of("scales", scales)
    if group_of is None:
        group_of = np.repeat(np.arange(len(scales)), len(values) // len(scales))
    require_dtypes("g_idx", group_of, ("int32", "int64"))
    if group_of.min() < 0 or group_of.max() >= len(scales):
        raise ValueError(
            f"g_idx must name groups from 0 to {len(scales) - 1}, got {group_of.min()} to {group_of.max()}."
        )
    weight = values.astype("float32")
    weight -= points[group_of]
    weight *= scales[group_of]
    return weight.T
