"""From ragged token ids to the dense, padded inputs of a model."""

from __future__ import annotations

from zoo.tokenizers.tensors import import_tensorflow


def add_start_end(ids, start_id: int | None, end_id: int | None, max_length: int | None = None):
    """Puts a start token before and an end token after each row.

    Args:
        ids: `tf.RaggedTensor` of int32 ids, shape `(batch, None)`.
        start_id, end_id: The tokens to add; `None` adds none.
        max_length: Longest row that is returned, in tokens, the added ones included. Longer rows lose tokens at their
            right, never the added ones. `None` cuts nothing.

    Returns:
        `tf.RaggedTensor` of shape `(batch, None)`.

    Raises:
        TypeError: `ids` is not ragged.
        ValueError: `max_length` leaves no room for a token of the text.

    Example:

    >>> add_start_end(tf.ragged.constant([[5, 6, 7], []]), start_id=1, end_id=2, max_length=4).to_list()
    [[1, 5, 6, 2], [1, 2]]
    """
    tf = import_tensorflow()
    if not isinstance(ids, tf.RaggedTensor):
        raise TypeError(f"ids must be a tf.RaggedTensor, got {type(ids).__name__}.")
    added = [token_id for token_id in (start_id, end_id) if token_id is not None]
    if max_length is not None:
        if max_length <= len(added):
            raise ValueError(f"max_length={max_length} must be above the number of added tokens, {len(added)}.")
        ids = ids[:, : max_length - len(added)]
    parts = [ids]
    if start_id is not None:
        parts.insert(0, tf.fill([ids.nrows(), 1], tf.cast(start_id, ids.dtype)))
    if end_id is not None:
        parts.append(tf.fill([ids.nrows(), 1], tf.cast(end_id, ids.dtype)))
    return tf.concat(parts, axis=1) if added else ids


def to_dense(ids, pad_id: int, multiple: int = 1):
    """Pads ragged rows at their right to one length.

    The mask comes from the lengths of the rows, not from a comparison with `pad_id`: a text may hold that token, as it
    does where the end token also pads.

    Args:
        ids: `tf.RaggedTensor` of ids, shape `(batch, None)`.
        pad_id: The token to pad with.
        multiple: The length is rounded up to a multiple of this, at least one multiple, so that few distinct shapes
            arise (XLA compiles anew for each).

    Returns:
        `(token_ids, padding_mask)`, both `(batch, length)`; the mask is true where a token is real.

    Raises:
        TypeError: `ids` is not ragged.
        ValueError: `pad_id` is `None`, or `multiple` is below 1.

    Example:

    >>> token_ids, padding_mask = to_dense(tf.ragged.constant([[5, 6, 7], [8]]), pad_id=0, multiple=4)
    >>> token_ids.numpy().tolist()
    [[5, 6, 7, 0], [8, 0, 0, 0]]
    """
    tf = import_tensorflow()
    if not isinstance(ids, tf.RaggedTensor):
        raise TypeError(f"ids must be a tf.RaggedTensor, got {type(ids).__name__}.")
    if pad_id is None:
        raise ValueError("pad_id=None: a tokenizer without a padding token needs another token to pad with.")
    if multiple < 1:
        raise ValueError(f"multiple={multiple} must be at least 1.")
    lengths = ids.row_lengths()
    longest = tf.reduce_max(tf.concat([lengths, [1]], axis=0))
    length = (longest + multiple - 1) // multiple * multiple
    token_ids = ids.to_tensor(default_value=tf.cast(pad_id, ids.dtype), shape=tf.stack([-1, length]))
    token_ids.set_shape([ids.shape[0], None])  # a batch size that is known stays known
    return token_ids, tf.sequence_mask(lengths, length)
