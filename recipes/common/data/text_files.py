"""Text files, plain or compressed: their lines, and the rows of tables (TSV, CSV, JSON lines)."""

from __future__ import annotations

import csv
import itertools
import os
import re
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any, NamedTuple

from recipes.common.data.json_files import begins_array, objects_of_array, objects_of_lines
from recipes.common.data.lines import Line, read_lines
from recipes.common.errors import BadLines, DataError, looks_like_header, shown

JSON_SUFFIXES = (".jsonl", ".ndjson", ".json")
SUFFIXES = (".tsv", ".txt", ".tab", ".csv", *JSON_SUFFIXES)

UNDECODABLE = "undecodable byte"
EMPTY_LINE = "empty line"
COLUMNS = "wrong number of columns"
BAD_CSV = "not a row of CSV"
MISSING_KEY = "key missing"

_COLUMN_NUMBER = re.compile("[1-9][0-9]{0,8}")

# what a cell of CSV may hold: documents fit, a quote that is never closed does not fill the memory
_CELL_CHARACTERS = 16 << 20

# the words by which people call the columns of a table of texts; a row of nothing else is the header
_COLUMN_WORDS = frozenset(
    "abstract anchor answer article body categories category class classes comment content description document "
    "emotion emotions en english de fr es genre genres german french spanish gold highlights hypothesis id index "
    "input intent label labels language lang line message name negative output passage polarity positive premise "
    "question query rating reference response review score sent sentence sentiment similarity source src stars "
    "summary tag tags target text tgt title topic topics translation tweet utterance".split()
)
_WORDS_OF_A_NAME = 3


class Row(NamedTuple):
    """The values asked for, in their order, and where they stand, `FILE:line`."""

    values: tuple[Any, ...]
    origin: str


def may_name_a_column(cell: str) -> bool:
    """Returns whether a cell may be the name of a column: a few words, which do not end like a sentence.

    Args:
        cell: The cell.

    Example:

    >>> may_name_a_column("Review Text"), may_name_a_column("Not again!")
    (True, False)
    """
    return (
        len(cell.split()) <= _WORDS_OF_A_NAME and re.fullmatch(r"[^\W\d].*(?<![.!?\u2026])", cell.strip()) is not None
    )


def _names_a_column(cell: str) -> bool:
    """Whether a cell consists of words by which columns are called."""
    words = re.findall(r"[^\W_]+", re.sub(r"(_[ab]|_?[12])$", "", cell.strip().casefold()))
    return 0 < len(words) <= _WORDS_OF_A_NAME and _COLUMN_WORDS.issuperset(words)


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

    A TSV file (`.tsv`, `.tab`, `.txt`) has no quoting. A CSV file has: a cell in double quotes may hold commas, quotes
    (doubled) and line breaks. JSON lines (`.jsonl`, `.ndjson`, `.json`) hold an object per line; a `.json` file may be
    one array of objects instead. Each may be gzip-compressed and then end in `.gz`.

    Args:
        file: The file.
        columns: What is read: keys of JSON lines; names of columns where there is a header, or their numbers from 1,
            as text.
        bad: Where bad rows are noted.
        header: Whether the first row of a TSV or CSV file names the columns. None for no header, with an error where
            the first row looks like one.
        width: Number of columns of every row of a TSV or CSV file; None for as many as are asked for, or more.
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
        tsv = (Row(tuple(line.text.split("\t")), line.origin) for line in _filled_lines(path, bad))
        cells = _csv_cells(path, bad) if suffix == ".csv" else tsv
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
    if not count:
        raise DataError(f"{path} " + ("is empty" if bad.total == skipped else f"has no row to read: {bad.report()}"))


def _filled_lines(path: Path, bad: BadLines) -> Iterator[Line]:
    """The lines that can be decoded and hold something."""
    for line in read_lines(path):
        if line.text is None:
            bad.add(UNDECODABLE, line.origin, line.problem or "")
        elif not line.text.strip():
            bad.add(EMPTY_LINE, line.origin)
        else:
            yield line


def _csv_cells(path: Path, bad: BadLines) -> Iterator[Row]:
    undecodable: list[Line] = []

    def texts() -> Iterator[str]:
        for line in read_lines(path):
            if line.text is None:
                undecodable.append(line)
            # the quotes of a bad line still tell where its row ends
            yield (line.rest if line.text is None else line.text) + "\n"

    csv.field_size_limit(max(csv.field_size_limit(), _CELL_CHARACTERS))
    # not strict, a quote that is never closed would take the rest of the file into one cell
    reader = csv.reader(texts(), strict=True)
    while True:
        start = reader.line_num + 1
        origin, problem, cells = f"{path}:{start}", None, []
        try:
            cells = next(reader)
        except StopIteration:
            return
        except csv.Error as error:
            problem = str(error).partition(" - ")[0]
            if reader.line_num > start:
                problem += f" (in the row of lines {start} to {reader.line_num})"
        bad_lines = undecodable.copy()
        undecodable.clear()
        if problem is not None:
            # where a quote is not closed, nobody knows how many rows these lines are
            for number in range(start, reader.line_num + 1):
                bad.add(BAD_CSV, f"{path}:{number}", problem)
        elif bad_lines:
            bad.add(UNDECODABLE, bad_lines[0].origin, bad_lines[0].problem or "")
        elif not any(cell.strip() for cell in cells) and len(cells) < 2:
            bad.add(EMPTY_LINE, origin)
        else:
            yield Row(tuple(cells), origin)


def _chosen_cells(
    path: Path,
    rows: Iterator[Row],
    columns: Sequence[str],
    bad: BadLines,
    header: bool | None,
    width: int | None,
    unnamed: Sequence[str] | None,
) -> Iterator[Row]:
    first = next(rows, None)
    if first is None:
        return
    if header:
        if unnamed is not None and {name.strip() for name in first.values}.isdisjoint(columns):
            columns = unnamed
        places = _named_places(columns, first)
    else:
        named = [name for name in columns if not _COLUMN_NUMBER.fullmatch(name)]
        if named:
            raise DataError(
                f"{path} has no header, so its columns have numbers from 1 on, got the name {named[0]!r}; header true "
                "takes the first row as names"
            )
        places = [int(name) - 1 for name in columns]
        if header is None and max(places) < len(first.values):
            cells = [first.values[place] for place in places]
            if all(map(_names_a_column, cells)):
                raise looks_like_header(cells, first.origin)
        rows = itertools.chain([first], rows)
    for cells, origin in rows:
        if width not in (None, len(cells)):
            bad.add(COLUMNS, origin, f"{len(cells)} instead of {width}")
        elif len(cells) <= max(places):
            bad.add(COLUMNS, origin, f"{len(cells)}, needed are {max(places) + 1}")
        else:
            yield Row(tuple(cells[place] for place in places), origin)


def _named_places(columns: Sequence[str], header: Row) -> list[int]:
    """The places of columns: by name, or by number where the header has no such name."""
    names = [name.strip() for name in header.values]
    places = []
    for name in columns:
        if name in names:
            places.append(names.index(name))
        elif _COLUMN_NUMBER.fullmatch(name) and int(name) <= len(names):
            places.append(int(name) - 1)
        else:
            raise DataError(f"{header.origin}: there is no column {name!r}; the header names {shown(names, 300)}")
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
    return objects_of_lines(_filled_lines(path, bad), bad)
