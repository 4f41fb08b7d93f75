"""The rows of files: tables (TSV, CSV), and records with keys (JSON, Parquet, data sets)."""

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
from recipes.common.data.records import PARQUET, is_data_set, read_records
from recipes.common.data.tables import Row, csv_cells, tsv_cells
from recipes.common.errors import BadLines, DataError, looks_like_header, shown

JSON_SUFFIXES = (".jsonl", ".ndjson", ".json")
SUFFIXES = (".tsv", ".txt", ".tab", ".csv", *JSON_SUFFIXES, PARQUET)

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


def holds_records(file: str | os.PathLike) -> bool:
    """Returns whether the rows of a file have keys: JSON, Parquet, or a data set of the Hugging Face library.

    Args:
        file: The file, or the name of a data set (`recipes.common.data.records.is_data_set`).

    Example:

    >>> holds_records("a.jsonl.gz"), holds_records("hf://datasets/stanfordnlp/imdb"), holds_records("a.tsv")
    (True, True, False)
    """
    return suffix_of(Path(file)) in (*JSON_SUFFIXES, PARQUET) or is_data_set(str(file))


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
    and then end in `.gz`. Parquet files and data sets are read as JSON is.

    Args:
        file: The file.
        columns: What is read: keys of records, of an inner record as `translation.de`; names of columns where there is
            a header, or their numbers from 1, as text.
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
    if suffix not in SUFFIXES and not holds_records(file):
        raise DataError(
            f"cannot tell the format of {str(file)!r}: it must end in {', '.join(SUFFIXES)} (or .gz), or be a data set"
        )
    if not columns:
        raise DataError(f"no column of {file} is asked for")
    if holds_records(file):
        rows = _chosen_values(file, columns, bad)
    else:
        cells = csv_cells(path, ",", bad) if suffix == ".csv" else tsv_cells(path, bad)
        rows = _chosen_cells(path, cells, columns, bad, header, width, unnamed)
    for row in rows:
        count += 1
        yield row
    _require_rows(file, count, skipped, bad)


def read_objects(file: str | os.PathLike, bad: BadLines) -> Iterator[tuple[dict[str, Any], str]]:
    """Streams the records of a file, dicts, with their places.

    Args:
        file: JSON lines (`.jsonl`, `.ndjson`, `.json`), a `.json` file that is one array, both perhaps with `.gz`;
            Parquet; or a data set.
        bad: Where bad lines are noted.

    Yields:
        Records and where they stand, `FILE:line`.

    Raises:
        DataError: Another suffix, a bad line, an array that is broken, a file without a record.
    """
    skipped, count = bad.total, 0
    if not holds_records(file):
        raise DataError(
            f"{str(file)!r} must hold records: it must end in {', '.join(JSON_SUFFIXES)} (or .gz) or {PARQUET}, or be "
            "a data set"
        )
    for entry in _records(file, bad):
        count += 1
        yield entry
    _require_rows(file, count, skipped, bad)


def _require_rows(file: str | os.PathLike, count: int, skipped: int, bad: BadLines) -> None:
    if count:
        return
    if bad.total > skipped:
        raise DataError(f"{file} has no row to read: {bad.report()}")
    if suffix_of(Path(file)) == PARQUET or is_data_set(str(file)):
        raise DataError(f"{file} has no rows")
    is_empty = not any(line.text is None or line.text.strip() for line in read_lines(file))
    raise DataError(f"{file} is empty" if is_empty else f"{file} has no rows, only a header or an empty array")


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


def _chosen_values(file: str | os.PathLike, keys: Sequence[str], bad: BadLines) -> Iterator[Row]:
    for record, origin in _records(file, bad):
        values = []
        for key in keys:
            try:
                values.append(record[key] if key in record else _inner_value(record, key))
            except KeyError:
                known = shown(sorted(record), 300)
                bad.add(MISSING_KEY, origin, f"{key!r}; the line has the keys {known}")
                break
        else:
            yield Row(tuple(values), origin)


def _inner_value(record: Any, key: str) -> Any:
    for part in key.split("."):
        if not isinstance(record, dict):
            raise KeyError(key)
        record = record[part]
    return record


def _records(file: str | os.PathLike, bad: BadLines) -> Iterator[tuple[dict[str, Any], str]]:
    path = Path(file)
    # a data set may have any name
    if suffix_of(path) not in JSON_SUFFIXES or is_data_set(str(file)):
        return read_records(str(file))
    # in JSON lines an array is a line that is no object
    if suffix_of(path) == ".json" and begins_array(read_lines(path)):
        return objects_of_array(path, read_lines(path), bad)
    return objects_of_lines(filled_lines(path, bad), bad)
