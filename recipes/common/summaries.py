"""Texts with one summary or several: files and named data sets."""

from __future__ import annotations

import datetime
from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np

from recipes.common import dates
from recipes.common.errors import ConfigError
from recipes.common.named_data import is_name, load_named
from recipes.common.remote_files import RemoteFile, fetch
from recipes.common.table import Table
from recipes.common.text_lines import BadLines, OnError

NO_TEXT = "no text or no summary"


class Summary(NamedTuple):
    """A text, its summaries, and where they stand, `FILE:line`."""

    text: str
    summaries: tuple[str, ...]
    origin: str


class SummarySplits(NamedTuple):
    """The parts of a data set; `test` is None where there is none."""

    train: list[Summary]
    validation: list[Summary]
    test: list[Summary] | None


SCITLDR = {
    part: RemoteFile(
        f"scitldr/{part}.jsonl",
        sha256,
        "allenai/scitldr",
        "5ccad9c00a60ad75c9e04abf7f27d0f53f983b20",
        f"SciTLDR-Data/SciTLDR-A/{part}.jsonl",
    )
    for part, sha256 in (
        ("train", "b222771d387be585cfdf5ae957b36757138415a352e0a3e3b23f73f87c3b1119"),
        ("dev", "3191fa98ccc09521332b7a1cd63b1930be4e8df125a235ccd31e40329709525e"),
    )
}


def open_summaries(
    files: Sequence[str], split: str, *, keys: Sequence[str], on_error: OnError
) -> tuple[list[Summary] | None, BadLines]:
    """Returns the texts with summaries that a config key such as `data.train` names, and the rows left out.

    * `date_notes`: generated notes of a few sentences, one with a date; the summary is what happens and the date.
    * `scitldr`: abstracts of papers and their one-sentence summaries, 1,992 / 619. Source: Cachola et al. 2020.

    Args:
        files: JSON-lines, TSV or CSV files, or one of these names.
        split: Part of a named data set: "train", "validation" or "test".
        keys: Keys, or column names, of text and summary; a list of texts is joined, a list of summaries is one each.
        on_error: "raise" or "skip".

    Raises:
        DataError: A missing or bad file, or a row without text or summary, with its place.
        ConfigError: `keys` are not two.
    """
    if len(keys) != 2:
        raise ConfigError(f"data.keys must be two, of the text and of the summary, got {list(keys)}")
    bad = BadLines(on_error)
    if is_name(files):
        return getattr(load_named(files[0], {"date_notes": _date_notes, "scitldr": _scitldr}), split), bad
    return [row for file in files for row in _read(file, keys, bad)], bad


def _read(file: Any, keys: Sequence[str], bad: BadLines) -> list[Summary]:
    rows = []
    table = Table(file, list(keys), header=True, on_error=bad.on_error)
    for (text, summaries), origin in table:
        columns = [field if isinstance(field, list) else [field] for field in (text, summaries)]
        if not all(isinstance(part, str) for column in columns for part in column):
            bad.add(NO_TEXT, origin, "texts, or lists of texts, are needed")
            continue
        texts, summaries = ([part.strip() for part in column if part.strip()] for column in columns)
        if not texts or not summaries:
            bad.add(NO_TEXT, origin)
            continue
        rows.append(Summary(" ".join(texts), tuple(summaries), origin))
    bad.extend(table.bad_lines)
    return rows


def _scitldr() -> SummarySplits:
    bad = BadLines("raise")
    return SummarySplits(*(_read(fetch(file), ("source", "target"), bad) for file in SCITLDR.values()), None)


def _date_notes() -> SummarySplits:
    generator = np.random.default_rng(0)
    events = ("the meeting", "the concert", "the exam", "the wedding", "the fair")
    fillers = ("The weather was fine.", "Nobody knew why.", "We had tea.", "The train was late.", "It was quiet.")

    def note(pair: Any) -> Summary:
        event = events[int(generator.integers(len(events)))]
        written = dates.write(datetime.date.fromisoformat(pair.target), generator)
        sentences = [f"{event[0].upper()}{event[1:]} is on {written}."]
        for index in generator.permutation(len(fillers))[: int(generator.integers(1, 4))]:
            sentences.insert(int(generator.integers(len(sentences) + 1)), fillers[index])
        return Summary(" ".join(sentences), (f"{event}: {pair.target}",), pair.origin)

    splits = dates.generate(train=12_000, validation=200, test=400)
    return SummarySplits(*([note(pair) for pair in pairs] for pairs in splits))
