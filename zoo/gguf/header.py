"""What the header of a GGUF file says: metadata by key, and where each tensor is. Everything is checked on the way."""

from __future__ import annotations

import dataclasses
import math
import re
import struct
from pathlib import Path
from typing import Any, BinaryIO

import numpy as np

from zoo.gguf.types import sizes_of_type
from zoo.storage import quote

MAGIC = b"GGUF"
VERSIONS = (2, 3)
_ALIGNMENT = "general.alignment"
_MOST_DIMENSIONS, _MOST_NAME_BYTES, _MOST_DEPTH = 4, 1024, 4
# numbers of types of values, with their form; 8 are strings and 9 arrays
_NUMBERS = dict(enumerate("BbHhIif?")) | {10: "Q", 11: "q", 12: "d"}
_STRING, _ARRAY = 8, 9
_PART = re.compile(r"(.*)-(\d{5})-of-(\d{5})\.gguf", re.DOTALL)


@dataclasses.dataclass(frozen=True)
class GGUFTensor:
    """Where a tensor is.

    Args:
        name: Its name.
        file: The file.
        offset: Its first byte in the file.
        size: Number of its bytes.
        kind: Number of its type, see `gguf.GGMLQuantizationType`.
        shape: Its shape, in the order of NumPy.
    """

    name: str
    file: Path
    offset: int
    size: int
    kind: int
    shape: tuple[int, ...]


@dataclasses.dataclass(frozen=True)
class GGUFHeader:
    """What a file, or the first one of several parts, says.

    Args:
        path: The file.
        metadata: Values by key; arrays are lists, or NumPy arrays where they are of numbers.
        tensors: Tensors of all parts by name.
    """

    path: Path
    metadata: dict[str, Any]
    tensors: dict[str, GGUFTensor]

    def get(self, key: str, kind: type | tuple[type, ...], default: Any = None) -> Any:
        """Returns a value of the metadata.

        Args:
            key: Its key.
            kind: Its type, or several.
            default: What a missing key means.

        Raises:
            ValueError: If it has another type.
        """
        value = self.metadata.get(key, default)
        if value is not None and (not isinstance(value, kind) or (isinstance(value, bool) and kind is int)):
            raise ValueError(f"{self.path}: {key} must be of type {kind}, got {quote(value)}.")
        return value

    def require(self, key: str, kind: type | tuple[type, ...]) -> Any:
        """Returns a value of the metadata that must be there.

        Raises:
            ValueError: If it is missing or has another type.
        """
        if key not in self.metadata:
            raise ValueError(f"{self.path}: its metadata have no {key}.")
        return self.get(key, kind)


def is_gguf(path: Path) -> bool:
    """Returns whether a path is a file that begins as GGUF files do.

    Args:
        path: The path.
    """
    if not path.is_file():
        return False
    with open(path, "rb") as file:
        return file.read(4) == MAGIC


def read_gguf(path: Path) -> GGUFHeader:
    """Returns the header of a file, and of the other parts if it is the first of several.

    Args:
        path: The file, `x.gguf` or `x-00001-of-00003.gguf`.

    Raises:
        ValueError: If the file is damaged, of another version or byte order, or no first part; the message names it.
        FileNotFoundError: If a part is missing.

    Reference:
        https://github.com/ggml-org/ggml/blob/master/docs/gguf.md (format).
    """
    metadata, tensors = _read_part(path)
    count, number = metadata.get("split.count", 1), metadata.get("split.no", 0)
    found = _PART.fullmatch(path.name)
    if number != 0:
        raise ValueError(f"{path}: it is part {number + 1} of {count}; give the first one.")
    if count != 1 and (found is None or (int(found[2]), int(found[3])) != (1, count)):
        raise ValueError(f"{path}: the first of {count} parts must end with -00001-of-{count:05d}.gguf.")
    for part in range(2, count + 1 if found else 2):
        other = path.with_name(f"{found[1]}-{part:05d}-of-{count:05d}.gguf")
        for name, tensor in _read_part(other)[1].items():
            if name in tensors:
                raise ValueError(f"{other}: {quote(name)} is in {tensors[name].file}, too.")
            tensors[name] = tensor
    return GGUFHeader(path, metadata, tensors)


def _read_part(path: Path) -> tuple[dict[str, Any], dict[str, GGUFTensor]]:
    if not path.is_file():
        raise FileNotFoundError(f"There is no file {path}.")
    with open(path, "rb") as file:
        return _Parser(path, file).read()


class _Parser:
    """Reads a header from beginning to end. No count is trusted before the file is known to have room for it."""

    def __init__(self, path: Path, file: BinaryIO) -> None:
        self.path, self.file = path, file
        self.size = path.stat().st_size

    def read(self) -> tuple[dict[str, Any], dict[str, GGUFTensor]]:
        if self._bytes(4, "the first four bytes") != MAGIC:
            raise self._error("it must begin with GGUF")
        version = self._number("I", "version")
        if version not in VERSIONS:
            hint = ", which is that of a big-endian machine" if version & 0xFFFF == 0 else ""
            raise self._error(f"version must be one of {VERSIONS}, got {version}{hint}")
        tensor_count, value_count = self._number("Q", "tensor_count"), self._number("Q", "metadata_kv_count")
        self._check_room("tensor_count", tensor_count, 24)
        self._check_room("metadata_kv_count", value_count, 13)
        metadata: dict[str, Any] = {}
        for index in range(value_count):
            key = self._string(f"key {index}")
            if not key or key in metadata:
                raise self._error(f"key {index} must be a name of its own, got {quote(key)}")
            metadata[key] = self._value(self._number("I", f"the type of {quote(key)}"), quote(key), 0)
        found = [self._tensor(index) for index in range(tensor_count)]
        alignment = metadata.get(_ALIGNMENT, 32)
        if not isinstance(alignment, int) or alignment < 1 or alignment % 8 or alignment > 2**20:
            raise self._error(f"{_ALIGNMENT} must be a multiple of 8 up to {2**20:,}, got {quote(alignment)}")
        start = -(-self.file.tell() // alignment) * alignment
        tensors: dict[str, GGUFTensor] = {}
        end = 0
        for name, shape, kind, offset in sorted(found, key=lambda entry: entry[3]):
            size = self._bytes_of(name, shape, kind)
            if name in tensors:
                raise self._error(f"tensor {quote(name)} must be there once")
            if offset % alignment or offset < end or start + offset + size > self.size:
                raise self._error(
                    f"tensor {quote(name)} must be {size:,} bytes at a multiple of {alignment} from {end:,} up to "
                    f"{self.size - start:,}, got offset {offset:,}"
                )
            end = offset + size
            tensors[name] = GGUFTensor(name, self.path, start + offset, size, kind, shape)
        return metadata, tensors

    def _tensor(self, index: int) -> tuple[str, tuple[int, ...], int, int]:
        name = self._string(f"the name of tensor {index}")
        dimensions = self._number("I", f"the dimensions of {quote(name)}")
        if not 1 <= dimensions <= _MOST_DIMENSIONS:
            raise self._error(f"{quote(name)} must have 1 to {_MOST_DIMENSIONS} dimensions, got {dimensions}")
        sizes = [self._number("Q", f"the shape of {quote(name)}") for _ in range(dimensions)]
        kind, offset = self._number("I", f"the type of {quote(name)}"), self._number("Q", f"the place of {quote(name)}")
        return name, tuple(reversed(sizes)), kind, offset

    def _bytes_of(self, name: str, shape: tuple[int, ...], kind: int) -> int:
        sizes = sizes_of_type(kind)
        if sizes is None:
            raise self._error(f"the type of tensor {quote(name)} is none that the package gguf knows, got {kind}")
        block, block_bytes = sizes
        if 0 in shape or shape[-1] % block:
            raise self._error(f"tensor {quote(name)} must have rows of a multiple of {block} numbers, got {shape}")
        return math.prod(shape) // block * block_bytes

    def _value(self, kind: int, key: str, depth: int) -> Any:
        if kind in _NUMBERS:
            return self._number(_NUMBERS[kind], key)
        if kind == _STRING:
            return self._string(key)
        if kind != _ARRAY or depth >= _MOST_DEPTH:
            raise self._error(f"{key} must have a type from 0 to 12, got {kind}")
        kind, count = self._number("I", key), self._number("Q", key)
        if kind in _NUMBERS:
            dtype = np.dtype(_NUMBERS[kind]).newbyteorder("<")
            self._check_room(key, count, dtype.itemsize)
            return np.frombuffer(self._bytes(count * dtype.itemsize, key), dtype)
        self._check_room(key, count, 8)
        return [self._value(kind, key, depth + 1) for _ in range(count)]

    def _number(self, form: str, what: str) -> Any:
        return struct.unpack("<" + form, self._bytes(struct.calcsize("<" + form), what))[0]

    def _string(self, what: str) -> str:
        length = self._number("Q", what)
        self._check_room(what, length, 1)
        content = self._bytes(length, what)
        # tokens of bytes that are no text of their own are spelled out, see the tokenizer
        return content.decode("utf-8", "surrogateescape")

    def _check_room(self, what: str, count: int, least: int) -> None:
        room = self.size - self.file.tell()
        if count * least > room:
            raise self._error(f"{what} must fit the {room:,} bytes that are left, got {count:,}")

    def _bytes(self, count: int, what: str) -> bytes:
        content = self.file.read(count)
        if len(content) != count:
            raise self._error(f"it ends in the middle of {what}")
        return content

    def _error(self, what: str) -> ValueError:
        return ValueError(f"{self.path}: {what}.")
