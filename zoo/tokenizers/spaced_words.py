"""Splits texts at their spaces and keeps each distinct word once: most of the work of a tokenizer is done per word."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, NamedTuple

from zoo.tokenizers.distinct import code_points_of, cumulative_in_rows, following, previous
from zoo.tokenizers.tensors import import_tensorflow

if TYPE_CHECKING:
    import tensorflow as tf


class SpacedWords(NamedTuple):
    """Words of a batch of texts, each distinct one once.

    Attributes:
        words: `tf.string` `(distinct,)`.
        places: For each word of the texts, row after row, its place among `words`: int32 `(words,)`.
        row_splits: The words before each row, int64 `(batch + 1,)`.
        starts: For each word of the texts its first character, int32 `(words,)`; `None` where not asked for.
    """

    words: Any
    places: Any
    row_splits: Any
    starts: Any = None


def words_at_spaces(
    texts: tf.Tensor, apart: str, *, keeps_space: bool = True, with_starts: bool = False
) -> SpacedWords:
    r"""Splits texts at each space between two pieces that stand apart; nothing is dropped but that space.

    A word holds the space before it where `keeps_space` says so, and all spaces at which it is not split. No word is
    empty, but for that of an empty text without `keeps_space`.

    Args:
        texts: `tf.string` `(batch,)`.
        apart: A regular expression of RE2. A piece between two spaces stands apart if it matches as a whole, which an
            empty piece must not.
        keeps_space: Whether words hold the space before them. If not, the first word of a text is like all others;
            else the space at the beginning of a text is the beginning of a word too.
        with_starts: Whether to return the position of each word. Only with `keeps_space`.

    Example:

    >>> words_at_spaces(tf.constant(["a b  c", "b b"]), "[a-z]+").words
    <tf.Tensor: shape=(7,), dtype=string, numpy=array([b' a', b' b', b' ', b' c', b'a', b' b  c', b'b'], dtype=object)>
    """
    tf = import_tensorflow()
    # The work on all pieces is on numbers; strings are looked at once each.
    split = tf.raw_ops.StringSplitV2(input=texts, sep=" ", maxsplit=-1)
    rows, is_first = split.indices[:, 0], split.indices[:, 1] == 0
    distinct, numbers = tf.unique(split.values)
    stands_apart = tf.strings.regex_full_match(distinct, apart)
    is_apart = tf.gather(stands_apart, numbers)
    ends_apart = is_apart
    if keeps_space:
        begins_with_space = is_first & tf.gather(distinct == "", numbers)  # or is empty
        ends_apart |= begins_with_space
    begins = is_first | (is_apart & previous(ends_apart, False))
    is_joined = ~begins | following(~begins, False)
    if keeps_space:
        is_joined |= is_first
        begins_with_space &= following(begins, True)
        is_joined &= ~begins_with_space
        first_pieces = tf.where(begins & ~begins_with_space)[:, 0]
    else:
        first_pieces = tf.where(begins)[:, 0]
    places = tf.gather(numbers, first_pieces)
    row_splits = tf.searchsorted(
        tf.gather(rows, first_pieces), tf.range(tf.size(texts, out_type=tf.int64) + 1), out_type=tf.int64
    )

    # Words of several pieces, and those without a space before them, are put together from their pieces.
    pieces = tf.where(is_joined)[:, 0]
    begins_joined = tf.gather(begins, pieces)
    parts = tf.gather(split.values, pieces)
    is_bare = tf.gather(is_first, pieces) if keeps_space else begins_joined
    joined = tf.strings.unsorted_segment_join(  # which would leave out separators behind what is empty
        tf.where(is_bare, parts, tf.strings.join([" ", parts])),
        tf.cumsum(tf.cast(begins_joined, tf.int64)) - 1,
        tf.math.count_nonzero(begins_joined),
    )
    words = tf.strings.join([" ", distinct]) if keeps_space else distinct
    distinct_joined, joined_numbers = tf.unique(joined)
    places = tf.tensor_scatter_nd_update(
        places, tf.where(tf.gather(is_joined, first_pieces)), tf.size(words) + joined_numbers
    )
    words = tf.concat([words, distinct_joined], axis=0)
    if not with_starts:
        return SpacedWords(words, places, row_splits)
    lengths = tf.gather(tf.cast(code_points_of(distinct).row_lengths(), tf.int32) + 1, numbers)
    piece_splits = tf.searchsorted(rows, tf.range(tf.size(texts, out_type=tf.int64) + 1))
    starts = cumulative_in_rows(lengths, piece_splits) - lengths - tf.cast(~is_first, tf.int32)
    return SpacedWords(words, places, row_splits, tf.gather(starts, first_pieces))
