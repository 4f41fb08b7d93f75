"""Small tensor operations on token ids that the decoding loops share."""

from typing import Any

from keras import ops


def is_one_of(token_ids: Any, ids: tuple) -> Any:
    """Returns a bool tensor of the shape of `token_ids`: whether each is among the Python integers `ids`."""
    result = ops.zeros_like(token_ids, dtype="bool")
    for token_id in ids:
        result = ops.logical_or(result, token_ids == token_id)
    return result


def pick(values: Any, indices: Any) -> Any:
    """Returns `values[b, indices[b, j]]`, values `(batch, size, ...)`, indices `(batch, count)`: one gather of rows."""
    batch, size = ops.shape(values)[0], values.shape[1]
    offsets = ops.expand_dims(ops.arange(batch, dtype="int32") * size, -1)
    flat = ops.reshape(values, (-1, *ops.shape(values)[2:]))
    return ops.take(flat, offsets + ops.cast(indices, "int32"), axis=0)


def write(texts: Any, position: Any, tokens: Any) -> Any:
    """Returns `texts` `(batch, count, length)` with `tokens` `(batch, count)` at the given position."""
    here = ops.arange(ops.shape(texts)[-1], dtype="int32") == position
    return ops.where(here, ops.expand_dims(tokens, -1), texts)


def ends_with(texts: Any, count: Any, sequence: tuple) -> Any:
    """Returns whether the first `count` tokens of each text end with a sequence.

    Args:
        texts: Integer tensor `(..., length)`.
        count: Int32 scalar.
        sequence: Python integers; every text ends with an empty one.

    Returns:
        Bool tensor `(...)`.
    """
    result = ops.ones_like(texts[..., 0], dtype="bool")
    for back, token_id in enumerate(reversed(sequence), start=1):
        result = ops.logical_and(result, ops.take(texts, ops.maximum(count - back, 0), axis=-1) == token_id)
    return ops.logical_and(result, count >= len(sequence))


def end_lengths(tokens: Any, texts: Any, count: Any, end_ids: tuple, stop_sequences: tuple) -> Any:
    """Returns how many tokens of the end each text has when a token is added to it.

    Args:
        tokens: The added tokens, int32 `(...)`.
        texts: The generated tokens before them, `(..., length)`.
        count: How many of these there are, an int32 scalar.
        end_ids: Ids of end tokens.
        stop_sequences: Tuple of tuples of ids.

    Returns:
        Int32 tensor `(...)`: 1 behind an end token, the length of the longest stop sequence that is complete, 0 where
        the text goes on.
    """
    result = ops.cast(is_one_of(tokens, end_ids), "int32")
    for sequence in stop_sequences:
        complete = ops.logical_and(tokens == sequence[-1], ends_with(texts, count, sequence[:-1]))
        result = ops.where(complete, ops.maximum(result, len(sequence)), result)
    return result
