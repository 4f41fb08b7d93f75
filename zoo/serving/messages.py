"""Messages between the server and the processes that hold models: frames of MessagePack, without pickle."""

from __future__ import annotations

import asyncio
import socket
import struct
from typing import Any

import msgpack
import numpy as np

# A frame is its length, unsigned and with the first byte first, and so many bytes.
_LENGTH = struct.Struct(">Q")
# Longest frame that is read, in bytes: what claims to be longer is damaged.
MOST_BYTES = 2**31
_ARRAY, _STRINGS = 1, 2


def pack(message: dict[str, Any]) -> bytes:
    """Returns the frame of a message.

    Args:
        message: Strings, bytes, numbers, None, lists, dictionaries with strings as keys, and arrays of numbers, bools
            or bytes.

    Raises:
        TypeError: If it holds anything else.

    Example:

    >>> unpack(pack({"ids": np.array([1, 2])})[8:])
    {'ids': array([1, 2])}
    """
    body = msgpack.packb(message, default=_encoded, use_bin_type=True)
    return _LENGTH.pack(len(body)) + body


def unpack(body: bytes) -> dict[str, Any]:
    """Returns the message of a frame without its length."""
    return msgpack.unpackb(body, ext_hook=_decoded, raw=False, strict_map_key=True)


def receive(connection: socket.socket) -> dict[str, Any] | None:
    """Returns the next message from a socket, None at its end; waits for it."""
    head = _exactly(connection, _LENGTH.size)
    body = None if head is None else _exactly(connection, _length_of(head))
    return None if body is None else unpack(body)


async def receive_from(reader: asyncio.StreamReader) -> dict[str, Any] | None:
    """Returns the next message from a stream, None at its end."""
    try:
        return unpack(await reader.readexactly(_length_of(await reader.readexactly(_LENGTH.size))))
    except (asyncio.IncompleteReadError, ConnectionError):
        return None


def _length_of(head: bytes) -> int:
    (length,) = _LENGTH.unpack(head)
    if length > MOST_BYTES:
        raise ValueError(f"A frame must have at most {MOST_BYTES} bytes, got {length}.")
    return length


def _exactly(connection: socket.socket, count: int) -> bytes | None:
    parts = []
    while count:
        try:
            part = connection.recv(min(count, 2**20))
        except ConnectionError:
            return None
        if not part:
            return None
        parts.append(part)
        count -= len(part)
    return b"".join(parts)


def _encoded(value: Any) -> msgpack.ExtType:
    if isinstance(value, np.generic):
        value = np.asarray(value)
    if not isinstance(value, np.ndarray):
        raise TypeError(f"A message must hold plain values and arrays, got a {type(value).__name__}.")
    if value.dtype.kind == "O":
        return msgpack.ExtType(_STRINGS, msgpack.packb([list(value.shape), value.ravel().tolist()], use_bin_type=True))
    if value.dtype.kind not in "biuf":
        raise TypeError(f"An array of a message must hold numbers, bools or bytes, got {value.dtype}.")
    content = [list(value.shape), value.dtype.str, np.ascontiguousarray(value).tobytes()]
    return msgpack.ExtType(_ARRAY, msgpack.packb(content, use_bin_type=True))


def _decoded(code: int, data: bytes) -> Any:
    if code == _STRINGS:
        shape, values = msgpack.unpackb(data, raw=False)
        array = np.empty(len(values), "object")
        array[:] = values
        return array.reshape(shape)
    if code == _ARRAY:
        shape, dtype, content = msgpack.unpackb(data, raw=False)
        return np.frombuffer(content, dtype).reshape(shape)
    raise ValueError(f"A message must hold the types {_ARRAY} and {_STRINGS} alone, got {code}.")
