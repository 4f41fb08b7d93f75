"""Words of texts for scores, counts and searches, in every script: what `zoo.preprocessing.words` calls a word."""

from __future__ import annotations

import itertools
import json
import unicodedata
from functools import cache
from pathlib import Path
from typing import Any

import zoo


@cache
def cldr() -> dict[str, Any]:
    """Returns what recipes need of the Unicode CLDR: `languages`, codes of two letters by others, and `locales`.

    A locale has names of months and days, and patterns of dates. `tests/reference/cldr.py` made the file.
    """
    return json.loads(Path(__file__).with_name("cldr.json").read_text(encoding="utf-8"))


def language_code(language: str | None) -> str | None:
    """Returns the code of a language without script and region, in small letters, of two letters if it has such a code.

    Args:
        language: The code, for example "pt-BR"; None for an unknown language.

    Example:

    >>> language_code("zh_Hant"), language_code("eng_Latn")
    ('zh', 'en')
    """
    if language is None:
        return None
    code = language.lower().replace("_", "-").split("-")[0]
    # those of three letters that have one of two
    return cldr()["languages"].get(code, code)


def folded_words(text: str) -> list[str]:
    """Returns the words of a text as they are compared: letters and digits alone, without case, composed (NFC).

    Args:
        text: The text.

    Example:

    >>> folded_words("The Straße: 3.5 km, 北京")
    ['the', 'strasse', '3', '5', 'km', '北', '京']
    """
    return zoo.preprocessing.words.words_of(unicodedata.normalize("NFC", text.casefold()))


def terms_of(text: str, length: int = 1) -> list[str]:
    """Returns n-grams of a text, by which texts are compared: of words, or of characters in scripts without spaces.

    Args:
        text: The text.
        length: Most words of a term. Terms of characters have up to one more, since a character is less than a word.

    Example:

    >>> terms_of("In 北京市")
    ['in', '北', '京', '市', '北 京', '京 市']
    """
    found, has_unspaced = folded_words(text), zoo.preprocessing.words.has_unspaced
    runs = itertools.groupby(found, has_unspaced) if has_unspaced(text) else [(False, found)]
    terms = []
    for is_character, run in runs:
        words = list(run)
        for size in range(1, length + is_character + 1):
            terms += [" ".join(words[start : start + size]) for start in range(len(words) - size + 1)]
    return terms


def word_places(text: str) -> list[tuple[int, int]]:
    """Returns the places of the words of a text as readers count them, `(start, end)` in characters for each.

    Words stand between white space. In scripts without spaces each character is one, with the punctuation behind it.

    Args:
        text: The text.

    Example:

    >>> word_places("No way. 好吧。")
    [(0, 2), (3, 7), (8, 9), (9, 11)]
    """
    words = zoo.preprocessing.words
    places = words.word_places(text, "space")
    if not words.has_unspaced(text):
        return places
    found = []
    for start, end in places:
        inner = [(start + first, start + last) for first, last in words.word_places(text[start:end], "letters")]
        if words.has_unspaced(text[start:end]):
            starts = [start, *(first for first, _ in inner[1:])]
            found += zip(starts, [*starts[1:], end], strict=True)
        else:
            found.append((start, end))
    return found


def counted_words(text: str) -> list[str]:
    """Returns the words of a text as readers count them, see `word_places`.

    Args:
        text: The text.

    Example:

    >>> counted_words("No way. 好吧。")
    ['No', 'way.', '好', '吧。']
    """
    if not zoo.preprocessing.words.has_unspaced(text):
        return zoo.preprocessing.words.words_of(text, "space")  # faster
    return [text[start:end] for start, end in word_places(text)]


def first_words(text: str, count: int) -> str:
    """Returns a text up to the end of a word, see `word_places`.

    Args:
        text: The text.
        count: Number of words.

    Example:

    >>> first_words("I left. Why?", 2)
    'I left.'
    """
    places = word_places(text)[:count]
    return text[places[0][0] : places[-1][1]] if places else ""


def cut_into(text: str, count: int) -> list[str]:
    """Returns parts of a text, of a number of words each (see `word_places`) but the last, with single spaces.

    Args:
        text: The text.
        count: Number of words of a part.

    Example:

    >>> cut_into("one two  three", 2)
    ['one two', 'three']
    """
    places = word_places(text)
    parts = [places[start : start + count] for start in range(0, len(places), count)]
    return [" ".join(text[part[0][0] : part[-1][1]].split()) for part in parts]
