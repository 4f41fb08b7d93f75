"""What a word is, in every script: in Python and in the graph by the same expressions.

Words follow the idea of Unicode's word boundaries: they are runs of letters, digits and their marks, with a joiner such
as an apostrophe or a hyphen between them. Scripts that are written without spaces between words have no such boundaries
without a dictionary. There, each character with its marks is a word of its own, as in BERT's tokenizer for Chinese.
Those scripts are the ones whose letters Unicode's line breaking lets break anywhere or leaves to a dictionary (classes
ID, CJ, SA and AK). Korean is written with spaces, and so are its words.

Reference:
    Unicode Standard Annex #29, "Unicode Text Segmentation", section 4; Annex #14, "Unicode Line Breaking Algorithm",
    table 1; Devlin et al. 2019, "BERT" (`tokenization.py`).
"""

from typing import Any

import regex

from zoo.tokenizers.tensors import import_tensorflow, keep_values

SCRIPTS_WITHOUT_SPACES = (
    *("Han", "Hiragana", "Katakana", "Bopomofo", "Yi", "Tangut", "Nushu"),
    *("Thai", "Lao", "Khmer", "Myanmar", "Tai_Le", "New_Tai_Lue", "Tai_Tham", "Tai_Viet", "Ahom"),
    *("Balinese", "Javanese", "Kawi", "Brahmi", "Grantha", "Dives_Akuru"),
)

# Expressions that `regex` and RE2 read alike. RE2 has no set difference: `[^\P{L}x]` are the letters that are not x.
# Its `\s` is ASCII alone.
_SPACE = "\t-\r\x85\\p{Z}"
# Letters without a script that these share: the sign of a long vowel, repetition marks
_SHARED = "\u3006\u3031-\u3035\u303c\u30fc\uff70"
# Scripts that RE2 of older servers does not know: all their characters, and their letters
_CODE_POINTS = {
    "Kawi": (
        "\U00011f00-\U00011f10\U00011f12-\U00011f3a\U00011f3e-\U00011f5a",
        "\U00011f02\U00011f04-\U00011f10\U00011f12-\U00011f33",
    )
}
_NAMED = [script for script in SCRIPTS_WITHOUT_SPACES if script not in _CODE_POINTS]
_UNSPACED = "".join(rf"\p{{{script}}}" for script in _NAMED)
_UNSPACED += "".join(characters for characters, _ in _CODE_POINTS.values()) + _SHARED
# Marks, and letters that are written as marks: Thai and Lao AM, voiced sounds of half-width Katakana
_MARK = "\\p{M}\u0e33\u0eb3\uff9e\uff9f"
# Between two letters of Khmer, Burmese, Tai Tham, Balinese, Javanese, Kawi and others, these put one under the other
_STACKER = "\u17d2\u1039\u1a60\u1b44\ua9c0\U00011f42\U00011046\U0001134d\U0001193e"
_BASE = "|".join(rf"[^\P{{L}}\P{{{script}}}]" for script in _NAMED)
_BASE = rf"(?:{_BASE}|[^\P{{N}}\P{{Han}}]|[{_SHARED}{''.join(letters for _, letters in _CODE_POINTS.values())}])"
_CHARACTER = rf"{_BASE}(?:[{_STACKER}]{_BASE}|[{_MARK}])*"

_LETTER = rf"[^\P{{L}}{_UNSPACED}{_MARK}]"
_DIGIT = r"[^\P{N}\p{Han}]"
# Invisible characters within a word: joiners, soft hyphens, directions. The space of zero width separates words
_WITHIN = "[^\\P{Cf}\u200b]"
_LETTERS = rf"{_LETTER}(?:{_WITHIN}*(?:{_LETTER}|\p{{M}}))*"
_DIGITS = rf"(?:{_DIGIT}\p{{M}}*)+"
_RUN = rf"(?:{_LETTER}|{_DIGIT})(?:{_WITHIN}*(?:{_LETTER}|{_DIGIT}|\p{{M}}))*"
# What joins two runs to one word: ASCII ("U.S", "don't", "3.5", "e-mail"); middle dots; apostrophes; hyphens and the
# dash of ranges; marks of Armenian; geresh, gershayim and maqaf of Hebrew; Arabic points of numbers; others of Annex
# #29. Not the full stop, comma or word separator of another script, which often has no space on either side.
_JOINER = (
    "[!-/:-@\\[-`{-~\u00b0\u00b7\u0387\u055a-\u055f\u058a\u05be\u05f3\u05f4\u066b\u066c"
    "\u2010-\u2013\u2018\u2019\u2024\u2027\u203f\u2040\u2044\u2054]"
)
_JOINED = rf"{_RUN}(?:{_JOINER}{_RUN})*"
# One symbol: also a flag, or pictures with a tone of skin or joined to one
_TONED = "[\\p{M}\U0001f3fb-\U0001f3ff]*"
_SYMBOL = f"[\U0001f1e6-\U0001f1ff]{{2}}|[\\p{{P}}\\p{{S}}]{_TONED}(?:\u200d\\p{{S}}{_TONED})*"
# Marks without a letter, control characters, characters of no standard
_OTHER = rf"[^{_SPACE}\p{{L}}\p{{N}}\p{{P}}\p{{S}}\p{{Cf}}]+"

_EXPRESSIONS = {
    "punctuation": f"{_JOINED}|{_SYMBOL}|{_CHARACTER}|[{_MARK}]+|{_OTHER}",
    "space": rf"[^{_SPACE}]+",
    "kinds": f"{_LETTERS}|{_DIGITS}|{_SYMBOL}|{_CHARACTER}|[{_MARK}]+|{_OTHER}",
    "symbols": f"{_RUN}|{_SYMBOL}|{_CHARACTER}|[{_MARK}]+|{_OTHER}",
    "letters": f"{_RUN}|{_CHARACTER}",
}
SPLITS = tuple(_EXPRESSIONS)
_COMPILED = {split: regex.compile(expression) for split, expression in _EXPRESSIONS.items()}
# the same for texts without letters that stand alone, several times as fast
_COMPILED_SPACED = {
    split: regex.compile(expression.replace(_LETTER, r"\p{L}").replace(_DIGIT, r"\p{N}").replace(f"|{_CHARACTER}", ""))
    for split, expression in _EXPRESSIONS.items()
}
_IS_UNSPACED, _IS_LETTER = regex.compile(rf"[{_UNSPACED}]"), regex.compile(r"\p{L}")
_STANDS_ALONE = regex.compile(rf"[{_UNSPACED}[{_MARK}&&\p{{L}}]]", regex.V1)


def word_places(text: str, split: str = "punctuation") -> list[tuple[int, int]]:
    """Returns the places of the words of a text, `(start, end)` in characters for each.

    Args:
        text: The text.
        split: See `split_words`.

    Example:

    >>> word_places("me, 我们")
    [(0, 2), (2, 3), (4, 5), (5, 6)]
    """
    return [match.span() for match in _expression(text, split).finditer(text)]


def words_of(text: str, split: str = "letters") -> list[str]:
    """Returns the words of a text; by default those of letters and digits alone, for scores and counts.

    Args:
        text: The text.
        split: See `split_words`.

    Example:

    >>> words_of("Don't: 3.5 Müller, 我们!")
    ['Don', 't', '3', '5', 'Müller', '我', '们']
    """
    return [match.group() for match in _expression(text, split).finditer(text)]


def _expression(text: str, split: str) -> Any:
    is_spaced = text.isascii() or _STANDS_ALONE.search(text) is None
    return (_COMPILED_SPACED if is_spaced else _COMPILED)[split]


def has_unspaced(text: str) -> bool:
    """Returns whether a text has a letter of a script that is written without spaces between words.

    Args:
        text: The text.

    Example:

    >>> has_unspaced("我们都喜欢用 Keras"), has_unspaced("우리는")
    (True, False)
    """
    return not text.isascii() and _IS_UNSPACED.search(text) is not None


def lacks_spaces(text: str) -> bool:
    """Returns whether most letters of a text are of scripts that are written without spaces between words.

    Args:
        text: The text.

    Example:

    >>> lacks_spaces("我们都喜欢用 Keras"), lacks_spaces("우리는")
    (True, False)
    """
    if not has_unspaced(text):
        return False
    letters = _IS_LETTER.findall(text)
    return 2 * sum(_IS_UNSPACED.match(letter) is not None for letter in letters) > len(letters)


def split_words(texts: Any, split: str = "punctuation") -> tuple[Any, Any, Any]:
    """Splits texts into words; a graph function.

    In scripts that are written without spaces, such as Chinese, Japanese and Thai, each character is a word, except
    with "space".

    Args:
        texts: String tensor `(batch,)`.
        split: "punctuation": at white space; characters other than letters and digits are separate words, unless a
            single one joins two of these. "space": at white space alone. "kinds": at white space, between letters
            and digits, and around each other character ("4th" is two words, "1999-05" three). "symbols": at white
            space and around each character other than letters and digits, as in BERT's tokenizer ("U.S." is four
            words). "letters": letters and digits alone; all others separate words and belong to none.

    Returns:
        `(words, starts, ends)`: ragged `(batch, None)`. Starts and ends are byte offsets, int64. A NUL in a word
        becomes U+0001. Invisible characters between words belong to none.

    Example:

    >>> split_words(tf.constant(["Otto, the 2nd, met the U.S. envoy."]))[0].to_list()
    [[b'Otto', b',', b'the', b'2nd', b',', b'met', b'the', b'U.S', b'.', b'envoy', b'.']]
    """
    tf = import_tensorflow()
    from tensorflow_text import regex_split_with_offsets

    word = _EXPRESSIONS[split]
    # the splitting operation ends a text at NUL, which is a control character like others here
    texts = tf.strings.regex_replace(texts, r"\x00", "\x01")
    words, starts, ends = regex_split_with_offsets(texts, f"[{_SPACE}]+|{word}", word)
    # what stands between two matches is no word; but bytes that are not UTF-8, which nothing matches, are a symbol
    if split == "letters":
        is_word = tf.strings.regex_full_match(words.values, word)
    else:
        invisible = "" if split == "space" else r"\p{Cf}"
        is_word = ~tf.strings.regex_full_match(words.values, f"[{_SPACE}{invisible}]*")
    words, starts, ends = (keep_values(part, is_word) for part in (words, starts, ends))
    return words, starts, ends
