"""Rows of tables of text: TSV, CSV and JSON lines, plain or compressed, with the place of each row."""

from __future__ import annotations

import csv
import itertools
import json
import os
import re
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any, NamedTuple

from recipes.common.errors import DataError
from recipes.common.text_lines import EMPTY_LINE, UNDECODABLE, BadLines, OnError, read_lines

TSV_SUFFIXES = (".tsv", ".txt", ".tab")
JSON_SUFFIXES = (".jsonl", ".ndjson", ".json")
SUFFIXES = (*TSV_SUFFIXES, ".csv", *JSON_SUFFIXES)

COLUMNS = "wrong number of columns"
BAD_CSV = "not a row of CSV"
BAD_JSON = "not a JSON object"
MISSING_KEY = "key missing"

# half of a pair that stands for one character, which JSON can write but no text can hold
_SURROGATE = re.compile(r"\\u[dD][89a-fA-F]")


def suffix_of(file: Path) -> str:
    """Returns the end of a file's name that tells its format, without `.gz`.

    Args:
        file: The file.
    """
    return (file.with_suffix("") if file.suffix == ".gz" else file).suffix


class Row(NamedTuple):
    """The values asked for, in their order, and where they stand, `FILE:line`."""

    values: tuple[Any, ...]
    origin: str


class Table:
    """The chosen columns of a file, row by row on every iteration.

    A TSV file (`.tsv`, `.tab`, `.txt`) has no quoting; a CSV file has, on one line each; JSON lines (`.jsonl`,
    `.ndjson`, `.json`) hold an object per line. Each may be gzip-compressed and then end in `.gz`.

    Args:
        file: The file.
        columns: What is read: keys of JSON lines; names of columns where there is a header, else their numbers from 1,
            as text.
        header: Whether the first line of a TSV or CSV file names the columns.
        width: Number of columns of every line of a TSV or CSV file; None for as many as are asked for, or more.
        on_error: "raise" stops at the first bad row, "skip" leaves bad rows out and counts them in `bad_lines`.

    Attributes:
        bad_lines: The rows skipped by the latest iteration, see `recipes.common.text_lines.BadLines`.

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
        header: bool = False,
        width: int | None = None,
        on_error: OnError = "raise",
    ):
        self.file = Path(file)
        suffix = suffix_of(self.file)
        if suffix not in SUFFIXES:
            raise DataError(f"cannot tell the format of {file}: it must end in {', '.join(SUFFIXES)} (or .gz)")
        self._is_json, self._is_csv = suffix in JSON_SUFFIXES, suffix == ".csv"
        if not columns:
            raise DataError(f"no column of {file} is asked for")
        self.columns, self.header, self.width = list(columns), header, width
        self.bad_lines = BadLines(on_error)

    def __iter__(self) -> Iterator[Row]:
        self.bad_lines.clear()
        lines = self._lines()
        first = next(lines, None)
        if first is None:
            raise DataError(f"{self.file} is empty" if not self.bad_lines.total else self._nothing())
        if self._is_json:
            rows = self._json_rows(itertools.chain([first], lines))
        elif self.header:
            rows = self._rows(lines, self._places(self._split(first[0]), first[1]))
        else:
            rows = self._rows(itertools.chain([first], lines), self._numbers())
        count = 0
        for row in rows:
            count += 1
            yield row
        if not count:
            raise DataError(self._nothing())

    def _nothing(self) -> str:
        return f"no row of {self.file} could be read: {self.bad_lines.report()}"

    def _lines(self) -> Iterator[tuple[str, str]]:
        for line in read_lines(self.file):
            if line.text is None:
                self.bad_lines.add(UNDECODABLE, line.origin, line.problem)
            elif not line.text.strip():
                self.bad_lines.add(EMPTY_LINE, line.origin)
            else:
                yield line.text, line.origin

    def _split(self, text: str) -> list[str]:
        return next(csv.reader([text])) if self._is_csv else text.split("\t")

    def _places(self, names: list[str], origin: str) -> list[int]:
        missing = [name for name in self.columns if name not in names]
        if missing:
            raise DataError(f"{origin}: there is no column {missing[0]!r}; the header names {names}")
        return [names.index(name) for name in self.columns]

    def _numbers(self) -> list[int]:
        wrong = [name for name in self.columns if not name.isdecimal() or int(name) < 1]
        if wrong:
            raise DataError(
                f"{self.file} has no header, so its columns have numbers from 1 on; got the name {wrong[0]!r}"
            )
        return [int(name) - 1 for name in self.columns]

    def _rows(self, lines: Iterator[tuple[str, str]], places: list[int]) -> Iterator[Row]:
        for text, origin in lines:
            try:
                values = self._split(text)
            except csv.Error as error:
                self.bad_lines.add(BAD_CSV, origin, str(error))
                continue
            if self.width not in (None, len(values)):
                self.bad_lines.add(COLUMNS, origin, f"{len(values)} instead of {self.width}")
                continue
            if len(values) <= max(places):
                self.bad_lines.add(COLUMNS, origin, f"{len(values)}, needed are {max(places) + 1}")
                continue
            yield Row(tuple(values[place] for place in places), origin)

    def _json_rows(self, lines: Iterator[tuple[str, str]]) -> Iterator[Row]:
        for text, origin in lines:
            try:
                record = json.loads(text)
                if _SURROGATE.search(text):
                    json.dumps(record, ensure_ascii=False).encode("utf-8")
            except ValueError as error:
                self.bad_lines.add(BAD_JSON, origin, str(error))
                continue
            if not isinstance(record, dict):
                self.bad_lines.add(BAD_JSON, origin, f"but a {type(record).__name__}")
                continue
            missing = [key for key in self.columns if key not in record]
            if missing:
                self.bad_lines.add(MISSING_KEY, origin, f"{missing[0]!r}; the line has the keys {sorted(record)}")
                continue
            yield Row(tuple(record[key] for key in self.columns), origin)
