"""Weights in safetensors files: written completely or not at all, checked variable by variable when read."""

import dataclasses
import json
import math
import os
import re
import struct
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import ml_dtypes
import numpy as np
import safetensors

from zoo.storage.errors import quote, quote_key
from zoo.storage.files import write_bytes
from zoo.storage.json_files import parse_json, require_object
from zoo.storage.processes import is_first_process, whole_value
from zoo.storage.typed import require_type, to_dataclass

_DTYPE_NAMES = {
    "bool": "BOOL",
    "uint8": "U8",
    "int8": "I8",
    "uint16": "U16",
    "int16": "I16",
    "float16": "F16",
    "bfloat16": "BF16",
    "uint32": "U32",
    "int32": "I32",
    "float8_e4m3fn": "F8_E4M3",
    "float8_e5m2": "F8_E5M2",
    "float32": "F32",
    "uint64": "U64",
    "int64": "I64",
    "float64": "F64",
}

_NUMPY_DTYPES = {
    name: np.dtype(getattr(ml_dtypes, dtype, dtype)).newbyteorder("<") for dtype, name in _DTYPE_NAMES.items()
}
_DTYPE_BYTES = {name: dtype.itemsize for name, dtype in _NUMPY_DTYPES.items()}
_MOST_LINES = 20
# of the text that Git LFS has in the place of a large file
_START_OF_POINTER = b"version "
_MOST_HEADER_BYTES = 100_000_000
_MOST_TENSORS = 100_000
_ENTRY = ["data_offsets", "dtype", "shape"]


def write_tensors(path: Path, tensors: Mapping[str, object], metadata: Mapping[str, str] | None = None) -> None:
    """Writes a safetensors file, one tensor at a time, so that there is never a second copy of all weights.

    Args:
        path: File to write. Of several processes the first one writes it, but all must call this function.
        tensors: NumPy arrays, backend tensors or Keras variables by name.
        metadata: Strings for the header.

    Raises:
        OSError: If the disk is full or the file cannot be written.
        ValueError: If the format does not support a dtype.

    Example:

    >>> write_tensors(Path("weights.safetensors"), {"kernel": layer.kernel})

    Reference:
        https://huggingface.co/docs/safetensors (format).
    """
    header: dict[str, object] = {"__metadata__": dict(metadata)} if metadata else {}
    position = 0
    for name, tensor in tensors.items():
        dtype = dtype_name(tensor)
        if dtype not in _DTYPE_NAMES:
            raise ValueError(f"The dtype of {name!r} must be one of {', '.join(_DTYPE_NAMES)}, got {dtype}.")
        end = position + int(np.prod(tensor.shape, dtype=np.int64)) * _DTYPE_BYTES[_DTYPE_NAMES[dtype]]
        header[name] = {
            "dtype": _DTYPE_NAMES[dtype],
            "shape": list(tensor.shape),
            "data_offsets": [position, end],
        }
        position = end
    text = json.dumps(header).encode()
    text += b" " * (-len(text) % 8)

    def blocks() -> Iterator[bytes]:
        yield struct.pack("<Q", len(text)) + text
        for tensor in tensors.values():
            yield np.ascontiguousarray(whole_value(tensor)).tobytes()

    if is_first_process():
        write_bytes(path, blocks())
    else:
        # no process need hold the whole of a tensor: the first one is given the parts of the others
        for tensor in tensors.values():
            whole_value(tensor)


def dtype_name(tensor: Any) -> str:
    """Returns the dtype of an array, tensor or variable as Keras writes it, such as "float32"."""
    dtype = tensor.dtype
    return getattr(dtype, "name", None) or str(dtype).removeprefix("torch.")


@dataclasses.dataclass(frozen=True)
class TensorEntry:
    """What the header of a safetensors file says about a tensor.

    Args:
        dtype: Its dtype by the format's name.
        shape: Its shape.
        data_offsets: Its first byte behind the header, and the one after its last.
    """

    dtype: str
    shape: list[int]
    data_offsets: tuple[int, int]


def read_header(path: Path) -> dict[str, TensorEntry]:
    """Returns what a safetensors file says about its tensors, each entry checked.

    Args:
        path: The file.

    Raises:
        ValueError: If the header is damaged: it is no JSON, a dtype is unknown, a shape does not fit its bytes, or
            tensors overlap, leave gaps or end outside the file. The message names file and tensor.
        FileNotFoundError: If there is none.

    Reference:
        https://huggingface.co/docs/safetensors (format).
    """
    if not Path(path).is_file():
        raise FileNotFoundError(f"There is no file {path}.")
    with open(path, "rb") as file:
        size = os.fstat(file.fileno()).st_size
        start = file.read(8)
        if start == _START_OF_POINTER:
            raise ValueError(f"{path} is a pointer of Git LFS, not the weights: fetch them with `git lfs pull`.")
        length = struct.unpack("<Q", start)[0] if len(start) == 8 else None
        if length is None or length > min(size - 8, _MOST_HEADER_BYTES):
            raise ValueError(
                f"{path} is damaged or is no safetensors file: its header would have {length} bytes, the file has "
                f"{size}."
            )
        values = require_object(parse_json(file.read(length), f"{path}: its header"), f"{path}: its header")
    require_type(values.pop("__metadata__", {}), dict[str, str], f"{path}: __metadata__")
    if len(values) > _MOST_TENSORS:
        raise ValueError(f"{path}: its header must name at most {_MOST_TENSORS} tensors, got {len(values)}.")
    entries = {name: _entry(value, f"{path}: {quote_key(name)}") for name, value in values.items()}
    position = 0
    for name, entry in sorted(entries.items(), key=lambda item: item[1].data_offsets):
        shown = f"{path}: {quote_key(name)}"
        if entry.dtype not in _DTYPE_BYTES:
            raise ValueError(f"{shown}.dtype must be one of {sorted(_DTYPE_BYTES)}, got {quote(entry.dtype)}.")
        if len(entry.shape) > 32 or any(side < 0 for side in entry.shape):
            raise ValueError(f"{shown}.shape must be at most 32 numbers of at least 0, got {quote(entry.shape)}.")
        begin, end = entry.data_offsets
        if begin != position or end - begin != math.prod(entry.shape) * _DTYPE_BYTES[entry.dtype]:
            raise ValueError(
                f"{shown}.data_offsets must begin at {position} and span {quote(entry.shape)} of {entry.dtype}, "
                f"got {quote(list(entry.data_offsets))}."
            )
        position = end
    available = size - 8 - length
    if position != available:
        cut = next((name for name, entry in entries.items() if entry.data_offsets[1] > available), None)
        unnamed = f"those from byte {8 + length + position} on belong to no tensor"
        what = unnamed if cut is None else f"{quote_key(cut)} is not all there"
        raise ValueError(
            f"{path} is damaged or is no safetensors file: its tensors have {position} bytes, {available} follow the "
            f"header: {what}."
        )
    return entries


def _entry(value: object, name: str) -> TensorEntry:
    # files have thousands: good ones are told at once
    if isinstance(value, dict) and sorted(value) == _ENTRY:
        dtype, shape, offsets = value["dtype"], value["shape"], value["data_offsets"]
        if type(dtype) is str and type(shape) is list and type(offsets) is list and len(offsets) == 2:
            if all(type(number) is int for number in (*shape, *offsets)):
                return TensorEntry(dtype, shape, tuple(offsets))
    return to_dataclass(TensorEntry, value, name)


@contextmanager
def open_tensors(path: Path) -> Iterator[safetensors.safe_open]:
    """Opens a safetensors file for reading tensor by tensor.

    Raises:
        ValueError: If the file is damaged.
        FileNotFoundError: If the file does not exist.

    Example:

    >>> with open_tensors(Path("weights.safetensors")) as file:
    ...     kernel = file.get_tensor("kernel")
    """
    read_header(path)
    try:
        with safetensors.safe_open(path, framework="np") as file:
            yield file
    except safetensors.SafetensorError as error:
        raise ValueError(f"{path} is damaged or is no safetensors file: {error}") from error


class MappedTensors:
    """The tensors of a safetensors file, each mapped into memory while it is used.

    What was read of a tensor leaves the memory with it: a file takes no more than its largest tensor.

    Args:
        path: The file.

    Attributes:
        shapes: Shape of each tensor.

    Raises:
        ValueError: If the file is damaged.
        FileNotFoundError: If there is none.
    """

    def __init__(self, path: Path) -> None:
        self._entries = read_header(path)
        self._file = open(path, "rb")
        length = struct.unpack("<Q", self._file.read(8))[0]
        self._start = 8 + length
        end = max((entry.data_offsets[1] for entry in self._entries.values()), default=0)
        if os.fstat(self._file.fileno()).st_size != self._start + end:
            self._file.close()
            raise ValueError(f"{path} was changed while it was read.")
        self.shapes: dict[str, tuple[int, ...]] = {name: tuple(entry.shape) for name, entry in self._entries.items()}

    def get(self, name: str) -> np.ndarray:
        """Returns a tensor, a view of the file."""
        entry = self._entries[name]
        dtype = _NUMPY_DTYPES[entry.dtype]
        if 0 in entry.shape:
            return np.empty(entry.shape, dtype)
        offset = self._start + entry.data_offsets[0]
        return np.memmap(self._file, dtype, "r", offset, tuple(entry.shape) or (1,)).reshape(entry.shape)

    def close(self) -> None:
        """Closes the file; tensors that are still used stay there."""
        self._file.close()


def name_variables(variables: Iterable[Any], prefix: str = "") -> dict[str, object]:
    """Returns variables by name: their paths, with a number if several have the same path.

    Args:
        variables: Keras variables.
        prefix: Put before each name.

    Returns:
        The variables by name, in their order.

    Example:

    >>> name_variables(model.variables, prefix="model/")   # {"model/dense/kernel": ...}
    """
    seen: Counter[str] = Counter()
    named = {}
    for variable in variables:
        seen[variable.path] += 1
        number = seen[variable.path]
        named[f"{prefix}{variable.path}" + (f"#{number}" if number > 1 else "")] = variable
    return named


def _without_automatic_numbers(names: Iterable[str]) -> dict[str, str]:
    """Names without the numbers that Keras counts up within a process (`dense_3`), told apart by their order."""
    seen: Counter[str] = Counter()
    result = {}
    for name in names:
        plain = re.sub(r"_\d+(?=[/_#]|$)", "", re.sub(r"#\d+$", "", name))
        seen[plain] += 1
        result[f"{plain}#{seen[plain]}"] = name
    return result


def match_variables(path: Path, named: Mapping[str, object], prefix: str = "") -> dict[str, str]:
    """Returns the name of the tensor in a file for each variable, and checks that none is left over on either side.

    Names are compared exactly first. If they differ, the numbers that Keras adds to names within a process are ignored,
    and the order decides among equal names.

    Args:
        path: Safetensors file.
        named: Keras variables by name.
        prefix: Only tensors whose names begin with this prefix are used.

    Returns:
        The names of the tensors by the names of the variables.

    Raises:
        ValueError: If variables are missing on either side, or differ in shape or dtype. The message lists them.

    Example:

    >>> match_variables(Path("weights.safetensors"), name_variables(model.variables))
    """
    with open_tensors(path) as file:
        stored = {
            name: (tuple(file.get_slice(name).get_shape()), file.get_slice(name).get_dtype())
            for name in file.offset_keys()
            if name.startswith(prefix)
        }
    ours, theirs = {name: name for name in named}, {name: name for name in stored}
    if ours.keys() != theirs.keys():
        ours, theirs = _without_automatic_numbers(named), _without_automatic_numbers(stored)
    problems = []
    for key, name in ours.items():
        shape, dtype = tuple(named[name].shape), _DTYPE_NAMES.get(dtype_name(named[name]))
        if key not in theirs:
            problems.append(f"{name} {shape}: in the model, not in the file")
        elif stored[theirs[key]] != (shape, dtype):
            stored_shape, stored_dtype = stored[theirs[key]]
            problems.append(f"{name}: {shape} {dtype} in the model, {stored_shape} {stored_dtype} in the file")
    for key, name in theirs.items():
        if key not in ours:
            problems.append(f"{name} {stored[name][0]}: in the file, not in the model")
    if problems:
        more = len(problems) - _MOST_LINES
        lines = problems[:_MOST_LINES] + ([f"and {more} more"] if more > 0 else [])
        raise ValueError(f"{path} does not fit the model. Variables that differ:\n  " + "\n  ".join(lines))
    return {name: theirs[key] for key, name in ours.items()}


def read_variables(path: Path, named: Mapping[str, object], prefix: str = "") -> None:
    """Loads the values of variables from a file, matched by `match_variables`.

    Args:
        path: Safetensors file.
        named: Keras variables by name.
        prefix: Only tensors whose names begin with this prefix are used.

    Raises:
        ValueError: If file and variables do not fit. No variable is changed then.

    Example:

    >>> read_variables(Path("weights.safetensors"), name_variables(model.variables))
    """
    counterparts = match_variables(path, named, prefix)
    with open_tensors(path) as file:
        for name, variable in named.items():
            variable.assign(file.get_tensor(counterparts[name]))
