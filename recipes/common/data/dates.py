"""The built-in data set: dates as people write them in English, German and French, and the same dates in ISO 8601.

The ways of writing come from the Unicode CLDR (`cldr.json`, made by `tests/reference/cldr.py`): for each locale the
full, long, medium and short format and the formats of a few skeletons, as they are, in lower and in upper case.

Every text has exactly one meaning. Two rules see to that: a format with a year of two digits is left out ("04.05.99"
may be 1999 or 2099), and so is one that has a numeric month before the day, which American English has ("4/5/1999" may
be 5 April or 4 May). In what remains a numeric month follows the day. The tests write every date of every kind of year
in every way and find no text with two meanings.
"""

from __future__ import annotations

import datetime
import itertools
import re
from functools import cache

import numpy as np

from recipes.common.data.data_sets import Splits, TextPair
from recipes.common.words import cldr

# a run of letters of one kind is a field; text in quotes stands for itself, two quotes for one
_FIELD = re.compile("'([^']*)'|E{4}|E|d+|M+|y+")
CASES = (str, str.lower, str.upper)


def generate(
    train: int = 30_000,
    validation: int = 500,
    test: int = 1_000,
    *,
    seed: int = 0,
    first_year: int = 1900,
    last_year: int = 2099,
) -> Splits:
    """Returns pairs of a written date and its ISO 8601 form, split by date: no date of one part occurs in another.

    Args:
        train: Number of training pairs; all texts differ, dates may occur in several writings.
        validation: Number of validation pairs, each of another date.
        test: Number of test pairs, each of another date.
        seed: Decides about the split, the dates and the writings. The same seed gives the same pairs.
        first_year: First year, at least 1000, so that every year has four digits.
        last_year: Last year, at most 9999.

    Returns:
        Lists of `TextPair`s; `origin` is the part and the position, such as "dates.train:1".

    Raises:
        ValueError: A number is negative, the years are out of range, or there are not that many dates or texts.

    Example:

    >>> generate(train=2, validation=1, test=1).train[0]
    TextPair(source='Tuesday, 4 May 1999', target='1999-05-04', origin='dates.train:1')
    """
    if not 1000 <= first_year <= last_year <= 9999:
        raise ValueError(f"the years must be 1000 to 9999 and in order; got {first_year} to {last_year}")
    for name, number in (("train", train), ("validation", validation), ("test", test)):
        if number < 0:
            raise ValueError(f"{name} must not be negative; got {number}")
    first = datetime.date(first_year, 1, 1).toordinal()
    number_of_dates = datetime.date(last_year, 12, 31).toordinal() - first + 1
    training_dates = number_of_dates - validation - test
    # Draws are repeated until the texts differ; up to half of all texts that takes two draws a text or fewer.
    largest = training_dates * len(writing_styles()) // 2
    if training_dates < 1 or train > largest:
        raise ValueError(
            f"{first_year} to {last_year} has {number_of_dates} dates: too few for {validation} validation pairs, "
            f"{test} test pairs and {train} training pairs (at most {max(largest, 0)})"
        )
    generator = np.random.default_rng(seed)
    ordinals = first + generator.permutation(number_of_dates)
    held_out = {"test": ordinals[:test], "validation": ordinals[test : test + validation]}
    parts = {name: _write_each(name, dates, generator) for name, dates in held_out.items()}
    return Splits(_write_distinct("train", ordinals[test + validation :], train, generator), **parts)


def writings(date: datetime.date) -> list[str]:
    """Returns every text that the data set may hold for a date.

    Args:
        date: A date.

    Returns:
        The distinct texts.

    Example:

    >>> writings(datetime.date(1999, 5, 4))[:2]
    ['Tuesday, May 4, 1999', 'tuesday, may 4, 1999']
    """
    return list(dict.fromkeys(_write(date, style) for style in range(len(writing_styles()))))


def write(date: datetime.date, generator: np.random.Generator) -> str:
    """Returns a date written in one of the styles of the data set.

    Args:
        date: A date.
        generator: Chooses the way.

    Example:

    >>> write(datetime.date(1999, 5, 4), np.random.default_rng(0))
    '4 mai 1999'
    """
    return _write(date, int(generator.integers(len(writing_styles()))))


def languages_of(text: str, iso: str) -> set[str]:
    """Returns the languages in which a text means a date, by their English names.

    Args:
        text: A text of the data set.
        iso: The date in ISO 8601.

    Example:

    >>> languages_of("4 mai 1999", "1999-05-04")
    {'French'}
    """
    date = datetime.date.fromisoformat(iso)
    locales = set()
    for (locale, pattern), styles in itertools.groupby(writing_styles(), lambda style: style[:2]):
        written = _format(date, locale, pattern)
        if any(CASES[case](written) == text for _, _, case in styles):
            locales.add(locale)
    return {cldr()["locales"][locale]["language"] for locale in locales}


@cache
def writing_styles() -> list[tuple[str, str, int]]:
    """Returns all styles: a locale, a CLDR pattern and the index of a case variant in `CASES`."""
    styles = []
    for name, locale in cldr()["locales"].items():
        # Numbers without letters have no case; a style that changes nothing would only make such texts more frequent.
        for pattern in locale["patterns"]:
            if _has_one_meaning(pattern):
                has_letters = "E" in pattern or "MMM" in pattern
                styles += [(name, pattern, case) for case in range(len(CASES) if has_letters else 1)]
    return styles


def _has_one_meaning(pattern: str) -> bool:
    """The two rules of this module's docstring."""
    numeric_month = "MMM" not in pattern
    two_digit_year = "yy" in pattern and "yyyy" not in pattern
    return not two_digit_year and not (numeric_month and pattern.index("M") < pattern.index("d"))


def _write(date: datetime.date, style: int) -> str:
    locale, pattern, case = writing_styles()[style]
    return CASES[case](_format(date, locale, pattern))


def _format(date: datetime.date, locale: str, pattern: str) -> str:
    """The date by a pattern of CLDR (Unicode Technical Standard 35, part 4, date field symbols)."""
    names = cldr()["locales"][locale]

    def written(field: re.Match) -> str:
        letters = field[0]
        if letters[0] == "'":
            return field[1] or "'"
        if letters[0] == "E":
            return names[letters][date.weekday()]
        if letters in ("MMM", "MMMM"):
            return names[letters][date.month - 1]
        number = {"d": date.day, "M": date.month, "y": date.year}[letters[0]]
        return f"{number:0{len(letters)}d}"

    return _FIELD.sub(written, pattern)


def _pair(ordinal: int, generator: np.random.Generator, origin: str) -> TextPair:
    date = datetime.date.fromordinal(int(ordinal))
    return TextPair(_write(date, generator.integers(len(writing_styles()))), date.isoformat(), origin)


def _write_each(name: str, ordinals: np.ndarray, generator: np.random.Generator) -> list[TextPair]:
    return [_pair(ordinal, generator, f"dates.{name}:{number}") for number, ordinal in enumerate(ordinals, 1)]


def _write_distinct(name: str, ordinals: np.ndarray, count: int, generator: np.random.Generator) -> list[TextPair]:
    pairs: dict[str, TextPair] = {}
    while len(pairs) < count:
        pair = _pair(ordinals[generator.integers(len(ordinals))], generator, f"dates.{name}:{len(pairs) + 1}")
        pairs.setdefault(pair.source, pair)
    return list(pairs.values())
