"""The lines of text files, plain or compressed, and where they stand."""

from __future__ import annotations

import gzip
import itertools
import os
import zlib
from collections.abc import Iterator
from pathlib import Path
from typing import BinaryIO, NamedTuple

from recipes.common.errors import BadLines, DataError, shown

UNDECODABLE = "undecodable byte"
EMPTY_LINE = "empty line"

# what a compressed file may become, because a few kilobytes can stand for gigabytes; text shrinks to a tenth
_UNPACKED_BYTES, _UNPACKED_RATIO = 16 << 20, 100
_GZIP_MAGIC = b"\x1f\x8b"


class Line(NamedTuple):
    """A line of a file: its text without line end, or why it has none; `origin` is `FILE:line`.

    Of a line that is not UTF-8 `rest` is what remains with a replacement for each bad byte. `end` is its line end.
    """

    text: str | None
    origin: str
    problem: str | None = None
    rest: str = ""
    end: str = "\n"


def read_lines(path: str | os.PathLike, most_bytes: int | None = None) -> Iterator[Line]:
    """Streams the lines of a UTF-8 text file, plain or gzip-compressed (told by its first bytes, not by its name).

    Only line feeds end a line (with a carriage return before it or not), so that files stay aligned line by line
    whatever other separators the text holds. A byte-order mark at the start is dropped. A line that is not UTF-8
    comes with `text` None and the position of the bad byte in `problem`.

    Args:
        path: The file.
        most_bytes: What a line may have; None for any number.

    Yields:
        `Line`s, one for each line of the file.

    Raises:
        DataError: The file does not exist, cannot be read or is damaged, it unpacks to more than 100 times its size
            (and 16 MiB), or a line is too long.

    Example:

    >>> [line.text for line in read_lines("train.en.gz")][:1]
    ['Two young, White males are outside near many bushes.']
    """
    path = Path(path)
    if "\0" in str(path):
        raise DataError(f"cannot read {str(path)!r}: a name of a file holds no NUL")
    if os.path.exists(path) and not os.path.isfile(path):
        raise DataError(f"cannot read {path}: it is a folder or a device, not a file")
    number = 0
    try:
        with open(path, "rb") as plain:
            compressed = plain.read(2) == _GZIP_MAGIC
        with gzip.open(path) if compressed else open(path, "rb") as stream:
            for number, raw in enumerate(_raw_lines(path, stream, compressed, most_bytes), 1):
                end = "\r\n" if raw.endswith(b"\r\n") else "\n"
                raw = raw.removesuffix(b"\n").removesuffix(b"\r")
                if number == 1:
                    raw = raw.removeprefix(b"\xef\xbb\xbf")
                origin = f"{path}:{number}"
                try:
                    yield Line(raw.decode("utf-8"), origin, end=end)
                except UnicodeDecodeError as error:
                    problem = f"byte {error.start + 1} of the line (0x{raw[error.start]:02x}) is not UTF-8"
                    yield Line(None, f"{origin}:{error.start + 1}", problem, raw.decode("utf-8", "replace"), end)
    except FileNotFoundError as error:
        raise DataError(f"file not found: {path}") from error
    except (EOFError, zlib.error, gzip.BadGzipFile) as error:
        raise DataError(f"{path}: the compressed file is damaged after line {number}: {error}") from error
    except OSError as error:
        raise DataError(f"cannot read {shown(str(path), 300)}: {error.strerror or error}") from error


def filled_lines(path: str | os.PathLike, bad: BadLines) -> Iterator[Line]:
    """Streams the lines of a file that can be decoded and hold something.

    Args:
        path: The file.
        bad: Where the others are noted.
    """
    for line in read_lines(path):
        if line.text is None:
            bad.add(UNDECODABLE, line.origin, line.problem or "")
        elif not line.text.strip():
            bad.add(EMPTY_LINE, line.origin)
        else:
            yield line


def read_line(stream: BinaryIO, most_bytes: int, origin: str) -> bytes:
    """Reads a line of a file, with its line feed.

    Args:
        stream: The file.
        most_bytes: What a line may have.
        origin: Its place, for the error.

    Raises:
        DataError: If it has more, of which no more are read.
    """
    raw = stream.readline(most_bytes + 1)
    if len(raw) > most_bytes:
        raise DataError(f"{origin}: a line has more than {most_bytes:,} bytes")
    return raw


def _raw_lines(path: Path, stream: BinaryIO, compressed: bool, most_bytes: int | None) -> Iterator[bytes]:
    """The lines of a file, with an error before one would fill the memory."""
    if not compressed and most_bytes is None:
        yield from stream
        return
    size = path.stat().st_size
    most = left = max(_UNPACKED_BYTES, _UNPACKED_RATIO * size)
    for number in itertools.count(1):
        raw = stream.readline(left + 1) if most_bytes is None else read_line(stream, most_bytes, f"{path}:{number}")
        left -= len(raw)
        if left < 0 and compressed:
            raise DataError(
                f"{path}:{number}: the compressed file of {size:,} bytes unpacks to more than {most:,}; unpack it if "
                "that is right"
            )
        if not raw:
            return
        yield raw
