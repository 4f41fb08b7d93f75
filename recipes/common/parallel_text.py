"""Parallel text: pairs of a source and a target from two files, a TSV file or JSON lines."""

from __future__ import annotations

import itertools
import os
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from typing import NamedTuple

from recipes.common.errors import ConfigError, DataError
from recipes.common.table import JSON_SUFFIXES, Table, suffix_of
from recipes.common.text_lines import EMPTY_LINE, UNDECODABLE, BadLines, OnError, read_lines

NOT_A_TEXT = "not a text"


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

    Two files are aligned line by line. One file is TSV, CSV or JSON lines, as `Table` takes it. Each may be
    gzip-compressed. White space around a text is not part of it.

    Args:
        files: Two paths (source, target) or one.
        columns: Number of columns of every line of a TSV or CSV file; the source is the first, the target the second.
        keys: Keys of the source and the target in JSON lines.
        on_error: "raise" stops at the first bad line; "skip" leaves bad lines out and accounts for them in
            `bad_lines`. An empty file, a damaged file and two files of unequal length raise with both.

    Attributes:
        bad_lines: The lines skipped by the latest iteration (see `recipes.common.text_lines.BadLines`).

    Raises:
        DataError: Wrong number of files, unknown suffix; while iterating: anything wrong with the files, with the
            position `FILE:line` (and the byte, where it is not UTF-8).
        ConfigError: `columns` or `keys` is out of range.
        ValueError: `on_error` is another word.

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
        keys: Sequence[str] = ("source", "target"),
        on_error: OnError = "raise",
    ):
        self.files = [Path(file) for file in files]
        if columns < 2:
            raise ConfigError(f"data.columns must be at least 2, got {columns}")
        if len(keys) != 2:
            raise ConfigError(f"data.keys must be two, of the source and of the target, got {list(keys)}")
        self.bad_lines = BadLines(on_error)
        if len(self.files) == 2:
            self._read = self._read_two_files
        elif len(self.files) == 1:
            self._read = self._read_table
            is_json = suffix_of(self.files[0]) in JSON_SUFFIXES
            self._table = Table(self.files[0], keys if is_json else ("1", "2"), width=columns, on_error=on_error)
            self.bad_lines = self._table.bad_lines
        else:
            names = [str(file) for file in self.files]
            raise DataError(
                f"parallel text is two files (source, target) or one TSV, CSV or JSON lines file; got {names}"
            )

    def __iter__(self) -> Iterator[TextPair]:
        self.bad_lines.clear()
        pair = None
        for pair in self._read():
            yield pair
        if pair is None:
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

    def _read_table(self) -> Iterator[TextPair]:
        for texts, origin in self._table:
            wrong = [text for text in texts if not isinstance(text, str)]
            if wrong:
                self.bad_lines.add(NOT_A_TEXT, origin, repr(wrong[0]))
            else:
                yield from self._pair(*texts, origin, origin)

    def _pair(self, source: str, target: str, source_origin: str, target_origin: str) -> Iterator[TextPair]:
        source, target = source.strip(), target.strip()
        if source and target:
            yield TextPair(source, target, source_origin)
        else:
            self.bad_lines.add(EMPTY_LINE, target_origin if source else source_origin)
