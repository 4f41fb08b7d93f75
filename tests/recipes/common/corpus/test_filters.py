import pytest

from recipes.common.corpus.filters import make_filters
from recipes.common.errors import ConfigError, DataError

ENGLISH = "The cat sat on the mat and it was happy that the dog was not in the house with her."
GERMAN = "Die Katze saß auf der Matte und war froh, dass der Hund nicht mit in dem Haus war."


@pytest.mark.parametrize(
    ("given", "kept", "dropped"),
    [
        ({"filter": "characters", "least": 3, "most": 5}, "four", "sixsix"),
        ({"filter": "words", "least": 2}, "two words", "one"),
        ("word_length", "some usual words", "a b c d"),
        ("alphabetic_words", "four usual words and 5", "1 2 3 words"),
        ("repeated_lines", "a\nb\nc\nd", "a\na\na\nb"),
        ("repeated_words", ENGLISH, "buy now " * 10),
        ("script", "lettres latines", "русский текст"),
        ({"filter": "script", "name": "CYRILLIC"}, "русский текст", "latin"),
        ({"filter": "script", "name": "Han", "least": 0.9}, "我用手机。", "私は東京にいます"),
        ({"filter": "script", "name": "Devanagari", "least": 1}, "हिन्दी भाषा", "हिन्दी language"),
        ({"filter": "words", "least": 5}, "今天天气很好。", "今天。天气！"),
        ({"filter": "words", "least": 2, "most": 3}, "русский язык", "Иван ел суп дома"),
        ("word_length", "今天天气很好。", "今天 a b c d"),
        ("word_length", "हिन्दी भाषा", "क ख ग घ"),
        ("alphabetic_words", "我们都在这里 5", "5 6 7 我"),
        ("repeated_words", "今天我们去公园看花，明天在家里读书。", "快来买吧" * 10),
        ("language", ENGLISH, GERMAN),
        ({"filter": "language", "code": "de"}, GERMAN, ENGLISH),
        ("language", ENGLISH, "42 * 17 = 714"),
        ("str.isalpha.nothing", None, None),
    ],
)
def test_filters(given, kept, dropped):
    if kept is None:
        with pytest.raises(ConfigError, match="cannot be imported"):
            make_filters([given])
        return
    [(name, keeps)] = make_filters([given])
    assert keeps(kept) and not keeps(dropped)
    assert name == (given if isinstance(given, str) else given["filter"])


def test_a_filter_of_ones_own():
    [(_, keeps)] = make_filters([{"filter": "fnmatch.fnmatch", "pat": "a*"}])
    assert keeps("abc") and not keeps("bc")


@pytest.mark.parametrize(
    ("given", "message"),
    [
        ("wrds", "did you mean 'words'"),
        ({"filter": "words", "leest": 3}, "words takes"),
        ({"filter": "language", "code": "tlh"}, "code must be one of"),
        ({"filter": "script", "name": "CJK"}, "name must be .*'CJK'"),
        ({"least": 3}, "mappings with the key filter"),
    ],
)
def test_mistakes(given, message):
    with pytest.raises(ConfigError, match=message):
        make_filters([given])


def test_a_filter_that_fails_names_the_text(tmp_path, monkeypatch):
    (tmp_path / "filters_that_fail.py").write_text(
        "def fails(text):\n    if 'rain' in text:\n        raise KeyError('umbrella')\n    return True\n"
    )
    monkeypatch.syspath_prepend(tmp_path)
    ((_, keeps),) = make_filters(["filters_that_fail.fails"])
    assert keeps("sun")
    message = (
        r"filters: filters_that_fail.fails raised KeyError \('umbrella'\) in filters_that_fail.py:3 for the text 'rain'"
    )
    with pytest.raises(DataError, match=message):
        keeps("rain")
