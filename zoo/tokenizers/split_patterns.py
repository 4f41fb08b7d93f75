"""How byte-level BPE models split a text into words before they look for merges: regular expressions in the graph."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, NamedTuple

from zoo.storage import quote
from zoo.tokenizers.regex_split import regex_split
from zoo.tokenizers.special_tokens import RE2_SPACE
from zoo.tokenizers.tensors import import_tensorflow, row_ids

if TYPE_CHECKING:
    import tensorflow as tf

# The expressions as the models' files have them.
PATTERNS = {
    "gpt2": r"'s|'t|'re|'ve|'m|'ll|'d| ?\p{L}+| ?\p{N}+| ?[^\s\p{L}\p{N}]+|\s+(?!\S)|\s+",
    "llama3": (
        r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n]*"
        r"|\s*[\r\n]+|\s+(?!\S)|\s+"
    ),
    "qwen2": (
        r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}| ?[^\s\p{L}\p{N}]+[\r\n]*"
        r"|\s*[\r\n]+|\s+(?!\S)|\s+"
    ),
    "gpt4o": (
        r"[^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]*[\p{Ll}\p{Lm}\p{Lo}\p{M}]+(?i:'s|'t|'re|'ve|'m|'ll|'d)?"
        r"|[^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]+[\p{Ll}\p{Lm}\p{Lo}\p{M}]*(?i:'s|'t|'re|'ve|'m|'ll|'d)?"
        r"|\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n/]*|\s*[\r\n]+|\s+(?!\S)|\s+"
    ),
    # a set within a set: no space, bracket, bar or mark of these
    "bloom": r" ?[^(\s|[.,!?…。，、।۔،])]+",
    # the third step of DeepSeek V3, after "numbers" and "han_kana"; its file has line breaks themselves
    "deepseek_v3": (
        r"""[!"#$%&'()*+,\-./:;<=>?@\[\\\]^_`{|}~][A-Za-z]+|[^\r\n\p{L}\p{P}\p{S}]?[\p{L}\p{M}]+"""
        r"| ?[\p{P}\p{S}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+"
    ).replace(r"\r\n", "\r\n"),
    "numbers": r"\p{N}{1,3}",
    "han_kana": "[\u4e00-\u9fa5\u3040-\u309f\u30a0-\u30ff]+",
    # each numeral by itself; put before another, as in ("digits", "gpt2")
    "digits": r"\p{N}",
}
_LOOK_AHEAD = r"|\s+(?!\S)|\s+"
_MOST_STEPS = 16  # each is a pass over all texts
_MARK = b"\xff"  # no byte of UTF-8, so no character class matches it


class _Step(NamedTuple):
    expression: str
    mark: str | None


class WordSplitter:
    r"""Splits strings into words by one or several of the known patterns, one after the other.

    RE2, the engine of TensorFlow, has no look-ahead. `\s+(?!\S)` means: of the white space before a word, all but the
    last character. So a mark is put before that last character, and the expression without look-ahead does the rest.
    After a line break the other patterns have taken the white space up to it, so they mark only what follows one.

    Args:
        names: Keys of `PATTERNS`.

    Raises:
        ValueError: A name is not known.
    """

    def __init__(self, names: Sequence[str]) -> None:
        if len(names) > _MOST_STEPS:
            raise ValueError(f"split must be at most {_MOST_STEPS} patterns, got {len(names)}.")
        for name in names:
            if name not in PATTERNS:
                raise ValueError(f"split must be one of {sorted(PATTERNS)}, got {quote(name)}.")
        self._steps = [_translate(PATTERNS[name]) for name in names]

    def __call__(self, strings: tf.Tensor) -> tuple[tf.Tensor, tf.Tensor]:
        """Splits valid UTF-8.

        Args:
            strings: `tf.string` `(batch,)`.

        Returns:
            `(words, owners)`: the words, `tf.string` `(words,)`, and the row that each is from, int64 `(words,)`. The
            words of a row follow one another without gap. They hold U+0001 in the place of U+0000.
        """
        tf = import_tensorflow()
        # regex_split ends a string at the character U+0000, so it sees another control there.
        words = tf.strings.regex_replace(strings, r"\x{00}", "\x01")
        owners = tf.range(tf.size(strings, out_type=tf.int64))
        for step in self._steps:
            if step.mark is not None:
                words = tf.strings.regex_replace(words, step.mark, b"\\1\xff\\2")
            split = regex_split(words, step.expression)
            owners = tf.gather(owners, row_ids(split.row_splits))
            is_word = split.values != _MARK
            words, owners = tf.boolean_mask(split.values, is_word), tf.boolean_mask(owners, is_word)
        return words, owners


def _translate(pattern: str) -> _Step:
    """Writes a pattern for RE2, whose `\\s` is ASCII only, and which has no sets within sets."""
    if not pattern.endswith(_LOOK_AHEAD):
        return _Step(pattern.replace("|[", "|").replace("])]", ")]").replace(r"\s", RE2_SPACE), None)
    pattern = pattern.replace("\r", r"\r").replace("\n", r"\n")
    body = pattern.removesuffix(_LOOK_AHEAD) + r"|[\s]+"
    breaks = r"\s*[\r\n]+" in pattern
    body = body.replace(r"\s*", r"[\s]*").replace(r"\s", RE2_SPACE)
    # white space, but with `breaks` no line break: tab, vertical tab, form feed and what is not ASCII
    space = r"\t\v\f\x{85}\p{Z}" if breaks else RE2_SPACE
    return _Step(body, f"([{space}])([{space}][^{RE2_SPACE}])")
