"""Filters of documents: plain functions from a text to whether it stays."""

from __future__ import annotations

import importlib
import inspect
import os
import traceback
from collections import Counter
from collections.abc import Callable, Sequence
from typing import Any

import zoo
from recipes.common.errors import ConfigError, DataError, nearest, shown
from recipes.common.words import counted_words, folded_words

Filter = Callable[[str], bool]

# the most frequent words of running text that each language hardly shares with the others
_FUNCTION_WORDS = {
    "de": "der die das und ist nicht von mit sich auf ein eine dem den zu auch",
    "en": "the be to of and that have with is was for it as his he on",
    "es": "el la los las de que y en un una por con para su no es",
    "fr": "le la les de des et est que dans une pour qui sur pas au du",
    "it": "il la di che e un una per non sono con del della le gli si",
}


def characters(text: str, least: int = 0, most: int | None = None) -> bool:
    """Returns whether the number of characters of a text is within bounds.

    Args:
        text: The text.
        least, most: The bounds; None for none.
    """
    return least <= len(text) and (most is None or len(text) <= most)


def words(text: str, least: int = 0, most: int | None = None) -> bool:
    """Returns whether the number of words of a text is within bounds.

    Args:
        text: The text. Words stand between white space; in scripts without spaces, each character is one.
        least, most: The bounds; None for none.
    """
    count = len(counted_words(text))
    return least <= count and (most is None or count <= most)


def word_length(text: str, least: float = 3, most: float = 10) -> bool:
    """Returns whether the mean number of characters per word is within bounds (Rae et al. 2021, "Gopher", table A1).

    In scripts without spaces the length of words is not known: such words do not count, and a text of them alone stays.

    Args:
        text: The text.
        least, most: The bounds.
    """
    every = counted_words(text)
    found = [word for word in every if not zoo.preprocessing.words.lacks_spaces(word)]
    if every and not found:
        return True
    return bool(found) and least <= sum(map(len, found)) / len(found) <= most


def alphabetic_words(text: str, least: float = 0.8) -> bool:
    """Returns whether enough of the words contain a letter (Rae et al. 2021, table A1).

    Args:
        text: The text.
        least: Least share, from 0 to 1.
    """
    found = counted_words(text)
    return bool(found) and sum(any(map(str.isalpha, word)) for word in found) >= least * len(found)


def repeated_lines(text: str, most: float = 0.3) -> bool:
    """Returns whether few of the lines repeat an earlier line (Rae et al. 2021, table A1).

    Args:
        text: The text.
        most: Largest fraction of such lines, from 0 to 1.
    """
    lines = [line.strip() for line in text.splitlines() if line.strip()]
    return not lines or 1 - len(set(lines)) / len(lines) <= most


def repeated_words(text: str, most: float = 0.2, length: int = 2) -> bool:
    """Returns whether the most frequent sequence of words has few of the characters (Rae et al. 2021, table A1).

    Args:
        text: The text.
        most: Largest fraction of the characters, from 0 to 1.
        length: Number of words of the sequence.
    """
    found = counted_words(text)
    counts = Counter(zip(*(found[start:] for start in range(length)), strict=False))
    if not counts:
        return True
    sequence, count = max(counts.items(), key=lambda item: item[1] * sum(map(len, item[0])))
    return count == 1 or count * sum(map(len, sequence)) <= most * sum(map(len, found))


def script(text: str, name: str = "Latin", least: float = 0.7) -> bool:
    """Returns whether enough of the letters belong to a script.

    Args:
        text: The text.
        name: Unicode's name of the script, in any case: Latin, Cyrillic, Greek, Arabic, Devanagari, Han, Hiragana, ...
        least: Smallest fraction, from 0 to 1.

    Raises:
        ValueError: Unicode has no such script.
    """
    import regex

    try:
        of_script = regex.compile(rf"(?=\p{{L}})\p{{Script={name}}}")
    except regex.error:
        raise ValueError(f"name must be Unicode's name of a script, for example Latin or Han, got {name!r}") from None
    letters = len(regex.findall(r"\p{L}", text))
    return letters > 0 and len(of_script.findall(text)) >= least * letters


def language(text: str, code: str = "en", least: int = 2) -> bool:
    """Returns whether a text has function words of a language, and more of them than of the other known languages.

    Args:
        text: The text.
        code: de, en, es, fr or it.
        least: Smallest number of function words (two in Rae et al. 2021).

    Raises:
        ValueError: The language is none of these.
    """
    if code not in _FUNCTION_WORDS:
        raise ValueError(f"code must be one of {', '.join(_FUNCTION_WORDS)}, got {code!r}")
    found = Counter(folded_words(text))
    counts = {key: sum(found[word] for word in words.split()) for key, words in _FUNCTION_WORDS.items()}
    return counts[code] >= max(least, max(counts.values()))


_FILTERS: dict[str, Callable[..., bool]] = {
    function.__name__: function
    for function in (
        characters,
        words,
        word_length,
        alphabetic_words,
        repeated_lines,
        repeated_words,
        script,
        language,
    )
}


def make_filters(given: Sequence[str | dict[str, Any]]) -> list[tuple[str, Filter]]:
    """Returns filters with their names.

    Args:
        given: Names of functions of this module, import paths of others (`my_module.my_filter`), or mappings of
            `filter` to such a name and of arguments to their values.

    Raises:
        ConfigError: If there is no such function, or it does not take the arguments.

    Example:

    >>> [(name, keeps)] = make_filters([{"filter": "words", "least": 3}])
    >>> keeps("two words")
    False
    """
    return [_make(each) for each in given]


def _make(given: str | dict[str, Any]) -> tuple[str, Filter]:
    options = {"filter": given} if isinstance(given, str) else dict(given)
    name = options.pop("filter", None)
    if not isinstance(name, str):
        raise ConfigError(f"filters must hold names, or mappings with the key filter, got {shown(given)}")
    function = _imported(name) if "." in name else _FILTERS.get(name)
    if function is None:
        near = nearest(name, _FILTERS)
        hint = f"did you mean {near!r}?" if near else f"known: {', '.join(_FILTERS)}, or my_module.my_filter"
        raise ConfigError(f"filters: there is no filter {name!r}; {hint}")
    try:
        inspect.signature(function).bind("a text", **options)
        function("a text", **options)
    except TypeError as error:
        raise ConfigError(f"filters: {name} takes {inspect.signature(function)}: {error}") from error
    except Exception as error:  # a function of one's own may raise anything
        raise ConfigError(f"filters: {name}: {error}") from error

    def keeps(text: str) -> bool:
        try:
            return bool(function(text, **options))
        except Exception as error:
            place = traceback.extract_tb(error.__traceback__)[-1]
            raise DataError(
                f"filters: {name} raised {type(error).__name__} ({error}) in {os.path.basename(place.filename)}:"
                f"{place.lineno} for the text {shown(text)}"
            ) from error

    return name, keeps


def _imported(path: str) -> Callable[..., bool]:
    module_name, _, name = path.rpartition(".")
    try:
        return getattr(importlib.import_module(module_name), name)
    except Exception as error:  # a module of one's own may raise anything
        raise ConfigError(f"filters: {path} cannot be imported ({type(error).__name__}: {error})") from error
