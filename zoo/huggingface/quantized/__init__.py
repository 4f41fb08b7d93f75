"""Weights in few bits in directories of the Transformers library, read as numbers by their `quantization_config`."""

from collections.abc import Callable, Mapping
from typing import Any

from zoo.huggingface.quantized.bitsandbytes import BitsAndBytes, find_bitsandbytes
from zoo.huggingface.quantized.compressed_tensors import CompressedTensors, find_compressed
from zoo.huggingface.quantized.float8 import Float8, find_float8
from zoo.huggingface.quantized.grouped_integers import AWQ, GPTQ, find_awq, find_gptq
from zoo.huggingface.quantized.mxfp4 import MXFP4, find_mxfp4
from zoo.huggingface.quantized.packed import unpacked
from zoo.storage import TensorFiles, quote, quote_key, require_type, to_dataclass

KEY = "quantization_config"
# how names of parts of weights end that are no weights themselves
_PACKED = (".qweight", ".weight_packed", ".weight_scale_inv", ".SCB", ".bitsandbytes__nf4", ".bitsandbytes__fp4")
# by name: what the configuration says, and the function that finds such weights
METHODS: dict[str, tuple[type, Callable[[TensorFiles, Any], Mapping[str, Any]]]] = {
    "awq": (AWQ, find_awq),
    "bitsandbytes": (BitsAndBytes, find_bitsandbytes),
    "compressed-tensors": (CompressedTensors, find_compressed),
    "fp8": (Float8, find_float8),
    "gptq": (GPTQ, find_gptq),
    "mxfp4": (MXFP4, find_mxfp4),
}


def dequantized(files: TensorFiles, values: Mapping[str, Any]) -> tuple[TensorFiles, dict[str, Any]]:
    """Returns tensors with numbers in the place of quantized weights, and the configuration of such a model.

    Each weight is unpacked when it is asked for. The inputs of layers are not rounded, whatever the configuration says
    of them.

    Args:
        files: The tensors of a directory.
        values: Content of its `config.json`.

    Raises:
        ValueError: If the method, a key of its settings or a tensor is not supported or does not fit, or if there are
            parts of quantized weights and no settings.

    Example:

    >>> tensors, values = dequantized(files, {"model_type": "llama", "quantization_config": {"quant_method": "fp8"}})
    """
    others = {key: value for key, value in values.items() if key != KEY}
    settings = values.get(KEY)
    if settings is None:
        for name in files.shapes:
            if name.endswith(_PACKED):
                raise ValueError(f"{KEY} is missing, and {quote_key(name)} is a part of a quantized weight.")
        return files, others
    require_type(settings, dict[str, Any], KEY)
    # files from before there were other methods
    older = {"quant_method": "bitsandbytes"} if {"load_in_4bit", "load_in_8bit"} & settings.keys() else {}
    settings = older | settings
    method = settings.get("quant_method")
    if not isinstance(method, str) or method not in METHODS:
        raise ValueError(f"{KEY}.quant_method must be one of {sorted(METHODS)}, got {quote(method)}.")
    kind, find = METHODS[method]
    return unpacked(files, find(files, to_dataclass(kind, settings, f"{KEY} of {method}"))), others


__all__ = ["METHODS", "dequantized"]
