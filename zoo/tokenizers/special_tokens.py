"""Finds special tokens that a text spells and leaves the rest to the tokenizer."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from zoo.tokenizers.distinct import Tokens, code_points_of, following, previous
from zoo.tokenizers.regex_split import regex_split
from zoo.tokenizers.tensors import import_tensorflow, repeat, row_ids

if TYPE_CHECKING:
    import tensorflow as tf

# The white space of Unicode, as RE2 writes it.
RE2_SPACE = r"\t-\r\x{85}\p{Z}"
# What words consist of: alphabetic characters, marks, decimal digits, connectors and joiners.
_RE2_WORD = (
    r"\p{L}\p{M}\p{Nd}\p{Nl}\p{Pc}\x{200C}\x{200D}\x{24B6}-\x{24E9}"
    r"\x{1F130}-\x{1F149}\x{1F150}-\x{1F169}\x{1F170}-\x{1F189}"
)


class StringIndex:
    """Numbers of known strings, by constants of the graph: no table to initialize, to lose or to track.

    Args:
        strings: Different strings.
        numbers: Their numbers.

    Example:

    >>> StringIndex(["a", "b"], [7, 8])(tf.constant(["b", "c"]))
    <tf.Tensor: shape=(2,), dtype=int32, numpy=array([ 8, -1], dtype=int32)>
    """

    _BUCKETS = 2**63 - 1

    def __init__(self, strings: Sequence[str], numbers: Sequence[int]) -> None:
        tf = import_tensorflow()
        with tf.init_scope(), tf.device("CPU:0"):
            hashes = tf.strings.to_hash_bucket_fast(tf.constant(list(strings)), self._BUCKETS).numpy()
            order = np.argsort(hashes)
            if np.any(np.diff(hashes[order]) == 0):
                raise ValueError("Two of these strings have the same hash, or one is given twice.")
            self._hashes = tf.constant(hashes[order])
            self._strings = tf.constant([strings[index] for index in order])
            self._numbers = tf.constant(np.asarray(numbers, np.int32)[order])

    def __call__(self, strings: tf.Tensor) -> tf.Tensor:
        """`tf.string` `(count,)` to int32 numbers, -1 for strings that are not known."""
        tf = import_tensorflow()
        hashes = tf.strings.to_hash_bucket_fast(strings, self._BUCKETS)
        place = tf.minimum(tf.searchsorted(self._hashes, hashes), tf.size(self._hashes) - 1)
        return tf.where(tf.gather(self._strings, place) == strings, tf.gather(self._numbers, place), -1)


class SpecialTokenSplitter:
    """Splits texts at tokens that they spell; of several that begin at one place the longest counts.

    Args:
        ids: Id of each token by its text.
        strip_left, strip_right: Tokens that swallow white space before or after them.
        single_words: Tokens that are not found next to a character of a word.
    """

    def __init__(
        self,
        ids: Mapping[str, int],
        strip_left: Sequence[str],
        strip_right: Sequence[str],
        single_words: Sequence[str] = (),
    ) -> None:
        longest_first = sorted(ids, key=len, reverse=True)
        strip_left, strip_right = set(strip_left), set(strip_right)
        space = f"[{RE2_SPACE}]*"
        self._pattern = "|".join(
            f"{space * (token in strip_left)}{escape(token)}{space * (token in strip_right)}" for token in longest_first
        )
        self._strips = any(token in strip_left or token in strip_right for token in ids)
        self._index = StringIndex(longest_first, [ids[token] for token in longest_first])
        self._single_ids = [ids[token] for token in longest_first if token in set(single_words)]

    def tokenize(self, texts: tf.Tensor, begins: tf.Tensor, tokenize: Callable[[Any, Any], Tokens]) -> Tokens:
        """Tokenizes texts, with positions where `tokenize` gives them.

        Args:
            texts: `tf.string` `(batch,)`.
            begins: Which of them stand behind nothing, bool `(batch,)`.
            tokenize: Tokenizes what is between the tokens: `tf.string` `(parts,)`, and which of the parts stand behind
                nothing, bool `(parts,)`.
        """
        tf = import_tensorflow()
        # regex_split ends a text at the character U+0000, so it sees another control there.
        characters = code_points_of(texts)
        points = characters.values
        seen = characters.with_values(tf.where(points == 0, 1, points))
        pieces = regex_split(tf.strings.unicode_encode(seen, "UTF-8"), self._pattern)
        lengths = tf.strings.length(pieces.values, unit="UTF8_CHAR")
        borders = tf.concat([[0], tf.cumsum(lengths)], axis=0)
        rest = tf.RaggedTensor.from_row_splits(points, tf.cast(borders, tf.int64), validate=False)
        pieces = pieces.with_values(tf.strings.unicode_encode(rest, "UTF-8"))
        special_ids = self._identify(pieces.values)
        if self._single_ids:
            pieces, special_ids = self._without_parts_of_words(pieces, special_ids)
            lengths = tf.strings.length(pieces.values, unit="UTF8_CHAR")
            borders = tf.concat([[0], tf.cumsum(lengths)], axis=0)
        is_special = special_ids >= 0
        found = tf.boolean_mask(special_ids, is_special)
        rows = row_ids(pieces.row_splits)
        is_first = tf.range(tf.size(rows, out_type=tf.int64)) == tf.gather(pieces.row_starts(), rows)
        is_first &= tf.gather(begins, rows)
        rest = tokenize(tf.boolean_mask(pieces.values, ~is_special), tf.boolean_mask(is_first, ~is_special))

        # Ids of the rest, then the special ones; each piece takes its run of them.
        count = tf.size(rest.ids.values, out_type=tf.int64)
        number = tf.cumsum(tf.cast(is_special, tf.int64), exclusive=True)
        ordinary_number = tf.range(tf.size(number, out_type=tf.int64)) - number
        row_splits = rest.ids.row_splits
        last = tf.size(row_splits, out_type=tf.int64) - 1
        starts = tf.where(is_special, count + number, tf.gather(row_splits, tf.minimum(ordinary_number, last)))
        limits = tf.where(is_special, starts + 1, tf.gather(row_splits, tf.minimum(ordinary_number + 1, last)))
        taken = tf.ragged.range(starts, limits, row_splits_dtype=tf.int64)

        def gather(of_rest: Any, of_special: Any) -> Any:
            return tf.gather(tf.concat([of_rest, of_special], axis=0), taken.values)

        ids = tf.RaggedTensor.from_row_splits(
            gather(rest.ids.values, found), tf.gather(taken.row_splits, pieces.row_splits), validate=False
        )
        if rest.starts is None:
            return Tokens(ids)
        begins = borders[:-1]
        text_begins = tf.gather(borders, pieces.row_starts())
        piece_begins = repeat(begins - repeat(text_begins, pieces.row_lengths()), taken.row_lengths())
        return Tokens(
            ids,
            piece_begins + gather(rest.starts, tf.zeros_like(found)),
            piece_begins + gather(rest.ends, tf.boolean_mask(lengths, is_special)),
        )

    def _without_parts_of_words(self, pieces: Any, special_ids: Any) -> tuple[Any, Any]:
        """Joins what is no single word with the pieces around it."""
        tf = import_tensorflow()
        rows = row_ids(pieces.row_splits)
        begins_row, ends_row = rows != previous(rows, -1), rows != following(rows, -1)

        def matches(pattern: str) -> Any:
            return tf.strings.regex_full_match(pieces.values, f"(?s){pattern}")

        # white space that a token swallows stands between
        begins_space, ends_space = matches(f"[{RE2_SPACE}].*"), matches(f".*[{RE2_SPACE}]")
        bare = self._index(pieces.values) >= 0
        left = previous(matches(f".*[{_RE2_WORD}]"), False) & ~begins_row & (bare | ~begins_space)
        right = following(matches(f"[{_RE2_WORD}].*"), False) & ~ends_row & (bare | ~ends_space)
        is_single = tf.reduce_any(special_ids[:, tf.newaxis] == tf.constant(self._single_ids), axis=1)
        special_ids = tf.where(is_single & (left | right), -1, special_ids)
        is_special = special_ids >= 0
        begins = is_special | previous(is_special, False) | begins_row
        segments = tf.cumsum(tf.cast(begins, tf.int64)) - 1
        joined = tf.strings.unsorted_segment_join(pieces.values, segments, tf.math.count_nonzero(begins))
        before = tf.concat([[0], tf.cumsum(tf.cast(begins, tf.int64))], axis=0)
        row_splits = tf.gather(before, pieces.row_splits)
        pieces = tf.RaggedTensor.from_row_splits(joined, row_splits, validate=False)
        return pieces, tf.boolean_mask(special_ids, begins)

    def _identify(self, pieces: tf.Tensor) -> tf.Tensor:
        tf = import_tensorflow()
        ids = self._index(pieces)
        if not self._strips:
            return ids
        stripped = tf.strings.regex_replace(pieces, f"^[{RE2_SPACE}]+|[{RE2_SPACE}]+$", "")
        is_match = tf.strings.regex_full_match(pieces, self._pattern)
        return tf.where((ids < 0) & is_match, self._index(stripped), ids)


def escape(text: str) -> str:
    """Returns a regular expression of RE2 that matches a text alone.

    Args:
        text: The text.
    """
    return "".join(character if character.isalnum() or ord(character) > 127 else f"\\{character}" for character in text)
