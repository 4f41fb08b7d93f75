"""First rows of tables that name the columns, though nobody said that there is a header."""

from __future__ import annotations

import re
from collections.abc import Sequence

import zoo
from recipes.common.words import counted_words

# the words by which people call the columns of a table of texts; a row of nothing else is the header
_COLUMN_WORDS = frozenset(
    "abstract anchor answer article body categories category class classes comment content description document "
    "emotion emotions en english de fr es genre genres german french spanish gold highlights hypothesis id index "
    "input intent label labels language lang line message name negative output passage polarity positive premise "
    "question query rating reference response review score sent sentence sentiment similarity source src stars "
    "summary tag tags target text tgt title token tokens topic topics translation tweet utterance word words".split()
)
_WORDS_OF_A_NAME = 3
# what ends a sentence in Latin, Chinese, Arabic, Urdu and Hindi
_ENDS = ".!?\u2026\u3002\uff01\uff1f\u061f\u06d4\u0964"


def may_name_a_column(cell: str, most_words: int = _WORDS_OF_A_NAME) -> bool:
    """Returns whether a cell may be the name of a column: a few words, which do not end like a sentence.

    Args:
        cell: The cell.
        most_words: Its most words.

    Example:

    >>> may_name_a_column("Review Text"), may_name_a_column("Not again!")
    (True, False)
    """
    # a character of a script without spaces is about half a word
    length = sum(0.5 if zoo.preprocessing.words.lacks_spaces(word) else 1.0 for word in counted_words(cell))
    return length <= most_words and re.fullmatch(rf"[^\W\d].*(?<![{_ENDS}])", cell.strip()) is not None


def name_columns(cells: Sequence[str], others: Sequence[Sequence[str]] = ()) -> bool:
    """Returns whether the cells of a first row name their columns.

    They do if they consist of words by which columns are called, or if each may be a name and nothing below it may.

    Args:
        cells: The cells.
        others: Those of a few rows below.

    Example:

    >>> name_columns(["text", "label"]), name_columns(["anglais", "klass"], 3 * [["I have seen it before.", "0"]])
    (True, True)
    """
    if all(map(_is_called_so, cells)):
        return True
    return len(others) >= _WORDS_OF_A_NAME and all(
        may_name_a_column(name) and not any(map(may_name_a_column, column))
        for name, column in zip(cells, zip(*others, strict=True), strict=True)
    )


def _is_called_so(cell: str) -> bool:
    words = re.findall(r"[^\W_]+", re.sub(r"(_[ab]|_?[12])$", "", cell.strip().casefold()))
    return 0 < len(words) <= _WORDS_OF_A_NAME and _COLUMN_WORDS.issuperset(words)
