"""Text files, plain or compressed: their lines, and the rows of tables (TSV, CSV, JSON lines)."""

from __future__ import annotations

import itertools
import os
import re
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

from recipes.common.data.headers import name_columns
from recipes.common.data.json_files import begins_array, objects_of_array, objects_of_lines
from recipes.common.data.lines import filled_lines, read_lines
from recipes.common.data.tables import Row, csv_cells, tsv_cells
from recipes.common.errors import BadLines, DataError, looks_like_header, shown

JSON_SUFFIXES = (".jsonl", ".ndjson", ".json")
SUFFIXES = (".tsv", ".txt", ".tab", ".csv", *JSON_SUFFIXES)

COLUMNS = "wrong number of columns"
MISSING_KEY = "key missing"

_COLUMN_NUMBER = re.compile("[1-9][0-9]{0,8}")
# rows of a table that are compared with a first one that may be a header
_ROWS_LOOKED_AT = 50


def suffix_of(file: Path) -> str:
    """Returns the end of a file's name that tells its format, without `.gz`.

    Args:
        file: The file.
    """
    return (file.with_suffix("") if file.suffix == ".gz" else file).suffix


def read_table(
    file: str | os.PathLike,
    columns: Sequence[str],
    bad: BadLines,
    *,
    header: bool | None = None,
    width: int | None = None,
    unnamed: Sequence[str] | None = None,
) -> Iterator[Row]:
    """Streams the chosen columns of a file, row by row.

    In CSV a cell in double quotes may hold commas, quotes (doubled) and line breaks. A TSV file (`.tsv`, `.tab`,
    `.txt`) may be quoted likewise, see `recipes.common.data.tables.tsv_cells`. JSON lines (`.jsonl`, `.ndjson`,
    `.json`) hold an object per line; a `.json` file may be one array of objects instead. Each may be gzip-compressed
    and then end in `.gz`.

    Args:
        file: The file.
        columns: What is read: keys of JSON lines; names of columns where there is a header, or their numbers from 1,
            as text.
        bad: Where bad rows are noted.
        header: Whether the first row of a TSV or CSV file names the columns. None: where columns are asked for by
            name. With numbers there is no header, with an error where the first row looks like one.
        width: Number of columns of every row of a TSV or CSV file; None for that of the header, or of the first row
            that has the columns asked for.
        unnamed: What is read in the place of `columns` where the header names none of them; None for an error.

    Yields:
        `Row`s.

    Raises:
        DataError: Unknown suffix, a missing column, a bad row, a file without a row that can be read, with its place.

    Example:

    >>> next(read_table("sst2.tsv", ["1", "2"], BadLines("raise"))).values
    ('a stirring , funny and finally transporting film', '1')
    """
    path, skipped, count = Path(file), bad.total, 0
    suffix = suffix_of(path)
    if suffix not in SUFFIXES:
        raise DataError(f"cannot tell the format of {str(file)!r}: it must end in {', '.join(SUFFIXES)} (or .gz)")
    if not columns:
        raise DataError(f"no column of {file} is asked for")
    if suffix in JSON_SUFFIXES:
        rows = _json_rows(path, columns, bad)
    else:
        cells = csv_cells(path, ",", bad) if suffix == ".csv" else tsv_cells(path, bad)
        rows = _chosen_cells(path, cells, columns, bad, header, width, unnamed)
    for row in rows:
        count += 1
        yield row
    _require_rows(path, count, skipped, bad)


def read_objects(file: str | os.PathLike, bad: BadLines) -> Iterator[tuple[dict[str, Any], str]]:
    """Streams the objects of a JSON-lines file, or of a `.json` file that is one array, with their places.

    Args:
        file: The file, perhaps gzip-compressed: `.jsonl`, `.ndjson` or `.json`, with `.gz` or not.
        bad: Where bad lines are noted.

    Yields:
        Objects and where they stand, `FILE:line`.

    Raises:
        DataError: Another suffix, a bad line, an array that is broken, a file without an object.
    """
    path, skipped, count = Path(file), bad.total, 0
    if suffix_of(path) not in JSON_SUFFIXES:
        raise DataError(f"{str(file)!r} must be a file of JSON, and end in {', '.join(JSON_SUFFIXES)} (or .gz)")
    for entry in _json_objects(path, bad):
        count += 1
        yield entry
    _require_rows(path, count, skipped, bad)


def _require_rows(path: Path, count: int, skipped: int, bad: BadLines) -> None:
    if count:
        return
    if bad.total > skipped:
        raise DataError(f"{path} has no row to read: {bad.report()}")
    is_empty = not any(line.text is None or line.text.strip() for line in read_lines(path))
    raise DataError(f"{path} is empty" if is_empty else f"{path} has no rows, only a header or an empty array")


def _chosen_cells(
    path: Path,
    rows: Iterator[Row],
    columns: Sequence[str],
    bad: BadLines,
    header: bool | None,
    width: int | None,
    unnamed: Sequence[str] | None,
) -> Iterator[Row]:
    if header is None and not all(map(_COLUMN_NUMBER.fullmatch, columns)):
        header = True
    if header:
        first = next(rows, None)
        if first is None:
            return
        if unnamed is not None and {name.strip() for name in first.values}.isdisjoint(columns):
            columns = unnamed
        places = _named_places(columns, first)
        width = width or len(first.values)
    else:
        named = [name for name in columns if not _COLUMN_NUMBER.fullmatch(name)]
        if named:
            raise DataError(
                f"{path} has no header, so its columns have numbers from 1 on, got the name {named[0]!r}; header true "
                "takes the first row as names"
            )
        places = [int(name) - 1 for name in columns]
    rows = _of_one_width(rows, places, width, bad)
    if header is None:
        some = list(itertools.islice(rows, _ROWS_LOOKED_AT))
        chosen = [[row.values[place] for place in places] for row in some]
        if chosen and name_columns(chosen[0], chosen[1:]):
            raise looks_like_header(chosen[0], some[0].origin)
        rows = itertools.chain(some, rows)
    for cells, origin in rows:
        yield Row(tuple(cells[place] for place in places), origin)


def _of_one_width(rows: Iterator[Row], places: Sequence[int], width: int | None, bad: BadLines) -> Iterator[Row]:
    """The rows with as many cells as `width` says, or the first row that has all places."""
    for row in rows:
        found = len(row.values)
        if width not in (None, found):
            bad.add(COLUMNS, row.origin, f"{found} instead of {width}")
        elif found <= max(places):
            bad.add(COLUMNS, row.origin, f"{found}, needed are {max(places) + 1}")
        else:
            width = found
            yield row


def _named_places(columns: Sequence[str], header: Row) -> list[int]:
    """The places of columns: by name, or by number where the header has no such name."""
    names = [name.strip() for name in header.values]
    places = []
    for name in columns:
        if names.count(name) > 1:
            raise DataError(f"{header.origin}: the header names the column {name!r} {names.count(name)} times")
        if name in names:
            places.append(names.index(name))
        elif _COLUMN_NUMBER.fullmatch(name) and int(name) <= len(names):
            places.append(int(name) - 1)
        else:
            raise DataError(
                f"{header.origin}: there is no column {name!r}; the header names {shown(names, 300)}. "
                "Columns of a table without a header have numbers, from 1 on"
            )
    return places


def _json_rows(path: Path, keys: Sequence[str], bad: BadLines) -> Iterator[Row]:
    for record, origin in _json_objects(path, bad):
        missing = [key for key in keys if key not in record]
        if missing:
            known = shown(sorted(record), 300)
            bad.add(MISSING_KEY, origin, f"{missing[0]!r}; the line has the keys {known}")
        else:
            yield Row(tuple(record[key] for key in keys), origin)


def _json_objects(path: Path, bad: BadLines) -> Iterator[tuple[dict[str, Any], str]]:
    # in JSON lines an array is a line that is no object
    if suffix_of(path) == ".json" and begins_array(read_lines(path)):
        return objects_of_array(path, read_lines(path), bad)
    return objects_of_lines(filled_lines(path, bad), bad)
