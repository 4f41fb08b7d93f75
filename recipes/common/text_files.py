"""Text files, plain or compressed: lines, rows of tables (TSV, CSV, JSON lines), and what to do with bad ones."""

from __future__ import annotations

import csv
import gzip
import itertools
import json
import os
import re
import zlib
from collections import Counter
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any, BinaryIO, Literal, NamedTuple

from recipes.common.errors import DataError

OnError = Literal["raise", "skip"]

TSV_SUFFIXES = (".tsv", ".txt", ".tab")
JSON_SUFFIXES = (".jsonl", ".ndjson", ".json")
SUFFIXES = (*TSV_SUFFIXES, ".csv", *JSON_SUFFIXES)

UNDECODABLE = "undecodable byte"
EMPTY_LINE = "empty line"
COLUMNS = "wrong number of columns"
BAD_CSV = "not a row of CSV"
BAD_JSON = "not a JSON object"
MISSING_KEY = "key missing"

# What a compressed file may become, because a few kilobytes of it can stand for any number of gigabytes. Text shrinks
# to a third or a tenth.
_UNPACKED_BYTES = 16 << 20
_UNPACKED_RATIO = 100

_GZIP_MAGIC = b"\x1f\x8b"
_LISTED = 10
_SHOWN = 60

# the number of a column
_NUMBER = re.compile("[1-9][0-9]{0,8}")

# half of a pair that stands for one character, which JSON can write but no text can hold
_SURROGATE = re.compile(r"\\u[dD][89a-fA-F]")

# what people call the columns of a table of texts; a row of nothing else is the header
_COLUMN_NAMES = frozenset(
    "abstract answer article category class comment content document emotion en english de fr es german french spanish "
    "gold highlights hypothesis id index input intent label labels language lang line message name output polarity "
    "premise question query rating reference response review score sent sentence sentence1 sentence2 sentiment "
    "similarity source src stars summary tag tags target text text1 text2 text_a text_b tgt title topic "
    "translation tweet utterance".split()
)


class Line(NamedTuple):
    """A line of a file: its text without line end, or why it has none; `origin` is `FILE:line`.

    Of a line that is not UTF-8 `rest` is what remains with a replacement for each bad byte.
    """

    text: str | None
    origin: str
    problem: str | None = None
    rest: str = ""


class Row(NamedTuple):
    """The values asked for, in their order, and where they stand, `FILE:line`."""

    values: tuple[Any, ...]
    origin: str


class BadLines:
    """The policy for bad lines and their account: raise at the first, or skip, count and report each by its line.

    Args:
        on_error: "raise" or "skip".

    Attributes:
        counts: Cause to number of lines skipped.
        origins: Cause to the origins `FILE:line` of the first ten.

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
            raise ValueError(f"on_error must be 'raise' or 'skip', got {on_error!r}")
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
        self._note(cause, 1, [origin])

    def extend(self, other: BadLines) -> None:
        """Take over the account of another reader, whose bad lines were all skipped.

        Args:
            other: Its account.
        """
        for cause, count in other.counts.items():
            self._note(cause, count, other.origins[cause])

    def _note(self, cause: str, count: int, origins: list[str]) -> None:
        self.counts[cause] += count
        known = self.origins.setdefault(cause, [])
        known += origins[: _LISTED - len(known)]

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
            listed = ", ".join(self.origins[cause]) + (", ..." if count > _LISTED else "")
            causes.append(f"{cause} {count} ({listed})")
        return f"skipped {self.total}: {'; '.join(causes)}"


def shown(value: Any, most: int = _SHOWN) -> str:
    """A value as error messages show it: its `repr`, cut when long.

    Args:
        value: Any value.
        most: Characters to show.
    """
    text = repr(value)
    return text if len(text) <= most else f"{text[:most]}... ({len(text)} characters)"


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
        DataError: The file does not exist, cannot be read or is damaged, or it unpacks to more than 100 times its size
            (and 16 MiB).

    Example:

    >>> [line.text for line in read_lines("train.en.gz")][:1]
    ['Two young, White males are outside near many bushes.']
    """
    path = Path(path)
    if "\0" in str(path):
        raise DataError(f"cannot read {str(path)!r}: a name of a file holds no NUL")
    number = 0
    try:
        with open(path, "rb") as plain:
            compressed = plain.read(2) == _GZIP_MAGIC
        with gzip.open(path) if compressed else open(path, "rb") as stream:
            for number, raw in enumerate(_raw_lines(path, stream) if compressed else stream, 1):
                raw = raw.removesuffix(b"\n").removesuffix(b"\r")
                if number == 1:
                    raw = raw.removeprefix(b"\xef\xbb\xbf")
                origin = f"{path}:{number}"
                try:
                    yield Line(raw.decode("utf-8"), origin)
                except UnicodeDecodeError as error:
                    problem = f"byte {error.start + 1} of the line (0x{raw[error.start]:02x}) is not UTF-8"
                    yield Line(None, f"{origin}:{error.start + 1}", problem, raw.decode("utf-8", "replace"))
    except FileNotFoundError as error:
        raise DataError(f"file not found: {path}") from error
    except (EOFError, zlib.error, gzip.BadGzipFile) as error:
        raise DataError(f"{path}: the compressed file is damaged after line {number}: {error}") from error
    except OSError as error:
        raise DataError(f"cannot read {path}: {error}") from error


def _raw_lines(path: Path, stream: BinaryIO) -> Iterator[bytes]:
    """The lines of a compressed file, with an error before one would fill the memory."""
    size = path.stat().st_size
    most = left = max(_UNPACKED_BYTES, _UNPACKED_RATIO * size)
    for number in itertools.count(1):
        raw = stream.readline(left + 1)
        left -= len(raw)
        if left < 0:
            raise DataError(
                f"{path}:{number}: the compressed file of {size:,} bytes unpacks to more than {most:,}; unpack it if "
                "that is right"
            )
        if not raw:
            return
        yield raw


def suffix_of(file: Path) -> str:
    """Returns the end of a file's name that tells its format, without `.gz`.

    Args:
        file: The file.
    """
    return (file.with_suffix("") if file.suffix == ".gz" else file).suffix


class Table:
    """The chosen columns of a file, row by row on every iteration.

    A TSV file (`.tsv`, `.tab`, `.txt`) has no quoting. A CSV file has: a cell in double quotes may hold commas, quotes
    (doubled) and line breaks. JSON lines (`.jsonl`, `.ndjson`, `.json`) hold an object per line. Each may be
    gzip-compressed and then end in `.gz`.

    Args:
        file: The file.
        columns: What is read: keys of JSON lines; names of columns where there is a header, or their numbers from 1,
            as text.
        header: Whether the first row of a TSV or CSV file names the columns. None for no header, with an error where
            the first row looks like one.
        width: Number of columns of every row of a TSV or CSV file; None for as many as are asked for, or more.
        on_error: "raise" stops at the first bad row, "skip" leaves bad rows out and counts them in `bad_lines`.

    Attributes:
        bad_lines: The rows skipped by the latest iteration, see `BadLines`.

    Raises:
        DataError: Unknown suffix; while iterating: a missing column, a bad row, an empty file, with its place.

    Example:

    >>> [row.values for row in Table("sst2.tsv", ["1", "2"])][0]
    ('a stirring , funny and finally transporting film', '1')
    """

    def __init__(
        self,
        file: str | os.PathLike,
        columns: Sequence[str],
        *,
        header: bool | None = None,
        width: int | None = None,
        on_error: OnError = "raise",
    ):
        self.file = Path(file)
        suffix = suffix_of(self.file)
        if suffix not in SUFFIXES:
            raise DataError(f"cannot tell the format of {str(file)!r}: it must end in {', '.join(SUFFIXES)} (or .gz)")
        self._is_json, self._is_csv = suffix in JSON_SUFFIXES, suffix == ".csv"
        if not columns:
            raise DataError(f"no column of {file} is asked for")
        self.columns, self.header, self.width = list(columns), header, width
        self.bad_lines = BadLines(on_error)

    def __iter__(self) -> Iterator[Row]:
        self.bad_lines.clear()
        count = 0
        for row in self._json_rows() if self._is_json else self._rows(self._split()):
            count += 1
            yield row
        if not count:
            what = "is empty" if not self.bad_lines.total else f"has no row to read: {self.bad_lines.report()}"
            raise DataError(f"{self.file} {what}")

    def _lines(self) -> Iterator[Line]:
        """The lines that can be decoded and hold something."""
        for line in read_lines(self.file):
            if line.text is None:
                self.bad_lines.add(UNDECODABLE, line.origin, line.problem or "")
            elif not line.text.strip():
                self.bad_lines.add(EMPTY_LINE, line.origin)
            else:
                yield line

    def _split(self) -> Iterator[Row]:
        """The cells of each row."""
        if self._is_csv:
            return self._split_csv()
        return (Row(tuple(line.text.split("\t")), line.origin) for line in self._lines())

    def _split_csv(self) -> Iterator[Row]:
        undecodable: list[Line] = []

        def texts() -> Iterator[str]:
            for line in read_lines(self.file):
                if line.text is None:
                    undecodable.append(line)
                # the quotes of a bad line still tell where its row ends
                yield (line.rest if line.text is None else line.text) + "\n"

        # not strict, a quote that is never closed would take the rest of the file into one cell
        reader = csv.reader(texts(), strict=True)
        while True:
            start = reader.line_num + 1
            origin, problem, cells = f"{self.file}:{start}", None, None
            try:
                cells = next(reader)
            except StopIteration:
                return
            except csv.Error as error:
                problem = str(error).partition(" - ")[0]
                if reader.line_num > start:
                    problem += f" (in the row of lines {start} to {reader.line_num})"
            if undecodable:
                self.bad_lines.add(UNDECODABLE, undecodable[0].origin, undecodable[0].problem or "")
                undecodable.clear()
            elif problem is not None:
                self.bad_lines.add(BAD_CSV, origin, problem)
            elif not any(cell.strip() for cell in cells) and len(cells) < 2:
                self.bad_lines.add(EMPTY_LINE, origin)
            else:
                yield Row(tuple(cells), origin)

    def _rows(self, rows: Iterator[Row]) -> Iterator[Row]:
        first = next(rows, None)
        if first is None:
            return
        if self.header:
            places = self._places(first)
        else:
            places = self._numbers()
            if self.header is None and max(places) < len(first.values):
                self._refuse_header(tuple(first.values[place] for place in places), first.origin)
            rows = itertools.chain([first], rows)
        for cells, origin in rows:
            if self.width not in (None, len(cells)):
                self.bad_lines.add(COLUMNS, origin, f"{len(cells)} instead of {self.width}")
            elif len(cells) <= max(places):
                self.bad_lines.add(COLUMNS, origin, f"{len(cells)}, needed are {max(places) + 1}")
            else:
                yield Row(tuple(cells[place] for place in places), origin)

    def _places(self, header: Row) -> list[int]:
        """The places of the columns asked for: by name, or by number where the header has no such name."""
        names = [name.strip() for name in header.values]
        places = []
        for name in self.columns:
            if name in names:
                places.append(names.index(name))
            elif _NUMBER.fullmatch(name) and int(name) <= len(names):
                places.append(int(name) - 1)
            else:
                raise DataError(f"{header.origin}: there is no column {name!r}; the header names {shown(names, 300)}")
        return places

    def _numbers(self) -> list[int]:
        wrong = [name for name in self.columns if not _NUMBER.fullmatch(name)]
        if wrong:
            raise DataError(
                f"{self.file} has no header, so its columns have numbers from 1 on, got the name {wrong[0]!r}; "
                "header true takes the first row as names"
            )
        return [int(name) - 1 for name in self.columns]

    def _refuse_header(self, cells: tuple[str, ...], origin: str) -> None:
        if all(cell.strip().casefold() in _COLUMN_NAMES for cell in cells):
            raise looks_like_header(cells, origin)

    def _json_rows(self) -> Iterator[Row]:
        for line in self._lines():
            text, origin = line.text, line.origin
            try:
                record = json.loads(text)
                if _SURROGATE.search(text):
                    json.dumps(record, ensure_ascii=False).encode("utf-8")
            except (ValueError, RecursionError) as error:
                problem = "nested too deeply" if isinstance(error, RecursionError) else str(error)
                self.bad_lines.add(BAD_JSON, origin, problem)
                continue
            if not isinstance(record, dict):
                self.bad_lines.add(BAD_JSON, origin, f"but a {type(record).__name__}")
                continue
            missing = [key for key in self.columns if key not in record]
            if missing:
                keys = shown(sorted(record), 300)
                self.bad_lines.add(MISSING_KEY, origin, f"{missing[0]!r}; the line has the keys {keys}")
                continue
            yield Row(tuple(record[key] for key in self.columns), origin)


def looks_like_header(cells: Sequence[str], origin: str) -> DataError:
    """Returns the error for a first row that is taken as data but names the columns.

    Args:
        cells: What was read from the row.
        origin: Its place.
    """
    return DataError(
        f"{origin}: the first row looks like the names of the columns: {shown(list(cells))}; header true takes it as "
        "names, header false as a row of data"
    )
