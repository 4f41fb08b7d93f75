"""Parallel text: pairs of a source and a target from two files, a TSV file or JSON lines."""

from __future__ import annotations

import itertools
import json
import os
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from typing import NamedTuple

from recipes.common.errors import DataError
from recipes.common.text_lines import BadLines, OnError, read_lines

_TSV_SUFFIXES = (".tsv", ".txt", ".tab")
_JSON_SUFFIXES = (".jsonl", ".ndjson", ".json")

EMPTY_LINE = "empty line"
UNDECODABLE = "undecodable byte"
COLUMNS = "wrong number of columns"
BAD_JSON = "not a JSON object"
MISSING_KEY = "key missing or not a text"


class TextPair(NamedTuple):
    """A source text, its target text and where they stand, `FILE:line`."""

    source: str
    target: str
    origin: str


class Splits(NamedTuple):
    """The parts of a data set, each to be iterated over as often as needed; `test` is None where there is none."""

    train: Iterable[TextPair]
    validation: Iterable[TextPair]
    test: Iterable[TextPair] | None


class ParallelText:
    """Pairs of texts, streamed from files on every iteration.

    Two files are aligned line by line. One file is TSV (`.tsv`, `.tab`, `.txt`) or JSON lines (`.jsonl`, `.ndjson`,
    `.json`); each may be gzip-compressed and then end in `.gz`. White space around a text is not part of it.

    Args:
        files: Two paths (source, target) or one.
        columns: Number of columns of every line of a TSV file; the source is the first, the target the second.
        keys: Keys of the source and the target in JSON lines.
        on_error: "raise" stops at the first bad line; "skip" leaves bad lines out and accounts for them in
            `bad_lines`. An empty file, a damaged file and two files of unequal length raise with both.

    Attributes:
        bad_lines: The lines skipped by the latest iteration (see `recipes.common.text_lines.BadLines`).
        pairs_read: The number of pairs that the latest iteration gave.

    Raises:
        DataError: Wrong number of files, unknown suffix; while iterating: anything wrong with the files, with the
            position `FILE:line` (and the byte, where it is not UTF-8).
        ValueError: Another argument is out of range.

    Example:

    >>> pairs = ParallelText(["train.en.gz", "train.de.gz"], on_error="skip")
    >>> next(iter(pairs)).origin
    'train.en.gz:1'
    """

    def __init__(
        self,
        files: Sequence[str | os.PathLike],
        *,
        columns: int = 2,
        keys: tuple[str, str] = ("source", "target"),
        on_error: OnError = "raise",
    ):
        self.files = [Path(file) for file in files]
        if columns < 2:
            raise ValueError(f"columns must be at least 2; got {columns}")
        if len(keys) != 2:
            raise ValueError(f"keys must be those of the source and the target; got {keys!r}")
        self.columns, self.keys = columns, tuple(keys)
        self.bad_lines = BadLines(on_error)
        self.pairs_read = 0
        if len(self.files) == 2:
            self._read = self._read_two_files
        elif len(self.files) == 1:
            self._read = self._reader_of_one_file(self.files[0])
        else:
            names = [str(file) for file in self.files]
            raise DataError(f"parallel text is two files (source, target) or one TSV or JSON lines file; got {names}")

    def _reader_of_one_file(self, file: Path):
        suffix = (file.with_suffix("") if file.suffix == ".gz" else file).suffix
        if suffix in _TSV_SUFFIXES:
            return self._read_tsv
        if suffix in _JSON_SUFFIXES:
            return self._read_json_lines
        known = ", ".join(_TSV_SUFFIXES + _JSON_SUFFIXES)
        raise DataError(f"cannot tell the format of {file}: one file of parallel text must end in {known} (or .gz)")

    def __iter__(self) -> Iterator[TextPair]:
        self.bad_lines.clear()
        self.pairs_read = 0
        for pair in self._read():
            self.pairs_read += 1
            yield pair
        if not self.pairs_read:
            names = ", ".join(str(file) for file in self.files)
            raise DataError(f"no pair of texts in {names}: {self.bad_lines.report()}")

    def _read_two_files(self) -> Iterator[TextPair]:
        source_file, target_file = self.files
        number_of_sources = number_of_targets = 0
        for source, target in itertools.zip_longest(read_lines(source_file), read_lines(target_file)):
            number_of_sources += source is not None
            number_of_targets += target is not None
            if source is None or target is None:
                # The files no longer belong together line by line: only count on, for the error.
                continue
            undecodable = next((line for line in (source, target) if line.text is None), None)
            if undecodable is not None:
                self.bad_lines.add(UNDECODABLE, undecodable.origin, undecodable.problem)
                continue
            yield from self._pair(source.text, target.text, source.origin, target.origin)
        for file, number in ((source_file, number_of_sources), (target_file, number_of_targets)):
            if not number:
                raise DataError(f"{file} is empty")
        if number_of_sources != number_of_targets:
            raise DataError(
                f"the files are of unequal length: {source_file} has {number_of_sources} lines, "
                f"{target_file} has {number_of_targets}"
            )

    def _read_tsv(self) -> Iterator[TextPair]:
        for text, origin in self._decoded_lines():
            columns = text.split("\t")
            if not text.strip():
                self.bad_lines.add(EMPTY_LINE, origin)
            elif len(columns) != self.columns:
                self.bad_lines.add(COLUMNS, origin, f"{len(columns)} instead of {self.columns}")
            else:
                yield from self._pair(columns[0], columns[1], origin, origin)

    def _read_json_lines(self) -> Iterator[TextPair]:
        for text, origin in self._decoded_lines():
            if not text.strip():
                self.bad_lines.add(EMPTY_LINE, origin)
                continue
            try:
                record = json.loads(text)
            except json.JSONDecodeError as error:
                self.bad_lines.add(BAD_JSON, origin, str(error))
                continue
            if not isinstance(record, dict):
                self.bad_lines.add(BAD_JSON, origin, f"but a {type(record).__name__}")
                continue
            wrong = [key for key in self.keys if not isinstance(record.get(key), str)]
            if wrong:
                self.bad_lines.add(MISSING_KEY, origin, f"{wrong[0]!r}; the line has the keys {sorted(record)}")
                continue
            yield from self._pair(record[self.keys[0]], record[self.keys[1]], origin, origin)

    def _decoded_lines(self) -> Iterator[tuple[str, str]]:
        (file,) = self.files
        empty = True
        for line in read_lines(file):
            empty = False
            if line.text is None:
                self.bad_lines.add(UNDECODABLE, line.origin, line.problem)
            else:
                yield line.text, line.origin
        if empty:
            raise DataError(f"{file} is empty")

    def _pair(self, source: str, target: str, source_origin: str, target_origin: str) -> Iterator[TextPair]:
        source, target = source.strip(), target.strip()
        if source and target:
            yield TextPair(source, target, source_origin)
        else:
            self.bad_lines.add(EMPTY_LINE, target_origin if source else source_origin)
