"""Tensors of the Open Inference Protocol: in JSON, or as bytes behind the JSON of a request or an answer."""

from __future__ import annotations

import json
import math
import struct
from collections.abc import Iterator, Mapping, Sequence
from typing import Annotated, Any

import numpy as np
from pydantic import Field

from zoo.serving.problems import Problem
from zoo.serving.request_fields import Fields

# Names of types, and those of arrays. Texts are arrays of objects.
TYPES = {
    **{"BOOL": "bool", "BYTES": "object", "FP16": "float16", "FP32": "float32", "FP64": "float64"},
    **{f"{kind}INT{bits}": f"{kind.lower()}int{bits}" for kind in ("", "U") for bits in (8, 16, 32, 64)},
}
_NAMES = {dtype: name for name, dtype in TYPES.items()} | {"string": "BYTES"}
# Bytes of the length of each text.
_LENGTH = struct.Struct("<I")


class TensorParameters(Fields):
    """How many bytes behind the JSON a tensor takes."""

    binary_data_size: Annotated[int, Field(ge=0)] | None = None


class InputTensor(Fields):
    """An input of a request; its data are nested lists, or one list in the order of rows."""

    name: str
    # as many axes as any endpoint has, and some more
    shape: list[Annotated[int, Field(ge=0, le=2**31 - 1)]] = Field(max_length=8)
    datatype: str
    parameters: TensorParameters = TensorParameters()
    data: list[Any] | None = None


def type_of(dtype: str) -> str:
    """Returns the name of a type, as the protocol has it.

    Args:
        dtype: Name of a type of TensorFlow or NumPy.

    Example:

    >>> type_of("float32")
    'FP32'
    """
    return _NAMES.get(dtype, dtype.upper())


def read_tensors(inputs: Sequence[InputTensor], behind: bytes) -> dict[str, np.ndarray]:
    """Returns the inputs of a request as arrays.

    Args:
        inputs: The inputs, as the JSON describes them.
        behind: What follows the JSON: the content of all inputs with a `binary_data_size`, in their order.

    Raises:
        Problem: If one has another type or size than it says, or two have the same name.

    Example:

    >>> read_tensors([InputTensor(name="texts", shape=[1], datatype="BYTES", data=["a"])], b"")
    {'texts': array([b'a'], dtype=object)}
    """
    arrays: dict[str, np.ndarray] = {}
    place = 0
    for number, tensor in enumerate(inputs):
        where, size = f"inputs[{number}]", tensor.parameters.binary_data_size
        if tensor.datatype not in TYPES:
            raise Problem(422, f"{where}.datatype must be one of {', '.join(sorted(TYPES))}.")
        if tensor.name in arrays:
            raise Problem(422, f"{where}.name must be another one than those before it.")
        if (size is None) == (tensor.data is None):
            raise Problem(422, f"{where} must have either data or parameters.binary_data_size.")
        if size is None:
            values = _from_json(tensor, where)
        else:
            if place + size > len(behind):
                raise Problem(422, f"{where}.parameters.binary_data_size must be at most what follows the JSON.")
            values = _from_bytes(tensor.datatype, behind[place : place + size], where)
            place += size
        if len(values) != math.prod(tensor.shape):
            raise Problem(422, f"{where} must have as many values as its shape says, not {len(values)}.")
        try:
            arrays[tensor.name] = values.reshape(tensor.shape)
        except ValueError as error:  # without a value, axes may be too large together
            raise Problem(422, f"{where}.shape must be one that an array can have.") from error
    if place != len(behind):
        raise Problem(422, "What follows the JSON must be the content of inputs with a binary_data_size.")
    return arrays


def write_tensors(
    outputs: Mapping[str, np.ndarray], is_binary: Mapping[str, bool]
) -> tuple[list[dict[str, Any]], bytes]:
    """Returns the descriptions of outputs, with their data, and what follows the JSON.

    Args:
        outputs: The outputs.
        is_binary: Of each, whether its content follows the JSON. Texts in JSON are UTF-8.
    """
    described, behind = [], []
    for name, value in outputs.items():
        tensor = {"name": name, "datatype": type_of(value.dtype.name), "shape": list(value.shape)}
        flat = value.ravel()
        if is_binary[name]:
            content = b"".join(_with_lengths(flat)) if flat.dtype == object else flat.tobytes()
            tensor["parameters"] = {"binary_data_size": len(content)}
            behind.append(content)
        elif flat.dtype == object:
            tensor["data"] = [text.decode("utf-8", "replace") for text in flat]
        else:
            tensor["data"] = flat.tolist()
        described.append(tensor)
    return described, b"".join(behind)


def split_body(body: bytes, header: str | None) -> tuple[bytes, bytes]:
    """Returns the JSON of a body, and what follows it.

    Args:
        body: The body.
        header: The header `Inference-Header-Content-Length`: how many bytes the JSON has; None for all.

    Raises:
        Problem: If the header is no such number.
    """
    if header is None:
        return body, b""
    if not (header.isascii() and header.isdigit() and len(header) < 19 and int(header) <= len(body)):
        raise Problem(400, "Inference-Header-Content-Length must be the number of bytes of the JSON in the body.")
    return body[: int(header)], body[int(header) :]


def as_json(content: Mapping[str, Any]) -> bytes:
    """Returns the bytes of the JSON of an answer.

    Raises:
        Problem: If it holds a number that JSON has not.
    """
    try:
        return json.dumps(content, ensure_ascii=False, allow_nan=False, separators=(",", ":")).encode()
    except ValueError as error:
        raise Problem(422, "An output has numbers that JSON lacks, such as infinity: ask for binary data.") from error


def _from_json(tensor: InputTensor, where: str) -> np.ndarray:
    values = list(_flat(tensor.data))
    is_text = tensor.datatype == "BYTES"
    if not all(isinstance(value, str) if is_text else isinstance(value, (int, float)) for value in values):
        raise Problem(422, f"{where}.data must hold {'texts' if is_text else 'numbers'} alone.")
    if is_text:
        values = [value.encode() for value in values]
    dtype = np.dtype(TYPES[tensor.datatype])
    try:
        array = np.array(values, dtype)
    except OverflowError:
        array = None
    if array is None or (dtype.kind in "biu" and array.tolist() != values):
        raise Problem(422, f"{where}.data must hold values of the type {tensor.datatype}.")
    return array


def _flat(values: Any) -> Iterator[Any]:
    for value in values:
        if isinstance(value, list):
            yield from _flat(value)
        else:
            yield value


def _from_bytes(datatype: str, content: bytes, where: str) -> np.ndarray:
    if datatype == "BYTES":
        texts = list(_without_lengths(content, where))
        array = np.empty(len(texts), "object")
        array[:] = texts
        return array
    dtype = np.dtype(TYPES[datatype]).newbyteorder("<")
    if len(content) % dtype.itemsize:
        raise Problem(422, f"{where}.parameters.binary_data_size must be a multiple of {dtype.itemsize}.")
    return np.frombuffer(content, dtype)


def _without_lengths(content: bytes, where: str) -> Iterator[bytes]:
    place = 0
    while place < len(content):
        begin = place + _LENGTH.size
        end = begin + _LENGTH.unpack_from(content, place)[0] if begin <= len(content) else begin
        if end > len(content):
            raise Problem(422, f"{where} must have texts behind their lengths.")
        yield content[begin:end]
        place = end


def _with_lengths(texts: np.ndarray) -> Iterator[bytes]:
    for text in texts:
        yield _LENGTH.pack(len(text))
        yield text
