"""BERT's normalization of characters: cleaning, accents, lower case, and which characters are words of their own."""

from __future__ import annotations

import functools
import unicodedata
from collections.abc import Mapping
from typing import Any, NamedTuple

import numpy as np

from zoo.tokenizers.tensors import import_tensorflow, repeat
from zoo.tokenizers.unicode_ranges import CONTROLS, IDEOGRAPHS, NONSPACING_MARKS, PUNCTUATION, code_points

_PAGE = 256
# Later planes hold no letters that have a decomposition or a case.
_PLANES_WITH_LETTERS = 0x30000
_ITSELF, _ITSELF_ALONE = 0, 1  # of the first entries of the table, of one character each


class CharacterTable(NamedTuple):
    """The normalized form of each code point, looked up by page and by position in the page.

    Attributes:
        pages: `(code points / 256,)` number of the page.
        entries: `(pages * 256,)` number of the entry.
        starts, lengths: `(entries,)` where its characters are in `characters`.
        characters: `(all,)` code points, -1 for the character itself.
        is_alone: `(all,)` whether this character is a word of its own.
    """

    pages: np.ndarray
    entries: np.ndarray
    starts: np.ndarray
    lengths: np.ndarray
    characters: np.ndarray
    is_alone: np.ndarray


@functools.lru_cache
def character_table(clean_text: bool, split_ideographs: bool, strip_accents: bool, lowercase: bool) -> CharacterTable:
    """Tabulates BERT's normalization, which looks at one character at a time.

    (Strictly, decomposition also sorts the combining marks of a letter. Those are gone when accents are stripped, but
    for a handful of marks of rare scripts.)

    Args:
        clean_text: Drop controls, U+0000 and U+FFFD.
        split_ideographs: Each CJK ideograph is a word.
        strip_accents: Decompose (NFD) and drop nonspacing marks.
        lowercase: Lower-case each character, without regard to its neighbours.
    """
    removed, marks, punctuation, ideographs = (
        _membership(ranges) for ranges in (CONTROLS, NONSPACING_MARKS, PUNCTUATION, IDEOGRAPHS)
    )
    entry_of = np.where(punctuation, _ITSELF_ALONE, _ITSELF).astype(np.int32)
    if split_ideographs:
        entry_of[ideographs] = _ITSELF_ALONE
    words: dict[tuple[tuple[int, ...], tuple[bool, ...]], int] = {
        ((-1,), (False,)): _ITSELF,
        ((-1,), (True,)): _ITSELF_ALONE,
    }
    nothing = words.setdefault(((), ()), len(words))
    if strip_accents:
        entry_of[marks] = nothing
    for point in range(_PLANES_WITH_LETTERS):
        character = chr(point)
        changed = unicodedata.normalize("NFD", character) if strip_accents else character
        if lowercase:
            changed = "".join(part.lower() for part in changed)
        if changed == character:
            continue
        parts = tuple(part for part in map(ord, changed) if not (strip_accents and marks[part]))
        alone = tuple(bool(punctuation[part] or (split_ideographs and ideographs[point])) for part in parts)
        entry_of[point] = words.setdefault((parts, alone), len(words))
    if clean_text:
        entry_of[removed] = nothing
    return _compressed(entry_of, words)


def compressed_table(changed: Mapping[int, tuple[int, ...]]) -> CharacterTable:
    """Tabulates what some code points become, each by itself; the others stay.

    Args:
        changed: Code points by code point.
    """
    entry_of = np.full(0x110000, _ITSELF, np.int32)
    words = {((-1,), (False,)): _ITSELF, ((-1,), (True,)): _ITSELF_ALONE}
    for point, parts in changed.items():
        entry_of[point] = words.setdefault((parts, (False,) * len(parts)), len(words))
    return _compressed(entry_of, words)


def _compressed(entry_of: np.ndarray, words: Mapping[tuple[tuple[int, ...], tuple[bool, ...]], int]) -> CharacterTable:
    """The table of the entries of all code points, equal pages stored once."""
    pages, page_of = np.unique(entry_of.reshape(-1, _PAGE), axis=0, return_inverse=True)
    lengths = np.array([len(parts) for parts, _ in words], np.int32)
    return CharacterTable(
        pages=page_of.reshape(-1).astype(np.int32),
        entries=pages.reshape(-1),
        starts=(np.cumsum(lengths) - lengths).astype(np.int32),
        lengths=lengths,
        characters=np.array([part for parts, _ in words for part in parts], np.int32),
        is_alone=np.array([flag for _, flags in words for flag in flags], bool),
    )


def _membership(ranges: str) -> np.ndarray:
    is_member = np.zeros(0x110000, bool)
    for part in code_points(ranges):
        is_member[part.start : part.stop] = True
    return is_member


class NormalizedCharacters(NamedTuple):
    """Flat characters of several words after normalization.

    Attributes:
        points: `(characters,)` int32 code points.
        row_splits: Where each word begins.
        sources: `(characters,)` int32 position in its word of the character that each comes from.
        is_alone: `(characters,)` whether it is a word of its own.
    """

    points: object
    row_splits: object
    sources: object
    is_alone: object


def normalize_characters(characters: Any, table: CharacterTable) -> NormalizedCharacters:
    """Applies a table to ragged code points `(words, None)`."""
    tf = import_tensorflow()
    values = characters.values
    page = tf.gather(tf.constant(table.pages), values // _PAGE)
    entry = tf.gather(tf.constant(table.entries), page * _PAGE + values % _PAGE)
    lengths = tf.gather(tf.constant(table.lengths), entry)
    starts = tf.gather(tf.constant(table.starts), entry)
    taken = tf.ragged.range(starts, starts + lengths, row_splits_dtype=tf.int64)
    points = tf.gather(tf.constant(table.characters), taken.values)
    positions = tf.range(tf.size(values)) - tf.cast(repeat(characters.row_starts(), characters.row_lengths()), tf.int32)
    return NormalizedCharacters(
        points=tf.where(points < 0, repeat(values, lengths), points),
        row_splits=tf.gather(taken.row_splits, characters.row_splits),
        sources=repeat(positions, lengths),
        is_alone=tf.gather(tf.constant(table.is_alone), taken.values),
    )
