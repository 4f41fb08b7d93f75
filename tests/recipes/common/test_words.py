"""Words for scores and counts, written down by hand."""

import pytest

from recipes.common.words import counted_words, cut_into, first_words, folded_words, language_code, terms_of


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("The Straße, 3.5 km: U.S.", "the strasse 3 5 km u s"),
        ("ΟΔΟΣ οδός", "οδοσ οδόσ"),
        ("Mu\u0308ller", "m\u00fcller"),
        ("हिन्दी भाषा।", "हिन्दी भाषा"),
        ("我用Keras 3！", "我 用 keras 3"),
        ("น้ำใจ", "น้ำ ใ จ"),
        ("_ ! ? 。", ""),
    ],
)
def test_words_that_are_compared(text, words):
    assert folded_words(text) == words.split()


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("  Don't  stop: 3.5%.\n", ["Don't", "stop:", "3.5%."]),
        ("“Мир” — труд", ["“Мир”", "—", "труд"]),
        ("「你好」，世界。 Keras是好的", ["「你", "好」，", "世", "界。", "Keras", "是", "好", "的"]),
        ("แมวกิน ปลา", ["แ", "ม", "ว", "กิ", "น", "ป", "ล", "า"]),
        ("", []),
    ],
)
def test_words_that_readers_count(text, words):
    assert counted_words(text) == words
    # nothing but white space lies between words
    assert "".join(counted_words(text)) == "".join(text.split())


def test_codes_of_languages():
    codes = {"pt-BR": "pt", "ZH_Hant": "zh", "zho_Hans": "zh", "cmn": "zh", "eng_Latn": "en", "deu": "de", "arb": "ar"}
    assert {code: language_code(code) for code in codes} == codes
    # that have no code of two letters
    assert (language_code("yue_Hant"), language_code("shn"), language_code(None)) == ("yue", "shn", None)


def test_parts_of_texts():
    assert cut_into("one two  three\nfour five", 2) == ["one two", "three four", "five"]
    assert cut_into("今天天气很好。 Yes 真的", 4) == ["今天天气", "很好。 Yes 真", "的"]
    assert cut_into(" ", 3) == []
    assert first_words("我们 走吧。现在", 4) == "我们 走吧。"
    assert first_words("", 4) == ""


def test_terms():
    assert terms_of("a b c", 2) == ["a", "b", "c", "a b", "b c"]
    assert terms_of("我在A城", 1) == ["我", "在", "我 在", "a", "城"]
    assert terms_of("我在你", 2) == ["我", "在", "你", "我 在", "在 你", "我 在 你"]
