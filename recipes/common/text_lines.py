"""Lines of text files, plain or compressed, and what to do with the bad ones."""

from __future__ import annotations

import gzip
import os
import zlib
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Literal, NamedTuple

from recipes.common.errors import DataError

OnError = Literal["raise", "skip"]

UNDECODABLE = "undecodable byte"
EMPTY_LINE = "empty line"

_GZIP_MAGIC = b"\x1f\x8b"
_LISTED = 10


class Line(NamedTuple):
    """A line of a file: its text without line end, or why it has none; `origin` is `FILE:line`."""

    text: str | None
    origin: str
    problem: str | None = None


class BadLines:
    """The policy for bad lines and their account: raise at the first, or skip, count and report each by its line.

    Args:
        on_error: "raise" or "skip".

    Attributes:
        counts: Cause to number of lines skipped.
        origins: Cause to the origins `FILE:line` of all of them.

    Raises:
        ValueError: `on_error` is neither.

    Example:

    >>> bad = BadLines("skip")
    >>> bad.add("empty line", "a.txt:3")
    >>> bad.report()
    'skipped 1: empty line 1 (a.txt:3)'
    """

    def __init__(self, on_error: OnError):
        if on_error not in ("raise", "skip"):
            raise ValueError(f"on_error must be 'raise' or 'skip'; got {on_error!r}")
        self.on_error = on_error
        self.counts: Counter[str] = Counter()
        self.origins: dict[str, list[str]] = {}

    def add(self, cause: str, origin: str, detail: str = "") -> None:
        """Take note of a bad line.

        Args:
            cause: What is wrong; lines are counted by it.
            origin: `FILE:line`.
            detail: More about this line, for the error.

        Raises:
            DataError: With `on_error` "raise".
        """
        if self.on_error == "raise":
            raise DataError(f"{origin}: {cause}{': ' if detail else ''}{detail}; on_error 'skip' leaves such lines out")
        self.counts[cause] += 1
        self.origins.setdefault(cause, []).append(origin)

    def extend(self, other: BadLines) -> None:
        """Take over the account of another reader, whose bad lines were all skipped.

        Args:
            other: Its account.
        """
        for cause, origins in other.origins.items():
            self.counts[cause] += len(origins)
            self.origins.setdefault(cause, []).extend(origins)

    def clear(self) -> None:
        """Forget all lines, for a new pass over the data."""
        self.counts.clear()
        self.origins.clear()

    @property
    def total(self) -> int:
        """The number of lines skipped."""
        return self.counts.total()

    def report(self) -> str:
        """The account in one line: the number of lines by cause, with the first ten origins of each."""
        if not self.total:
            return "skipped 0"
        causes = []
        for cause, count in self.counts.most_common():
            listed = ", ".join(self.origins[cause][:_LISTED]) + (", ..." if count > _LISTED else "")
            causes.append(f"{cause} {count} ({listed})")
        return f"skipped {self.total}: {'; '.join(causes)}"


def read_lines(path: str | os.PathLike) -> Iterator[Line]:
    """Stream the lines of a UTF-8 text file, plain or gzip-compressed (told by its first bytes, not by its name).

    Only line feeds end a line (with a carriage return before it or not), so that files stay aligned line by line
    whatever other separators the text holds. A byte-order mark at the start is dropped. A line that is not UTF-8
    comes with `text` None and the position of the bad byte in `problem`.

    Args:
        path: The file.

    Yields:
        `Line`s, one for each line of the file.

    Raises:
        DataError: The file does not exist, cannot be read or is damaged.

    Example:

    >>> [line.text for line in read_lines("train.en.gz")][:1]
    ['Two young, White males are outside near many bushes.']
    """
    path = Path(path)
    number = 0
    try:
        with open(path, "rb") as plain:
            compressed = plain.read(2) == _GZIP_MAGIC
        with gzip.open(path) if compressed else open(path, "rb") as stream:
            for number, raw in enumerate(stream, 1):
                raw = raw.removesuffix(b"\n").removesuffix(b"\r")
                if number == 1:
                    raw = raw.removeprefix(b"\xef\xbb\xbf")
                origin = f"{path}:{number}"
                try:
                    yield Line(raw.decode("utf-8"), origin)
                except UnicodeDecodeError as error:
                    problem = f"byte {error.start + 1} of the line (0x{raw[error.start]:02x}) is not UTF-8"
                    yield Line(None, f"{origin}:{error.start + 1}", problem)
    except FileNotFoundError as error:
        raise DataError(f"file not found: {path}") from error
    except (EOFError, zlib.error, gzip.BadGzipFile) as error:
        raise DataError(f"{path}: the compressed file is damaged after line {number}: {error}") from error
    except OSError as error:
        raise DataError(f"cannot read {path}: {error}") from error
