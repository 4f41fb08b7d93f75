"""Turns arguments of a tokenizer into tensors, with errors that name the row."""

from __future__ import annotations

from types import ModuleType
from typing import TYPE_CHECKING, Any

import numpy as np

from zoo.columns import is_list, listed

if TYPE_CHECKING:
    import tensorflow as tf


def import_tensorflow() -> ModuleType:
    """Returns the tensorflow module, with the operations on texts. Imported late, as token ids need neither.

    Raises:
        ImportError: TensorFlow or TensorFlow Text is not installed.
    """
    try:
        import tensorflow as tf
        import tensorflow_text  # noqa: F401  (registers the text operations)
    except ImportError as error:
        raise ImportError(
            "Texts need TensorFlow and TensorFlow Text, whatever the Keras backend: pip install tensorflow "
            "tensorflow-text (on Windows in WSL 2). Token ids need neither."
        ) from error
    return tf


def as_text_tensor(texts: Any) -> tf.Tensor:
    """Converts one text or a batch of texts to a `tf.string` tensor of rank 0 or 1.

    Args:
        texts: `str`, `bytes`, a flat list, column or NumPy array of these, or a `tf.string` tensor of rank 0 or 1.

    Raises:
        TypeError: A value is not text.
        ValueError: The rank is above 1 or unknown, or a `str` holds a lone surrogate, which UTF-8 can't encode.
    """
    tf = import_tensorflow()
    if isinstance(texts, (str, bytes)):
        return tf.constant(_encode(texts, "texts"))
    texts = listed(texts)
    if is_list(texts) or (isinstance(texts, np.ndarray) and texts.ndim):
        return tf.constant([_encode(text, f"texts[{row}]") for row, text in enumerate(texts)], dtype=tf.string)
    if isinstance(texts, tf.RaggedTensor):
        raise ValueError(f"texts must be one text or a flat batch of texts, got a ragged tensor {texts.shape}.")
    tensor = tf.convert_to_tensor(texts)
    if tensor.dtype != tf.string:
        raise TypeError(f"texts must be strings, got a tensor of {tensor.dtype.name}.")
    if tensor.shape.rank is None or tensor.shape.rank > 1:
        raise ValueError(f"texts must be a tensor of rank 0 or 1, got shape {tensor.shape}.")
    return tensor


def row_ids(row_splits: tf.Tensor) -> tf.Tensor:
    """Returns the row of each value of a ragged tensor with these row splits.

    `value_rowids` and `tf.repeat` of TensorFlow fill a matrix of all rows by the longest one on the way: gigabytes for
    many short texts and a long one. This takes as much memory as there are values.

    Args:
        row_splits: Where rows begin and end, int32 or int64 `(rows + 1,)`.

    Example:

    >>> row_ids(tf.constant([0, 2, 2, 3]))
    [0, 0, 2]
    """
    tf = import_tensorflow()
    begins, size = row_splits[1:-1], row_splits[-1]
    steps = tf.scatter_nd(begins[:, None], tf.ones_like(begins), tf.reshape(size + 1, [1]))
    return tf.cumsum(steps)[:size]


def repeat(values: tf.Tensor, counts: tf.Tensor) -> tf.Tensor:
    """Returns each of the values as often as its count says, see `row_ids`.

    Args:
        values: `(rows, ...)`.
        counts: int32 or int64 `(rows,)`.
    """
    tf = import_tensorflow()
    return tf.gather(values, row_ids(tf.concat([tf.zeros([1], counts.dtype), tf.cumsum(counts)], axis=0)))


def keep_values(ragged: tf.RaggedTensor, keep: tf.Tensor) -> tf.RaggedTensor:
    """Returns a ragged tensor without some of its values, as `tf.ragged.boolean_mask`, see `row_ids`.

    Args:
        ragged: Of any values, ragged in one axis.
        keep: Which values stay, bool `(values,)`.
    """
    tf = import_tensorflow()
    before = tf.concat([[0], tf.cumsum(tf.cast(keep, ragged.row_splits.dtype))], axis=0)
    values = tf.boolean_mask(ragged.values, keep)
    return tf.RaggedTensor.from_row_splits(values, tf.gather(before, ragged.row_splits), validate=False)


def join_rows(texts: tf.RaggedTensor) -> tf.Tensor:
    """Returns the strings of each row joined, `tf.string` `(rows,)`, as `tf.strings.reduce_join`, see `row_ids`.

    Args:
        texts: Ragged `tf.string` `(rows, None)`.
    """
    tf = import_tensorflow()
    return tf.strings.unsorted_segment_join(texts.values, row_ids(texts.row_splits), texts.nrows())


def _encode(text: Any, name: str) -> bytes:
    if isinstance(text, bytes):
        return text
    if not isinstance(text, str):
        raise TypeError(f"{name} must be str or bytes, got {text!r} of type {type(text).__name__}.")
    try:
        return text.encode("utf-8")
    except UnicodeEncodeError as error:
        raise ValueError(f"{name} can't be encoded as UTF-8: {error}.") from error


def as_ragged_ids(ids: Any) -> tuple[tf.RaggedTensor, bool]:
    """Converts one row or a batch of rows of token ids to a ragged int32 tensor.

    Args:
        ids: Integers: a ragged tensor of rank 2, a dense tensor or array of rank 1 or 2, a list of ids or of rows.

    Returns:
        `(ragged, is_single)`: a `tf.RaggedTensor` of shape `(batch, None)`, and whether `ids` had rank 1.

    Raises:
        TypeError: The values are not integers.
        ValueError: The rank is unknown or neither 1 nor 2.
    """
    tf = import_tensorflow()
    ids = listed(ids)
    if is_list(ids):
        rows = [np.asarray(row) for row in ids]
        if any(row.ndim != 0 for row in rows):
            for number, row in enumerate(rows):
                if row.ndim != 1:
                    raise ValueError(f"ids[{number}] must be a row of token ids, got {ids[number]!r}.")
            lengths = [row.size for row in rows]
            values = np.concatenate([row for row in rows if row.size] or [np.zeros(0, np.int32)])
            ids = tf.RaggedTensor.from_row_lengths(_as_int32(values), lengths, validate=False)
        else:
            ids = np.asarray(ids) if rows else np.zeros(0, np.int32)
    if isinstance(ids, tf.RaggedTensor):
        if ids.ragged_rank != 1 or ids.flat_values.shape.rank != 1:
            raise ValueError(f"ids must have rank 1 or 2, got a ragged tensor of shape {ids.shape}.")
        return ids.with_values(_as_int32(ids.values)), False
    ids = _as_int32(ids)
    if ids.shape.rank == 1:
        return tf.RaggedTensor.from_row_lengths(ids, tf.shape(ids, tf.int64), validate=False), True
    if ids.shape.rank == 2:
        return tf.RaggedTensor.from_tensor(ids), False
    raise ValueError(f"ids must have rank 1 or 2, got shape {ids.shape}.")


def _as_int32(ids: Any) -> tf.Tensor:
    tf = import_tensorflow()
    if not tf.is_tensor(ids):
        ids = np.asarray(ids)
        if not np.issubdtype(ids.dtype, np.integer):
            raise TypeError(f"ids must be integers, got {ids.dtype.name}.")
    elif not ids.dtype.is_integer:
        raise TypeError(f"ids must be integers, got {ids.dtype.name}.")
    ids = tf.convert_to_tensor(ids)
    if ids.dtype.max > tf.int32.max:
        # a cast would make another id of them; the largest number is one that no vocabulary has
        low, high = max(ids.dtype.min, tf.int32.min), tf.int32.max
        ids = tf.clip_by_value(ids, tf.constant(low, ids.dtype), tf.constant(high, ids.dtype))
    return tf.cast(ids, tf.int32)


def as_utf8(texts: Any) -> tf.Tensor:
    """Returns texts in which U+FFFD stands for bytes that are not valid UTF-8; a graph function.

    Args:
        texts: `tf.string` of any shape.
    """
    return import_tensorflow().strings.unicode_transcode(texts, "UTF-8", "UTF-8", errors="replace")


def as_ragged_texts(words: Any) -> tf.RaggedTensor:
    """Converts a batch of rows of words to a ragged `tf.string` tensor `(batch, None)`.

    Args:
        words: A ragged `tf.string` tensor of rank 2, or a list of lists of `str` or `bytes`.

    Raises:
        TypeError: A word is not text; the message names its row and position.
        ValueError: The rank is not 2, or a word can't be encoded as UTF-8.
    """
    tf = import_tensorflow()
    if isinstance(words, tf.RaggedTensor):
        if words.dtype != tf.string:
            raise TypeError(f"words must be strings, got a ragged tensor of {words.dtype.name}.")
        if words.ragged_rank != 1 or words.flat_values.shape.rank != 1:
            raise ValueError(f"words must have rank 2, got a ragged tensor of shape {words.shape}.")
        return words
    words = listed(words)
    if not is_list(words):
        raise TypeError(f"words must be a ragged tensor or a list of lists of words, got {type(words).__name__}.")
    for row, entry in enumerate(words):
        if not (is_list(entry) or isinstance(entry, np.ndarray)):
            raise TypeError(f"words[{row}] must be a list of words, got {entry!r}.")
    flat = [
        _encode(word, f"words[{row}][{position}]")
        for row, entry in enumerate(words)
        for position, word in enumerate(entry)
    ]
    return tf.RaggedTensor.from_row_lengths(
        tf.constant(flat, tf.string, shape=[len(flat)]), [len(row) for row in words], validate=False
    )
