"""From ragged token ids to padded batches: rows of similar length in one batch, lengths of few kinds."""

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from zoo.tokenizers.tensors import as_utf8, keep_values, row_ids


def map_by_length(
    function: Callable[[np.ndarray], Sequence[Any]], lengths: Sequence[int], batch_size: int
) -> list[Any]:
    """Calls a function on batches of rows of similar length, and returns its results in the order of the rows.

    Batches of similar length need less padding. `predict`, `generate`, `score` and `embed` of tasks use this function.

    Args:
        function: Maps the indices of the rows of a batch, int64 `(rows,)`, to one result per row: an array or a list.
        lengths: Number of tokens of each row.
        batch_size: Largest number of rows of a batch.

    Returns:
        One result per row.

    Example:

    >>> texts = ["four words are here", "one", "two words"]
    >>> map_by_length(lambda rows: [texts[row].upper() for row in rows], [4, 1, 2], batch_size=2)
    ['FOUR WORDS ARE HERE', 'ONE', 'TWO WORDS']
    """
    order = np.argsort(np.asarray(lengths, "int64"), kind="stable")
    results: list[Any] = [None] * len(order)
    for start in range(0, len(order), batch_size):
        rows = order[start : start + batch_size]
        for row, result in zip(rows, function(rows), strict=True):
            results[row] = result
    return results


def padded_length(longest: Any, most: int | None = None) -> Any:
    """Returns the length that a batch is padded to, one of few, so that XLA compiles few programs.

    The lengths are 8, 16, 24, 32, 40, 48, 56, 64, 80, 96, 112, 128, 160 and so on: multiples of 8 up to 64, then four
    lengths for each doubling. Above 64 a row grows by less than a quarter. Up to 512 tokens need at most 20 programs.

    Args:
        longest: Number of tokens of the longest row: a Python integer, or an integer tensor of TensorFlow (in a graph).
        most: Largest number of tokens of the model. Rows are not padded beyond it, and longer rows keep their length.

    Returns:
        The length, at least 1: a Python integer or a tensor, like `longest`.

    Example:

    >>> [padded_length(longest) for longest in (1, 8, 9, 65, 100)]
    [8, 8, 16, 80, 112]
    >>> padded_length(65, most=70)
    70
    """
    if isinstance(longest, (int, np.integer)):
        step = max(8, 1 << max(int(longest) - 1, 0).bit_length() >> 3)
        length = max(-(-int(longest) // step), 1) * step
        return length if most is None else max(min(length, most), int(longest), 1)
    import tensorflow as tf

    # the number of bits of longest - 1
    powers = tf.constant([1 << bit for bit in range(31)], longest.dtype)
    bits = tf.reduce_sum(tf.cast(longest > powers, tf.int32))
    step = tf.maximum(tf.bitwise.left_shift(tf.ones_like(longest), tf.cast(bits, longest.dtype)) // 8, 8)
    length = tf.maximum(-(-longest // step), 1) * step
    return length if most is None else tf.maximum(tf.maximum(tf.minimum(length, most), longest), 1)


def checked_lengths(inputs: dict[str, Any], longest: int | None) -> dict[str, Any]:
    """Returns token-level inputs that are an `InvalidArgumentError`, naming rows, where a row is too long.

    Args:
        inputs: Token-level inputs; those named `*padding_mask` are looked at, `(batch, length)`.
        longest: Most tokens that the model takes; None for any number.

    Example:

    >>> checked_lengths({"padding_mask": tf.ones((1, 5), tf.bool)}, longest=4)
    InvalidArgumentError: A text has more tokens than the model takes (4); rows and their tokens: [0] [5]
    """
    import tensorflow as tf

    checks = []
    for name, mask in inputs.items() if longest is not None else ():
        if name.endswith("padding_mask"):
            lengths = tf.reduce_sum(tf.cast(mask, tf.int32), axis=1)
            rows = tf.where(lengths > longest)[:, 0]
            message = f"A text has more tokens than the model takes ({longest}); rows and their tokens:"
            checks.append(tf.debugging.Assert(tf.equal(tf.size(rows), 0), [message, rows, tf.gather(lengths, rows)]))
    with tf.control_dependencies([check for check in checks if check is not None]):
        return {name: tf.identity(value) for name, value in inputs.items()}


def require_all(allowed: Any, values: Any, message: str) -> Any:
    """Returns values that are an `InvalidArgumentError`, naming rows, where one is not allowed; a graph function.

    Args:
        allowed: Bool, the shape of `values`.
        values: A tensor.
        message: What is allowed; rows and values follow.

    Example:

    >>> require_all(tf.constant([True, False]), tf.constant([1, 7]), "Every value must be 1; rows and values:")
    InvalidArgumentError: Every value must be 1; rows and values: [[1]] [7]
    """
    import tensorflow as tf

    rows = tf.where(~allowed)
    shown = tf.gather_nd(values, rows)
    # Python cannot read a message with other bytes
    shown = as_utf8(shown) if shown.dtype == tf.string else shown
    check = tf.debugging.Assert(tf.equal(tf.size(rows), 0), [message, rows, shown])
    with tf.control_dependencies([] if check is None else [check]):
        return tf.identity(values)


def checked_weights(sample_weight: Any) -> Any:
    """Returns weights of rows, float32 `(batch,)`, an `InvalidArgumentError` where one is negative or not finite.

    Args:
        sample_weight: Weight of each row, `(batch,)` or `(batch, 1)`, or None.

    Raises:
        ValueError: If the shape is another.
    """
    if sample_weight is None:
        return None
    import tensorflow as tf

    weights = tf.cast(sample_weight, tf.float32)
    # readers of CSV files give a column
    if weights.shape.rank == 2 and weights.shape[1] == 1:
        weights = weights[:, 0]
    if weights.shape.rank not in (None, 1):
        raise ValueError(f"A dataset must hold one weight per row, of the shape (batch,), got {tuple(weights.shape)}.")
    allowed = tf.math.is_finite(weights) & (weights >= 0)
    return require_all(allowed, weights, "Every weight must be a finite number of at least 0; rows and weights:")


def add_start_end(ids: Any, start_id: int | None, end_id: int | None, max_length: int | None = None) -> Any:
    """Returns ragged ids `(batch, None)` with a start token before and an end token after each row; a graph function.

    Args:
        ids: Ragged int32 ids `(batch, None)`.
        start_id, end_id: The tokens to add; None adds none.
        max_length: Largest number of tokens of a row, added tokens included. Longer rows lose tokens on the right,
            never the added ones. None for no limit.

    Raises:
        TypeError: If the ids are not ragged.
        ValueError: If `max_length` leaves no room for a token of the text.

    Example:

    >>> add_start_end(tf.ragged.constant([[5, 6, 7], []]), start_id=1, end_id=2, max_length=4).to_list()
    [[1, 5, 6, 2], [1, 2]]
    """
    import tensorflow as tf

    if not isinstance(ids, tf.RaggedTensor):
        raise TypeError(f"ids must be a tf.RaggedTensor, got {type(ids).__name__}.")
    added = [token_id for token_id in (start_id, end_id) if token_id is not None]
    if max_length is not None:
        if max_length <= len(added):
            raise ValueError(f"max_length must be above the number of added tokens, {len(added)}, got {max_length}.")
        ids = ids[:, : max_length - len(added)]
    if not added:
        return ids
    # a concatenation of ragged tensors makes three times as many operations
    splits = ids.row_splits
    new_splits = splits + len(added) * tf.range(tf.size(splits, splits.dtype))
    values = tf.fill([new_splits[-1]], tf.cast(added[-1], ids.dtype))
    moved = row_ids(splits) * len(added) + (0 if start_id is None else 1)
    places = tf.range(tf.size(ids.values, splits.dtype)) + moved
    values = tf.tensor_scatter_nd_update(values, places[:, None], ids.values)
    if len(added) == 2:
        begins = new_splits[:-1]
        values = tf.tensor_scatter_nd_update(
            values, begins[:, None], tf.fill(tf.shape(begins), tf.cast(start_id, ids.dtype))
        )
    return tf.RaggedTensor.from_row_splits(values, new_splits, validate=False)


def pack(
    parts: Sequence[Any],
    *,
    start_id: int | None,
    end_id: int | None,
    max_length: int | None = None,
    pair_separators: int = 1,
) -> tuple[Any, Any]:
    """Joins the tokens of one text, or of a pair, to one row: `[start] first [end] second [end]`.

    Args:
        parts: One or two ragged tensors of ids, `(batch, None)`.
        start_id, end_id: The tokens to add; None adds none.
        max_length: Longest row; the longer text of a pair is cut first, until both are equally long, then both.
            None cuts nothing.
        pair_separators: Number of end tokens between the texts of a pair: 1 in BERT, 2 in RoBERTa.

    Returns:
        `(token_ids, segment_ids)`, ragged int32 `(batch, None)`; the segment is 0 up to the end token behind the first
        text, and 1 from there on.

    Raises:
        ValueError: If `max_length` leaves no room for a token of each text.

    Example:

    >>> pack([tf.ragged.constant([[5, 6]]), tf.ragged.constant([[7]])], start_id=1, end_id=2)[0].to_list()
    [[1, 5, 6, 2, 7, 2]]

    Reference:
        Devlin et al. 2019, "BERT", section 3 and its code (`_truncate_seq_pair`).
    """
    import tensorflow as tf

    added = added_count(len(parts), start_id, end_id, pair_separators)
    if max_length is not None:
        budget = max_length - added
        if budget < len(parts):
            raise ValueError(
                f"max_length must leave room for tokens besides the {added} special tokens that are added, got "
                f"{max_length}."
            )
        parts = _cut(parts, budget)
    rows = parts[0].nrows()

    def filled(value: int | None, count: int = 1) -> list[Any]:
        return [] if value is None else [tf.fill([rows, count], tf.cast(value, tf.int32))]

    pieces = [[*filled(start_id), parts[0], *filled(end_id)]]
    if len(parts) == 2:
        pieces.append([*filled(end_id, pair_separators - 1), parts[1], *filled(end_id)])
    joined = [tf.concat(piece, axis=1) if len(piece) > 1 else piece[0] for piece in pieces]
    joined = [tf.RaggedTensor.from_tensor(part) if isinstance(part, tf.Tensor) else part for part in joined]
    segments = [part.with_values(tf.fill(tf.shape(part.values), number)) for number, part in enumerate(joined)]
    if len(joined) == 1:
        return joined[0], segments[0]
    return tf.concat(joined, axis=1), tf.concat(segments, axis=1)


def added_count(parts: int, start_id: int | None, end_id: int | None, pair_separators: int = 1) -> int:
    """Returns how many special tokens `pack` adds to a row.

    Args:
        parts: Number of texts of a row, 1 or 2.
        start_id, end_id, pair_separators: As for `pack`.
    """
    ends = 0 if end_id is None else 1 if parts == 1 else 1 + pair_separators
    return ends + (start_id is not None)


def _cut(parts: Sequence[Any], budget: int) -> list[Any]:
    import tensorflow as tf

    if len(parts) == 1:
        return [parts[0][:, :budget]]
    first, second = (part.row_lengths() for part in parts)
    kept = tf.minimum(first, tf.maximum(budget - second, (budget + 1) // 2))
    return [_shorten(parts[0], kept), _shorten(parts[1], tf.minimum(second, budget - kept))]


def _shorten(ids: Any, lengths: Any) -> Any:
    """Rows cut to a length of their own."""
    import tensorflow as tf

    positions = tf.ragged.range(ids.row_lengths())
    keep = positions.values < tf.gather(lengths, row_ids(ids.row_splits))
    return keep_values(ids, keep)


def to_dense(ids: Any, pad_id: int, longest: int | None = None) -> tuple[Any, Any]:
    """Returns ids and their mask, `(batch, length)`, padded to one of few lengths; a graph function.

    The mask comes from the lengths of the rows: a text may hold the padding token, as it does where the end token also
    pads.

    Args:
        ids: Ragged ids `(batch, None)`.
        pad_id: What to pad with.
        longest: Most tokens that the model takes: see `padded_length`. A row that is longer stays so.
    """
    import tensorflow as tf

    lengths = ids.row_lengths()
    length = padded_length(tf.reduce_max(tf.concat([lengths, [1]], axis=0)), longest)
    token_ids = ids.to_tensor(tf.cast(pad_id, ids.dtype), shape=tf.stack([-1, length]))
    # a batch size that is known stays known
    token_ids.set_shape([ids.shape[0], None])
    return token_ids, tf.sequence_mask(lengths, length)
