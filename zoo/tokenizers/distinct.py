"""Tokenizes each distinct word of a batch once: words repeat, and splitting one into tokens is the expensive part."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from zoo.tokenizers.tensors import import_tensorflow, repeat, row_ids
from zoo.tokenizers.unicode_ranges import code_points

if TYPE_CHECKING:
    import tensorflow as tf


class CodePointSet:
    """A small set of code points, for the graph.

    Args:
        ranges: Code points, as in `zoo.tokenizers.unicode_ranges`.

    Example:

    >>> CodePointSet("9-d 20").holds(tf.constant([32, 65]))
    <tf.Tensor: shape=(2,), dtype=bool, numpy=array([ True, False])>
    """

    def __init__(self, ranges: str) -> None:
        members = code_points(ranges)
        # one more than the largest: what all larger code points are looked up as
        self._is_member = np.zeros(max(part.stop for part in members) + 1, dtype=bool)
        for part in members:
            self._is_member[part.start : part.stop] = True

    def holds(self, values: tf.Tensor) -> tf.Tensor:
        """Returns, for each int32 code point, whether it is in the set."""
        tf = import_tensorflow()
        return tf.gather(tf.constant(self._is_member), tf.minimum(values, len(self._is_member) - 1))


class Tokens(NamedTuple):
    """Tokens of a batch of texts.

    Attributes:
        ids: `tf.RaggedTensor` of int32, shape `(batch, None)`.
        starts, ends: For each of the values of `ids` the position in the text, in characters, of its first character
            and of the one after its last; `None` where they were not asked for.
    """

    ids: Any
    starts: Any = None
    ends: Any = None


def code_points_of(texts: tf.Tensor) -> tf.RaggedTensor:
    """`tf.string` `(batch,)` to ragged int32 code points. What is not UTF-8 is read as U+FFFD, as Python does."""
    return import_tensorflow().strings.unicode_decode(texts, "UTF-8", errors="replace")


def previous(values: tf.Tensor, first: tf.Tensor | bool) -> tf.Tensor:
    """Shifts a vector by one position to the right; `first` comes in."""
    return import_tensorflow().concat([[first], values], axis=0)[:-1]


def following(values: tf.Tensor, last: tf.Tensor | bool) -> tf.Tensor:
    """Shifts a vector by one position to the left; `last` comes in."""
    return import_tensorflow().concat([values, [last]], axis=0)[1:]


def words_at_white_space(spaces: CodePointSet) -> Callable[[tf.Tensor, tf.Tensor], tuple[tf.Tensor, tf.Tensor]]:
    """Words are separated by white space, which is dropped."""

    def find(points: tf.Tensor, begins_row: tf.Tensor) -> tuple[tf.Tensor, tf.Tensor]:
        is_space = spaces.holds(points)
        return ~is_space, ~is_space & (begins_row | previous(is_space, True))

    return find


def tokenize_distinct_words(
    texts: tf.Tensor,
    find_words: Callable[[tf.Tensor, tf.Tensor], tuple[tf.Tensor, tf.Tensor]],
    encode_words: Callable[[tf.Tensor, bool], Tokens],
    with_offsets: bool,
) -> Tokens:
    """Splits texts into words, encodes each distinct word once, and puts the tokens of all words together.

    Args:
        texts: `tf.string` `(batch,)`.
        find_words: Called with all code points of the batch, `(characters,)`, and whether each begins a row. Returns
            whether each belongs to a word and whether it begins one.
        encode_words: Called with distinct words, `tf.string` `(words,)`, and `with_offsets`. Returns `Tokens` of these.
        with_offsets: Whether to return the positions in the text.

    Returns:
        `Tokens` of the texts.
    """
    tf = import_tensorflow()
    characters = code_points_of(texts)
    points, row_splits = characters.values, characters.row_splits
    count = tf.size(points, out_type=tf.int64)
    # An empty row at the end begins behind the last character: cut that off.
    begins_row = tf.scatter_nd(row_splits[:-1, tf.newaxis], tf.ones_like(row_splits[:-1], tf.int32), [count + 1])[:-1]
    is_kept, begins_word = find_words(points, begins_row > 0)
    begins = tf.where(begins_word)[:, 0]
    word_splits = tf.searchsorted(begins, row_splits)  # the words before each row
    kept = tf.boolean_mask(points, is_kept)
    borders = tf.gather(tf.cumsum(tf.cast(is_kept, tf.int64), exclusive=True), begins)
    borders = tf.concat([borders, tf.size(kept, out_type=tf.int64)[tf.newaxis]], axis=0)
    words = tf.strings.unicode_encode(tf.RaggedTensor.from_row_splits(kept, borders, validate=False), "UTF-8")

    distinct, word_ids = tf.unique(words)
    encoded = encode_words(distinct, with_offsets)
    starts = tf.cast(begins - tf.gather(row_splits, row_ids(word_splits)), tf.int32) if with_offsets else None
    return tokens_of_words(encoded, word_ids, word_splits, starts)


def tokens_of_words(encoded: Tokens, places: tf.Tensor, row_splits: tf.Tensor, starts: tf.Tensor | None) -> Tokens:
    """Puts the tokens of all words of a batch of texts together.

    Args:
        encoded: `Tokens` of distinct words.
        places: For each word of the texts, row after row, its place among the distinct ones: integers `(words,)`.
        row_splits: The words before each row, int64 `(batch + 1,)`.
        starts: For each word of the texts its first character, int32 `(words,)`; `None` for no positions.
    """
    tf = import_tensorflow()
    first = tf.gather(encoded.ids.row_starts(), places)
    lengths = tf.gather(encoded.ids.row_lengths(), places)
    taken = tf.ragged.range(first, first + lengths)
    ids = tf.RaggedTensor.from_row_splits(
        tf.gather(encoded.ids.values, taken.values), tf.gather(taken.row_splits, row_splits), validate=False
    )
    if starts is None:
        return Tokens(ids)
    starts = repeat(starts, lengths)
    return Tokens(ids, *(starts + tf.gather(part, taken.values) for part in (encoded.starts, encoded.ends)))


def cumulative_in_rows(values: tf.Tensor, row_splits: tf.Tensor) -> tf.Tensor:
    """Running sums of int32 values, restarted at each row and including the value itself."""
    tf = import_tensorflow()
    total = tf.cumsum(values)
    before = tf.gather(tf.concat([[0], total], axis=0), row_splits[:-1])
    return total - tf.gather(before, row_ids(row_splits))
