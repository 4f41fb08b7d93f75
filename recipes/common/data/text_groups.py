"""Texts that belong together, without a label: an anchor, its positive and perhaps negatives, from files or by name."""

from __future__ import annotations

import datetime
from collections.abc import Iterable, Sequence
from typing import Any, NamedTuple

import numpy as np

from recipes.common.data import dates
from recipes.common.data.data_sets import Loaders, Splits
from recipes.common.data.plain_text import PLAIN
from recipes.common.data.summaries import SUMMARIES
from recipes.common.data.text_files import read_table
from recipes.common.errors import BadLines
from recipes.common.words import counted_words, cut_into

NO_TEXT = "no text"

_PASSAGE_WORDS = 48
_LEAST_WORDS = 8


class TextGroup(NamedTuple):
    """Anchor, positive and perhaps negatives, and where they stand, `FILE:line`."""

    texts: tuple[str, ...]
    origin: str


def read_groups(
    files: Sequence[str], bad: BadLines, *, text_columns: Sequence[str], header: bool | None = None
) -> list[TextGroup]:
    """Returns the groups of texts of TSV, CSV or JSON-lines files.

    A field of JSON lines may hold a list of texts: the row then stands for as many groups as its longest list has
    texts, and shorter lists begin anew. So each text is in one group at least.

    Args:
        files: Paths.
        bad: Where bad rows are noted.
        text_columns: Columns of anchor, positive and negatives: numbers from 1, names or keys.
        header: See `recipes.common.data.text_files.read_table`.

    Raises:
        DataError: A missing or bad file, or a row without a text, with its place.

    Example:

    >>> read_groups(["pairs.tsv"], BadLines("raise"), text_columns=["1", "2"])[0].texts
    ('where is rome', 'Rome is in Italy.')
    """
    groups = []
    for file in files:
        for fields, origin in read_table(file, text_columns, bad, header=header):
            columns = [field if isinstance(field, list) else [field] for field in fields]
            wrong = [
                name
                for name, column in zip(text_columns, columns, strict=True)
                if not column or not all(isinstance(text, str) and text.strip() for text in column)
            ]
            if wrong:
                bad.add(NO_TEXT, origin, f"column {wrong[0]!r} must hold a text, or a list of texts in JSON lines")
                continue
            for index in range(max(map(len, columns))):
                groups.append(TextGroup(tuple(column[index % len(column)].strip() for column in columns), origin))
    return groups


def group_columns(groups: Iterable[TextGroup]) -> tuple[list[str], ...]:
    """Returns anchors, positives and negatives as columns.

    Args:
        groups: Groups of equally many texts each.
    """
    return tuple(map(list, zip(*(group.texts for group in groups), strict=True)))


def _date_writings() -> Splits:
    generator = np.random.default_rng(0)

    def group(pair: Any) -> TextGroup:
        date, second = datetime.date.fromisoformat(pair.target), pair.source
        while second == pair.source:
            second = dates.write(date, generator)
        return TextGroup((pair.source, second), pair.origin)

    def distinct(pairs: Iterable[Any]) -> Iterable[Any]:
        # the writings of other rows are those of other dates
        return {pair.target: pair for pair in pairs}.values()

    return Splits(*(list(map(group, distinct(part))) for part in dates.generate(train=6000, validation=300, test=600)))


def _date_queries() -> Splits:
    def groups(pairs: Iterable[Any]) -> list[TextGroup]:
        rows = [(pair, dates.languages_of(pair.source, pair.target)) for pair in pairs]
        # digits alone, and some months, are the same in several languages
        return [
            TextGroup((f"{pair.target[:4]} in {next(iter(language))}", pair.source), pair.origin)
            for pair, language in rows
            if len(language) == 1
        ]

    years = {"first_year": 1990, "last_year": 1999}
    return Splits(*map(groups, dates.generate(train=5000, validation=400, test=800, **years)))


def _scitldr() -> Splits:
    parts = SUMMARIES["scitldr"]()
    return Splits(*([TextGroup((row.summaries[0], row.text), row.origin) for row in part] for part in parts[:2]))


def neighbours(text: str) -> list[tuple[str, str]]:
    """Returns pairs of neighbouring passages of a text: they tell of the same thing in other words.

    Args:
        text: The text. One of 16 to 96 words is cut in its middle, a longer one into passages of 48 words, of which
            the first two are a pair, the next two, and so on; a shorter text gives none. A passage at the end has 8
            words at least. In scripts without spaces, each character is a word.

    Reference:
        Giorgi et al. 2021, "DeCLUTR", section 3: spans of one document as anchor and positive.
    """
    count = len(counted_words(text))
    length = _PASSAGE_WORDS if count > 2 * _PASSAGE_WORDS else max((count + 1) // 2, _LEAST_WORDS)
    passages = cut_into(text, length)
    if count % length and count % length < _LEAST_WORDS:
        del passages[-1]
    return list(zip(passages[::2], passages[1::2], strict=False))


def _english_neighbours() -> Splits:
    train, validation, _ = PLAIN["english_texts"]()

    def groups(texts: Iterable[str]) -> list[TextGroup]:
        return [
            TextGroup(pair, f"english_texts, text {number}")
            for number, text in enumerate(texts, 1)
            for pair in neighbours(text)
        ]

    # a third of the held-out texts, since each passage is looked for among all others
    return Splits(groups(train), groups(validation[::3]))


# * `date_writings`: generated dates (see `recipes.common.data.dates`), each written in two ways.
# * `date_queries`: a year and a language, "1999 in French", and a generated date in it.
# * `scitldr`: one-sentence summaries of papers and their abstracts, 1,992 / 619. Source: Cachola et al. 2020.
# * `english_neighbours`: neighbouring passages of `english_texts` (`recipes.common.data.plain_text`), see `neighbours`.
GROUPS: Loaders = {
    "date_writings": _date_writings,
    "date_queries": _date_queries,
    "scitldr": _scitldr,
    "english_neighbours": _english_neighbours,
}
