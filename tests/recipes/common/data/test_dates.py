import calendar
import datetime
import re

import babel
import babel.core
import babel.dates
import pytest

from recipes.common.data import dates
from recipes.common.words import cldr


def test_no_text_has_two_meanings():
    """Every date of every kind of year, in every way of writing.

    Every text holds all four digits of its year, so texts of different years differ; and two years that begin on the
    same day of the week and are both leap years, or both not, have the same texts but for the year. There are fourteen
    such kinds of year. Texts are compared in lower case: if those are distinct, so are the other case variants.
    """
    kinds = {(calendar.weekday(year, 1, 1), calendar.isleap(year)): year for year in range(1900, 2100)}
    assert len(kinds) == 14
    styles = [index for index, (_, _, case) in enumerate(dates.writing_styles()) if case == 0]
    meanings = {}
    for year in kinds.values():
        for day in range(366 if calendar.isleap(year) else 365):
            date = datetime.date(year, 1, 1) + datetime.timedelta(day)
            for text in {dates._write(date, style).lower() for style in styles}:
                assert re.search(rf"(?<!\d){year}(?!\d)", text)
                assert meanings.setdefault(text, date) == date


def test_writings_that_people_use():
    texts = dates.writings(datetime.date(2003, 3, 5))
    for text in (
        "Wednesday, March 5, 2003",
        "Mar 5, 2003",
        "5 MARCH 2003",
        "05/03/2003",
        "mittwoch, 5. märz 2003",
        "5. MÄRZ 2003",
        "05.03.2003",
        "5.3.2003",
        "mercredi 5 mars 2003",
        "5 mars 2003",
    ):
        assert text in texts
    # American order and years of two digits are ambiguous.
    assert not {"3/5/2003", "03/05/2003", "3/5/03", "05.03.03", "05/03/03"} & set(texts)
    assert len(texts) == len(set(texts))


def test_writings_and_codes_are_those_of_babel():
    days = [datetime.date(2000, 1, 1) + datetime.timedelta(number) for number in range(0, 800, 3)]
    for locale, pattern in {style[:2] for style in dates.writing_styles()}:
        expected = [babel.dates.format_date(day, pattern, locale) for day in days]
        assert [dates._format(day, locale, pattern) for day in days] == expected, (locale, pattern)
    # a later version of the CLDR may know more
    aliases = babel.core.get_global("language_aliases")
    assert cldr()["languages"].items() <= aliases.items()


def test_every_pair_is_right():
    splits = dates.generate(train=300, validation=20, test=30, seed=3)
    assert [len(part) for part in splits] == [300, 20, 30]
    for name, part in zip(splits._fields, splits, strict=True):
        for number, (source, target, origin) in enumerate(part, 1):
            assert source in dates.writings(datetime.date.fromisoformat(target))
            assert origin == f"dates.{name}:{number}"
    assert len({pair.source for pair in splits.train}) == 300


def test_held_out_dates_are_not_in_training():
    splits = dates.generate(train=2000, validation=100, test=100, first_year=2000, last_year=2001)
    days = [{pair.target for pair in part} for part in splits]
    assert len(days[1]) == len(days[2]) == 100
    assert not days[0] & days[1]
    assert not days[0] & days[2]
    assert not days[1] & days[2]
    # Nearly all of the other 531 dates are there.
    assert len(days[0]) > 500
    assert all("2000-01-01" <= day <= "2001-12-31" for day in set.union(*days))


def test_years_cover_the_range():
    years = [int(pair.target[:4]) for pair in dates.generate(train=3000, validation=0, test=0).train]
    assert min(years) < 1903
    assert max(years) > 2096


def test_deterministic_by_seed():
    assert dates.generate(20, 5, 5, seed=1) == dates.generate(20, 5, 5, seed=1)
    assert dates.generate(20, 5, 5, seed=1) != dates.generate(20, 5, 5, seed=2)


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"first_year": 900}, "years must be 1000 to 9999 and in order; got 900 to 2099"),
        ({"last_year": 1800}, "got 1900 to 1800"),
        ({"test": -1}, "test must not be negative; got -1"),
        ({"first_year": 2000, "last_year": 2000, "validation": 300, "test": 66}, "has 366 dates: too few"),
        ({"first_year": 2000, "last_year": 2000, "validation": 0, "test": 0, "train": 20_000}, "too few"),
    ],
)
def test_impossible_requests(arguments, message):
    with pytest.raises(ValueError, match=message):
        dates.generate(**arguments)
