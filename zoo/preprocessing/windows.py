"""Long texts as windows that overlap: which tokens each window holds, and which of them it is asked about."""

from typing import Any, NamedTuple

from zoo.tokenizers.tensors import repeat


class Windows(NamedTuple):
    """Parts of the rows of a batch, in their order; integers count tokens.

    Args:
        row: Number of the row that each window is from, int64 `(windows,)`.
        first: Its first token in the row, int64 `(windows,)`.
        size: Number of its tokens, int64 `(windows,)`; 0 for a row without tokens.
        own_first, own_end: The tokens, counted in the window, that have more of their surroundings in this window than
            in others: `own_first` to `own_end - 1`. Each token of a row is one of one window's own, int64 `(windows,)`.
    """

    row: Any
    first: Any
    size: Any
    own_first: Any
    own_end: Any


def make_windows(lengths: Any, room: Any, overlap: Any) -> Windows:
    """Returns the windows of rows; a graph function.

    Args:
        lengths: Tokens of each row, int64 `(rows,)`.
        room: Most tokens of a window of each row, at least 1, int64 `(rows,)`.
        overlap: Tokens that neighbours share; at most half of `room`, int64 `(rows,)`.

    Example:

    >>> windows = make_windows(*(tf.constant([value], tf.int64) for value in (10, 6, 2)))
    >>> [part.numpy().tolist() for part in (windows.first, windows.size, windows.own_first, windows.own_end)]
    [[0, 4], [6, 6], [0, 1], [5, 6]]

    Reference:
        Devlin et al. 2019, "BERT", and its code (`doc_stride`, `_check_is_max_context`).
    """
    import tensorflow as tf

    step = room - overlap
    counts = 1 + -(-tf.maximum(lengths - room, 0) // step)
    row = repeat(tf.range(tf.size(lengths, out_type=tf.int64)), counts)
    number = tf.ragged.range(counts).values
    lengths, room, overlap, step = (tf.gather(part, row) for part in (lengths, room, overlap, step))
    first = number * step
    size = tf.minimum(room, lengths - first)
    half = overlap // 2
    own_first = tf.where(number == 0, tf.zeros_like(half), half)
    own_end = tf.where(first + size < lengths, step + half, size)
    return Windows(row, first, size, own_first, own_end)


def take_window(values: Any, windows: Windows) -> Any:
    """Returns the values of each window, ragged `(windows, None)`; a graph function.

    Args:
        values: A value per token, ragged `(rows, None)`.
        windows: The windows.
    """
    import tensorflow as tf

    begin = tf.gather(tf.cast(values.row_starts(), tf.int64), windows.row) + windows.first
    places = tf.ragged.range(begin, begin + windows.size)
    return places.with_values(tf.gather(values.values, places.values))
