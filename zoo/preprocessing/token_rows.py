"""Graph functions from ragged token ids to token-level inputs that several preprocessors share."""

from collections.abc import Sequence
from typing import Any

from zoo.preprocessing.batching import padded_length


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
                f"A sequence length of {max_length} leaves no room for tokens: {added} special tokens are added."
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
    """Returns how many special tokens `pack` adds to a row of one text or two."""
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
    keep = positions.values < tf.gather(lengths, ids.value_rowids())
    return tf.ragged.boolean_mask(ids, ids.with_values(keep))


def dense(ids: Any, pad_id: int, longest: int | None = None) -> tuple[Any, Any]:
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
