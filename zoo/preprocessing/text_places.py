"""Which tokens of a text belong to which of its words, by their places."""

from typing import Any

from zoo.tokenizers.tensors import row_ids


def first_tokens(tokens: tuple[Any, Any], word_starts: Any, word_ends: Any) -> tuple[Any, Any]:
    """Returns the first token of each word that holds a part of it; a graph function.

    A token may begin before the word, with a space or with other words.

    Args:
        tokens: Where tokens start and end, ragged `(batch, None)`, in ascending order. An empty token is of no word.
        word_starts, word_ends: Where words start and end in the same unit, ragged int64 `(batch, None)`.

    Returns:
        Ragged `(first, begin)`, `(batch, words)`: the number of the token in its row, int32, the largest integer for a
        word without tokens; and how many tokens end before the word, int64.
    """
    import tensorflow as tf

    starts, ends = (tf.cast(part, tf.int64) for part in tokens)
    row = row_ids(word_starts.row_splits)
    before = _count_up_to(ends, word_starts)
    count = tf.size(starts.values, out_type=tf.int64)
    # a row may have no tokens after these: the start of one behind all
    after = tf.concat([starts.values, [0]], axis=0)
    place = before + tf.gather(starts.row_starts(), row)
    holds = (before < tf.gather(starts.row_lengths(), row)) & (
        tf.gather(after, tf.minimum(place, count)) < word_ends.values
    )
    first = tf.where(holds, tf.cast(before, tf.int32), tf.int32.max)
    return word_starts.with_values(first), word_starts.with_values(before)


def word_numbers(tokens: tuple[Any, Any], word_ends: Any) -> Any:
    """Returns the number of the word that each token begins in, ragged int32 `(batch, tokens)`; a graph function.

    Words in which no token begins are not counted, so that no number is above that of the token. A space belongs to the
    word after it.

    Args:
        tokens: Where tokens start and end, ragged `(batch, None)`, in ascending order.
        word_ends: Where words end in the same unit, ragged int64 `(batch, None)`.
    """
    import tensorflow as tf

    starts = tf.cast(tokens[0], tf.int64)
    row = row_ids(starts.row_splits)
    word = _count_up_to(word_ends, starts)
    same = tf.concat([[False], (word[1:] == word[:-1]) & (row[1:] == row[:-1])], axis=0)[: tf.size(word)]
    number = tf.cumsum(tf.cast(~same, tf.int32))
    first = tf.gather(tf.concat([number, [0]], axis=0), starts.row_starts())
    return starts.with_values(number - tf.gather(first, row))


def _count_up_to(ends: Any, starts: Any) -> Any:
    """How many of the ends in its row are at most each start, int64 `(all starts,)`."""
    import tensorflow as tf

    size = 1 + tf.reduce_max(tf.concat([ends.values, starts.values, [0]], axis=0))
    found = tf.searchsorted(
        row_ids(ends.row_splits) * size + ends.values,
        row_ids(starts.row_splits) * size + starts.values,
        side="right",
        out_type=tf.int64,
    )
    return found - tf.gather(ends.row_starts(), row_ids(starts.row_splits))
