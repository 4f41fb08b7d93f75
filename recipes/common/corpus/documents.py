"""The documents of a part of the input, one after the other."""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from typing import Any

from recipes.common.corpus.sources import Part
from recipes.common.data.json_files import objects_of_lines
from recipes.common.data.lines import EMPTY_LINE, UNDECODABLE, Line, read_line, read_lines
from recipes.common.data.records import open_data_set
from recipes.common.data.text_files import MISSING_KEY
from recipes.common.errors import BadLines, DataError, shown
from zoo.extras import import_extra

NOT_TEXT = "not text"
# a paragraph, or a line, that never ends would fill the memory
_MOST_CHARACTERS = 64 << 20
_MOST_BYTES = 4 * _MOST_CHARACTERS
_BLOCK = 1 << 20


class BadRecords(BadLines):
    """The account of records that cannot be read: a place that `lines_of` knows by its byte is named by its line."""

    def add(self, cause: str, origin: str, detail: str = "") -> None:
        super().add(cause, line_place(origin) if self.is_shown(cause) else origin, detail)


def line_place(origin: str) -> str:
    """Returns `FILE:line` for a place `FILE, byte N`, and another place as it is.

    Args:
        origin: The place, of a file that is there.
    """
    found = re.fullmatch(r"(.*), byte (\d+)", origin, re.DOTALL)
    if not found:
        return origin
    left, number = int(found[2]) - 1, 1
    with open(found[1], "rb") as stream:
        while left:
            block = stream.read(min(left, _BLOCK))
            left, number = left - len(block), number + block.count(b"\n")
    return f"{found[1]}:{number}"


def read_documents(part: Part, unit: str, key: str, split: str, bad: BadLines) -> Iterator[str]:
    """Streams the documents of a part.

    Args:
        part: The part.
        unit: What a document of a text file is: "file", "paragraph" (between empty lines) or "line".
        key: The key, or column, of the text in JSON lines, Parquet files and data sets.
        split: Which part of a data set is read.
        bad: Where lines that cannot be read are noted.

    Yields:
        Texts, none of them empty; of a paragraph or line without white space around it.

    Raises:
        DataError: A damaged file, a missing column, a document of more than 64 Mi characters.
    """
    if part.kind == "text":
        lines = (line for line in lines_of(part) if _is_decoded(line, bad))
        yield from _texts_of(lines, unit, part.path)
    else:
        values = _json_values if part.kind == "json_lines" else _parquet_values if part.kind == "parquet" else _rows
        for value, origin in values(part, key, split, bad):
            if not isinstance(value, str):
                bad.add(NOT_TEXT, origin, f"{key} is {shown(value)}")
            elif not value.strip():
                bad.add(EMPTY_LINE, origin)
            else:
                yield value


def lines_of(part: Part) -> Iterator[Line]:
    """Streams the lines of a part of a file.

    Args:
        part: The part. Of a file that is cut, the place of a line is `FILE, byte N`; see `line_place`.
    """
    if part.end is None:
        yield from read_lines(part.path, _MOST_BYTES)
        return
    place = part.start
    with open(part.path, "rb") as stream:
        stream.seek(place)
        while place < part.end:
            origin, begin = f"{part.path}, byte {place + 1}", place
            raw = read_line(stream, _MOST_BYTES, origin)
            place += len(raw)
            if not raw:
                raise DataError(f"{part.path} has become shorter while it was read")
            if not begin:
                raw = raw.removeprefix(b"\xef\xbb\xbf")
            try:
                yield Line(raw.removesuffix(b"\n").removesuffix(b"\r").decode("utf-8"), origin)
            except UnicodeDecodeError as error:
                yield Line(None, origin, f"byte {error.start + 1} of the line (0x{raw[error.start]:02x}) is not UTF-8")


def _is_decoded(line: Line, bad: BadLines) -> bool:
    if line.text is None:
        bad.add(UNDECODABLE, line.origin, line.problem or "")
    return line.text is not None


def _texts_of(lines: Iterable[Line], unit: str, path: str) -> Iterator[str]:
    if unit == "line":
        for line in lines:
            if line.text.strip():
                yield line.text.strip()
        return
    parts: list[str] = []
    size = 0
    for line in lines:
        if unit == "paragraph" and not line.text.strip():
            if parts:
                yield " ".join(parts)
            parts, size = [], 0
            continue
        parts.append(line.text if unit == "file" else " ".join(line.text.split()))
        size += len(line.text) + 1
        if size > _MOST_CHARACTERS:
            raise DataError(
                f"{path}: a {unit} has more than {_MOST_CHARACTERS:,} characters; unit line reads it in lines"
            )
    text = " ".join(parts) if unit == "paragraph" else "\n".join(parts) + "\n"
    if text.strip():
        yield text


def _json_values(part: Part, key: str, split: str, bad: BadLines) -> Iterator[tuple[Any, str]]:
    lines = (line for line in lines_of(part) if _is_decoded(line, bad) and line.text.strip())
    for record, origin in objects_of_lines(lines, bad):
        if key in record:
            yield record[key], origin
        else:
            bad.add(MISSING_KEY, origin, f"{key}; it has {shown(list(record))}")


def _parquet_values(part: Part, key: str, split: str, bad: BadLines) -> Iterator[tuple[Any, str]]:
    names = parquet_columns(part)
    if key not in names:
        raise DataError(f"{part.path} has no column {key!r}; it has {', '.join(names)}")
    for record, origin in parquet_records(part, [key]):
        yield record[key], origin


def parquet_columns(part: Part) -> list[str]:
    """Returns the names of the columns of a Parquet file.

    Args:
        part: A part of it.
    """
    return import_extra("pyarrow.parquet", "corpus").read_schema(part.path).names


def parquet_records(part: Part, columns: Sequence[str] | None = None) -> Iterator[tuple[dict[str, Any], str]]:
    """Streams the records of a row group of a Parquet file with their places.

    Args:
        part: The row group.
        columns: Which columns are read; None for all.

    Raises:
        DataError: If the file is damaged.
    """
    arrow, parquet = import_extra("pyarrow", "corpus"), import_extra("pyarrow.parquet", "corpus")
    row = 0
    try:
        with parquet.ParquetFile(part.path) as file:
            for batch in file.iter_batches(1024, row_groups=[part.start], columns=columns, use_threads=False):
                for record in batch.to_pylist():
                    row += 1
                    yield record, f"{part.path}, row {row} of row group {part.start + 1}"
    except (arrow.ArrowException, OSError, UnicodeDecodeError) as error:
        problem = " ".join(str(error).split())
        raise DataError(f"{part.path}: row group {part.start + 1} is damaged behind row {row}: {problem}") from error


def _rows(part: Part, key: str, split: str, bad: BadLines) -> Iterator[tuple[Any, str]]:
    rows = open_data_set(part.path, split, "input")
    if key not in rows.column_names:
        raise DataError(f"{part.path} has no column {key!r}; it has {', '.join(rows.column_names)}")
    for start in range(part.start, part.end, 1024):
        values = rows[start : min(start + 1024, part.end)][key]
        for number, value in enumerate(values, start + 1):
            yield value, f"{part.path}, row {number}"


def write_documents(path: Path, documents: Iterable[str]) -> int:
    """Writes documents as JSON lines with the key `text`; returns how many.

    Args:
        path: The file.
        documents: The texts.
    """
    count = 0
    with open(path, "w", encoding="utf-8", newline="\n") as stream:
        for text in documents:
            stream.write(json.dumps({"text": text}, ensure_ascii=False) + "\n")
            count += 1
    return count
