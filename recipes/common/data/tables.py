"""The cells of CSV and TSV files, by the rules of Python's `csv` module."""

from __future__ import annotations

import csv
import re
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple

from recipes.common.data.lines import EMPTY_LINE, UNDECODABLE, Line, filled_lines, read_lines
from recipes.common.errors import BadLines

BAD_CSV = "not a row of CSV"

# what a cell may hold: documents fit, a quote that is never closed does not fill the memory
_CELL_CHARACTERS = 16 << 20
_QUOTED_CELL = re.compile('(?:^|\\t)"')


class Row(NamedTuple):
    """Values and where they stand, `FILE:line`."""

    values: tuple[Any, ...]
    origin: str


def csv_cells(path: Path, delimiter: str, bad: BadLines) -> Iterator[Row]:
    """Streams the rows of a file in which cells in double quotes may hold anything, quotes doubled.

    Args:
        path: The file.
        delimiter: What separates cells.
        bad: Where bad rows are noted.
    """
    undecodable: list[Line] = []

    def texts() -> Iterator[str]:
        for line in read_lines(path):
            if line.text is None:
                undecodable.append(line)
            # the quotes of a bad line still tell where its row ends
            yield (line.rest if line.text is None else line.text) + line.end

    csv.field_size_limit(max(csv.field_size_limit(), _CELL_CHARACTERS))
    # not strict, a quote that is never closed would take the rest of the file into one cell
    reader = csv.reader(texts(), delimiter=delimiter, strict=True)
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


def tsv_cells(path: Path, bad: BadLines) -> Iterator[Row]:
    """Streams the rows of a TSV file; says how double quotes are read, if cells begin with some.

    Such a file is read as CSV is, unless this leaves more malformed rows than to take quotes as characters. A row is
    malformed if it is not of CSV, or has another number of cells than most rows.

    Args:
        path: The file.
        bad: Where bad rows are noted.
    """
    if not any(_QUOTED_CELL.search(line.rest if line.text is None else line.text) for line in read_lines(path)):
        yield from _unquoted_cells(path, bad)
        return
    as_csv, as_characters = BadLines("skip"), BadLines("skip")
    misfits = _misfits(csv_cells(path, "\t", as_csv), as_csv)
    if misfits <= _misfits(_unquoted_cells(path, as_characters), as_characters):
        print(f"{path}: double quotes around cells are read as those of CSV")
        yield from csv_cells(path, "\t", bad)
    else:
        where = f" ({as_csv.origins[BAD_CSV][0]} is none of CSV)" if BAD_CSV in as_csv.origins else ""
        print(f"{path}: double quotes are characters of the texts{where}")
        yield from _unquoted_cells(path, bad)


def _unquoted_cells(path: Path, bad: BadLines) -> Iterator[Row]:
    return (Row(tuple(line.text.split("\t")), line.origin) for line in filled_lines(path, bad))


def _misfits(rows: Iterator[Row], bad: BadLines) -> int:
    """The malformed rows."""
    widths = Counter(len(row.values) for row in rows)
    return bad.total + widths.total() - max(widths.values(), default=0)
