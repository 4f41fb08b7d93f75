"""The formats of exports, and what each of them can hold."""

import importlib.util
import math
from typing import Any

import keras

from layers.keras_internals import sublayers

SAVED_MODEL, GGUF, OPENVINO_GENAI = "tf_saved_model", "gguf", "openvino_genai"
# Formats of other runtimes: the extra of setup.cfg that installs them, and the packages that it must have installed.
RUNTIME_FORMATS = {
    "onnx": ("tf2onnx", "onnx", "onnxruntime", "onnxruntime_extensions"),
    "litert": ("ai_edge_litert",),
    "openvino": ("openvino", "nncf"),
}
# Formats of programs that have a tokenizer and a loop of their own, likewise.
PROGRAM_FORMATS = {
    GGUF: ("gguf",),
    OPENVINO_GENAI: ("openvino", "openvino_genai", "openvino_tokenizers", "nncf", "transformers"),
}
FORMATS = (SAVED_MODEL, *RUNTIME_FORMATS, *PROGRAM_FORMATS)
_PACKAGES = {**RUNTIME_FORMATS, **PROGRAM_FORMATS}
WEIGHTS = ("float32", "int8")
# A message of Protocol Buffers, in which TensorFlow hands weights to converters, holds so many bytes.
_MOST_BYTES = 2**31 - 2**24


def require_format(format: Any) -> None:
    """Raises an error if a format is unknown, or cannot be written with this backend or the installed packages.

    Args:
        format: The argument `format` of `export`.

    Raises:
        ValueError: If the format is unknown, or the backend is not TensorFlow.
        ImportError: If packages are missing.
    """
    if format not in FORMATS:
        raise ValueError(f"format must be one of {', '.join(map(repr, FORMATS))}, got {format!r}.")
    what = "A SavedModel" if format == SAVED_MODEL else f"The format {format!r}"
    if format != GGUF and keras.backend.backend() != "tensorflow":
        raise ValueError(
            f"{what} can be written with the TensorFlow backend only, this is {keras.backend.backend()!r}: save "
            "the model with save_to_preset() and load it with KERAS_BACKEND=tensorflow."
        )
    require_packages(what, format)


def require_packages(what: str, format: str) -> None:
    """Raises an ImportError if packages of a format are missing.

    Args:
        what: What needs them, for the error.
        format: The format.
    """
    missing = [name for name in _PACKAGES.get(format, ()) if importlib.util.find_spec(name) is None]
    if missing:
        raise ImportError(f'{what} needs {", ".join(missing)}: pip install "keras-transformer-zoo[{format}]"')


def require_plain_weights(
    model: keras.Model,
    format: str,
    weights: Any,
    allowed: tuple[str, ...] = WEIGHTS,
    most_bytes: int | None = _MOST_BYTES,
) -> None:
    """Raises a ValueError if the weights of a model cannot be written in a format of another runtime.

    Args:
        model: A task or a backbone.
        format: The format.
        weights: The argument `weights` of `export`.
        allowed: What it may be.
        most_bytes: Most bytes of the weights in float32; None for any number.
    """
    if weights not in allowed:
        raise ValueError(f"weights must be one of {', '.join(map(repr, allowed))}, got {weights!r}.")
    require_float32(f"The format {format!r}", model)
    size = sum(4 * math.prod(variable.shape) for variable in model.variables)
    if most_bytes is not None and size > most_bytes:
        raise ValueError(
            f"The format {format!r} holds models of less than 2 GB, this one has {size / 2**30:.1f} GB: a SavedModel "
            "(format='tf_saved_model') has no such limit."
        )


def require_float32(what: str, model: keras.Model) -> None:
    """Raises a ValueError if a model is quantized, or computes in another type than float32.

    Args:
        what: What needs another model, for the error.
        model: A task or a backbone.
    """
    if any(getattr(layer, "quantization_mode", None) for layer in sublayers(model)):
        raise ValueError(
            f"{what} needs a model that is not quantized: its own tool quantizes, with weights='int8'. Load the model "
            "as it was before quantize()."
        )
    if model.compute_dtype != "float32":
        raise ValueError(
            f"{what} needs a model that computes in float32, this one computes in {model.compute_dtype}: load it with "
            "from_preset(..., dtype='float32')."
        )


def refuse(format: str, name: str, error: Exception) -> ValueError:
    """Returns the error for an endpoint that a format cannot hold.

    Args:
        format: The format.
        name: The endpoint.
        error: The error that the converter raised.
    """
    reason = " ".join(str(error).split())[:600] or type(error).__name__
    return ValueError(
        f"The format {format!r} cannot hold the endpoint {name!r} of this model, its converter says: {reason} "
        "A SavedModel (format='tf_saved_model') holds every model."
    )
