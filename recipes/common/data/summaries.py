"""Texts with one summary or several: files and named data sets."""

from __future__ import annotations

import datetime
from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np

from recipes.common.data import dates
from recipes.common.data.data_sets import Loaders, RemoteFile, Splits, fetch
from recipes.common.data.text_files import read_table
from recipes.common.errors import BadLines, ConfigError

NO_TEXT = "no text or no summary"


class Summary(NamedTuple):
    """A text, its summaries, and where they stand, `FILE:line`."""

    text: str
    summaries: tuple[str, ...]
    origin: str


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


def read_summaries(
    files: Sequence[str], bad: BadLines, *, keys: Sequence[str] = ("source", "target"), header: bool | None = None
) -> list[Summary]:
    """Returns the texts with summaries of JSON-lines, TSV or CSV files.

    Args:
        files: Paths.
        bad: Where bad rows are noted.
        keys: Keys, or column names, of text and summary; a list of texts is joined, a list of summaries is one each.
        header: See `recipes.common.data.text_files.read_table`.

    Raises:
        DataError: A missing or bad file, or a row without text or summary, with its place.
        ConfigError: `keys` are not two.
    """
    if len(keys) != 2:
        raise ConfigError(f"data.keys must be two, of the text and of the summary, got {list(keys)}")
    rows = []
    for file in files:
        for (text, summaries), origin in read_table(file, keys, bad, header=header):
            columns = [field if isinstance(field, list) else [field] for field in (text, summaries)]
            if not all(isinstance(part, str) for column in columns for part in column):
                bad.add(NO_TEXT, origin, "texts, or lists of texts, are needed")
                continue
            texts, summaries = ([part.strip() for part in column if part.strip()] for column in columns)
            if not texts or not summaries:
                bad.add(NO_TEXT, origin)
                continue
            rows.append(Summary(" ".join(texts), tuple(summaries), origin))
    return rows


def _scitldr() -> Splits:
    return Splits(*(read_summaries([fetch(file)], BadLines("raise")) for file in SCITLDR.values()))


def _date_notes() -> Splits:
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
    return Splits(*([note(pair) for pair in pairs] for pairs in splits))


# * `date_notes`: generated notes of a few sentences, one with a date; the summary is what happens and the date.
# * `scitldr`: abstracts of papers and their one-sentence summaries, 1,992 / 619. Source: Cachola et al. 2020.
SUMMARIES: Loaders = {"date_notes": _date_notes, "scitldr": _scitldr}
