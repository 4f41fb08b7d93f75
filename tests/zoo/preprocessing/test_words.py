"""What a word is: in many scripts, in Python and in the graph."""

import unicodedata

import pytest
import regex

from zoo.preprocessing import lacks_spaces, words_of
from zoo.preprocessing.words import SCRIPTS_WITHOUT_SPACES, SPLITS, has_unspaced, word_places

# words are between bars; punctuation is in none of those of "letters"
TEXTS = {
    "english": ("|Otto|,| |the| |U.S|.| |e-mail|: |don't| |pay| |3.50|!", "Otto the U S e mail don t pay 3 50"),
    "german": ("„|Jörg| |Müller|“…", "Jörg Müller"),
    "accents apart": ("|Rene\u0301e| |a\u0308|", "Rene\u0301e a\u0308"),
    "russian": ("|Мама| |мыла| |раму|—|да|.", "Мама мыла раму да"),
    "greek": ("«|Ἀθῆναι|»·| |ναι|;", "Ἀθῆναι ναι"),
    "chinese": ("|我|住|在|北|京|。|二|〇|二|六|年|，|iPhone|-|手|机", "我 住 在 北 京 二 〇 二 六 年 iPhone 手 机"),
    "japanese": ("|東|京|タ|ワ|ー|へ|行|く|。|ｶﾞ", "東 京 タ ワ ー へ 行 く ｶﾞ"),
    "korean": ("|서울에서| |만나요|.", "서울에서 만나요"),
    "thai": ("|ฉั|น|อ|ยู่|ที่|๒๕| |น้ำ|", "ฉั น อ ยู่ ที่ ๒๕ น้ำ"),
    "lao": ("|ນ້ຳ|ລ|າ|ວ", "ນ້ຳ ລ າ ວ"),
    "khmer": ("|សួ|ស្តី|។", "សួ ស្តី"),
    "burmese": ("|မြ|န်|မာ|ခ|န္တီး|။", "မြ န် မာ ခ န္တီး"),
    "arabic": ("|مرحبا|،|العالم| |١٫٥|؟", "مرحبا العالم ١ ٥"),
    "persian": ("|می\u200cخواهم|", "می\u200cخواهم"),
    "hebrew": ("|שלום| |צה״ל| |בית־ספר|", "שלום צה ל בית ספר"),
    "hindi": ("|नमस्ते| |दुनिया|।|क्\u200dष|", "नमस्ते दुनिया क्\u200dष"),
    "bengali": ("|বাংলা|", "বাংলা"),
    "tamil": ("|தமிழ்| |நாடு|", "தமிழ் நாடு"),
    "tibetan": ("|བོད|་|སྐད|།", "བོད སྐད"),
    "amharic": ("|ሰላም|፡|ለዓለም|።", "ሰላም ለዓለም"),
    "armenian": ("|ի՞նչ| |է|", "ի նչ է"),
    "georgian": ("|გამარჯობა|!", "გამარჯობა"),
    "pictures": ("|❤\ufe0f| |👩🏽\u200d🚀| |🇩🇪|🇫🇷|", ""),
    "spaces": ("\u3000|a|\xa0|b|\u2003\u200b|c|\u200b|d|\u200e \u2028|\x07", "a b c d"),
    "none": (" \t\n", ""),
    "empty": ("", ""),
}


@pytest.mark.parametrize("script", TEXTS)
def test_words_of_scripts(script):
    barred, letters = TEXTS[script]
    text, parts = barred.replace("|", ""), barred.split("|")
    expected = [part.strip(" \t\n\u3000\xa0\u2003\u200b\u200e\u2028") for part in parts]
    assert words_of(text, "punctuation") == [*filter(None, sum(map(_symbols_apart, expected), []))]
    assert words_of(text) == letters.split(" " if letters else None)
    assert words_of(text, "space") == text.split()
    for split in SPLITS:
        assert [text[start:end] for start, end in word_places(text, split)] == words_of(text, split)


def _symbols_apart(part):
    """A part that is symbols alone, as one of each."""
    return [*part.replace(" ", "")] if part and all(unicodedata.category(c)[0] in "PZ" for c in part) else [part]


def test_letters_and_digits_apart():
    assert words_of("born 4th 1999-05 ๒๕คน 3年", "kinds") == [
        *("born", "4", "th", "1999", "-", "05", "๒๕", "ค", "น", "3", "年")
    ]


def test_scripts_are_those_that_unicode_breaks_anywhere_or_by_a_dictionary():
    """The property Line_Break of letters, but for letters of a compatible form."""
    unspaced = regex.compile(r"(?=\p{L})[\p{lb=ID}\p{lb=CJ}\p{lb=SA}\p{lb=AK}]")
    ours = regex.compile("[" + "".join(rf"\p{{{script}}}" for script in SCRIPTS_WITHOUT_SPACES) + "]")
    letters = [chr(code) for code in range(0x20000) if unspaced.match(chr(code))]
    others = {unicodedata.name(letter, "UNNAMED").split()[0] for letter in letters if not ours.match(letter)}
    others -= {"UNNAMED", "TULU-TIGALARI"}  # newer than RE2
    # Hangul letters by themselves, wide Latin; marks of Japanese that belong to no script
    assert others == {"HANGUL", "FULLWIDTH", "IDEOGRAPHIC", "VERTICAL", "KATAKANA-HIRAGANA", "HALFWIDTH"}
    for script in SCRIPTS_WITHOUT_SPACES:
        assert any(regex.match(rf"\p{{{script}}}", letter) for letter in letters), script


def test_scripts_that_older_servers_do_not_know_are_code_points():
    """RE2 refuses an expression with a name that it does not know."""
    from zoo.preprocessing.words import _CODE_POINTS, _EXPRESSIONS

    named = set(regex.findall(r"\\[pP]\{([^}]{3,})\}", " ".join(_EXPRESSIONS.values())))
    scripts = {script for script in SCRIPTS_WITHOUT_SPACES if len(script) > 2}
    assert named == scripts - set(_CODE_POINTS) and "Kawi" not in named
    for script, (characters, letters) in _CODE_POINTS.items():
        ours, ours_of_letters = regex.compile(f"[{characters}]"), regex.compile(f"[{letters}]")
        of_script, letter = regex.compile(rf"\p{{{script}}}"), regex.compile(r"\p{L}")
        for code in map(chr, range(0x20000)):
            assert bool(ours.match(code)) == bool(of_script.match(code))
            assert bool(ours_of_letters.match(code)) == bool(of_script.match(code) and letter.match(code))


def test_texts_of_scripts_without_spaces():
    for text in ("我住在北京", "ฉันอยู่ที่", "東京タワー", "សួស្តី", "我们用 TPU"):
        assert lacks_spaces(text) == (text != "我们用 TPU"), text
    for text in ("", "123 ... ", "서울에서 만나요", "नमस्ते", "مرحبا", "Мама", "Keras 很好"):
        assert not lacks_spaces(text), text


@pytest.mark.slow
def test_the_graph_gives_the_same_words():
    """Over texts and over the code points of Python's version of Unicode, alone and between letters and marks."""
    tf = pytest.importorskip("tensorflow")
    from zoo.preprocessing import split_words
    from zoo.preprocessing.tags import character_spans

    # few of the long ranges of like letters: ideographs, syllables, private characters
    codes = [*range(1, 0x3500), *range(0x3500, 0xA000, 64), *range(0xA000, 0xAC00), *range(0xAC00, 0xF900, 64)]
    codes += range(0xF900, 0x20000)
    codes = [code for code in codes if unicodedata.category(chr(code)) not in ("Cn", "Cs")]
    around = ("{0}", "a{0}b", "1{0}2", "ก{0}ข", "क{0}\u093fA{0}", "😀{0}\u200d")
    texts = [barred.replace("|", "") for barred, _ in TEXTS.values()]
    parts = [" ".join(form.format(chr(code)) for form in around) for code in codes]
    texts += [" ".join(parts[at : at + 64]) for at in range(0, len(codes), 64)]
    assert len(codes) > 30_000
    for split in SPLITS:
        _, starts, ends = split_words(tf.constant(texts), split)
        for text, *places in zip(texts, starts.to_list(), ends.to_list(), strict=True):
            assert character_spans(text.encode(), *places) == word_places(text, split)


@pytest.mark.parametrize("split", SPLITS)
def test_a_letter_that_stands_alone_changes_no_other_word(split):
    """Texts without one take a shorter expression."""
    codes = [*range(1, 0xE00), *range(0x2000, 0x2100), *range(0xAC00, 0xAC20), *range(0x1F3F0, 0x1F600)]
    letters = [chr(code) for code in codes if unicodedata.category(chr(code)) not in ("Cn", "Cs")]
    for start in range(0, len(letters), 64):
        text = " ".join(f"{letter} a{letter}b 1{letter}2 क{letter}\u093fA" for letter in letters[start : start + 64])
        *places, last = word_places(f"{text} ก", split)
        assert word_places(text, split) == places and last == (len(text) + 1, len(text) + 2)


def test_letters_of_scripts_without_spaces():
    assert has_unspaced("Keras 很好") and has_unspaced("ーa") and not has_unspaced("서울 नमस्ते Мама 1")
