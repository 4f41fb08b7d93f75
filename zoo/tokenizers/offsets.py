"""Positions in texts: between bytes and characters."""

from __future__ import annotations

from typing import TYPE_CHECKING

from zoo.tokenizers.tensors import import_tensorflow, repeat, row_ids

if TYPE_CHECKING:
    import tensorflow as tf

_ROW = 2**32  # above the length of every text


def _byte_borders(texts: tf.Tensor) -> tf.RaggedTensor:
    """First byte of each character and, after those, the length of the text in bytes: ragged int64."""
    tf = import_tensorflow()
    _, starts = tf.strings.unicode_decode_with_offsets(texts, "UTF-8", errors="replace")
    lengths = tf.cast(tf.strings.length(texts), tf.int64)
    return tf.concat([starts, lengths[:, tf.newaxis]], axis=1)


def to_bytes(texts: tf.Tensor, ids: tf.RaggedTensor, starts: tf.Tensor, ends: tf.Tensor) -> tuple[tf.Tensor, tf.Tensor]:
    """Converts positions in characters to positions in bytes.

    Args:
        texts: `tf.string` `(batch,)`.
        ids: Ragged tensor of the tokens, `(batch, None)`.
        starts, ends: Flat int32 positions of the tokens in characters.

    Returns:
        Flat int32 positions in bytes, `(starts, ends)`.
    """
    tf = import_tensorflow()
    borders = _byte_borders(texts)
    first = repeat(borders.row_starts(), ids.row_lengths())
    return tuple(
        tf.cast(tf.gather(borders.values, first + tf.cast(part, tf.int64)), tf.int32) for part in (starts, ends)
    )


def to_characters(
    texts: tf.Tensor, ids: tf.RaggedTensor, starts: tf.Tensor, ends: tf.Tensor
) -> tuple[tf.Tensor, tf.Tensor]:
    """Converts positions in bytes to positions in characters. A part of a character counts as the whole.

    Args:
        texts: `tf.string` `(batch,)`.
        ids: Ragged tensor of the tokens, `(batch, None)`.
        starts, ends: Flat positions of the tokens in bytes.

    Returns:
        Flat int32 positions in characters, `(starts, ends)`.
    """
    tf = import_tensorflow()
    borders = _byte_borders(texts)
    # One sorted vector of (row, byte) for the whole batch.
    border_keys = row_ids(borders.row_splits) * _ROW + borders.values
    token_rows = row_ids(ids.row_splits)
    row_starts = tf.gather(borders.row_starts(), token_rows)
    start_keys, end_keys = (token_rows * _ROW + tf.cast(part, tf.int64) for part in (starts, ends))
    first = tf.searchsorted(border_keys, start_keys, side="right") - 1
    last = tf.searchsorted(border_keys, end_keys, side="left")
    # A token may have no bytes of its own: the space that is put before a text, all but one byte of a character.
    characters = tf.gather(borders.row_lengths() - 1, token_rows)
    first = tf.cast(first, tf.int64) - row_starts
    last = tf.minimum(tf.maximum(tf.cast(last, tf.int64) - row_starts, first + 1), characters)
    return tf.cast(first, tf.int32), tf.cast(last, tf.int32)
