"""Small tensor operations on token ids that the decoding loops share."""

from keras import ops


def is_one_of(token_ids, ids: tuple):
    """Bool tensor of the shape of `token_ids`: whether each is among the Python integers `ids`."""
    result = ops.zeros_like(token_ids, dtype="bool")
    for token_id in ids:
        result = ops.logical_or(result, token_ids == token_id)
    return result


def pick(values, indices):
    """`values[b, indices[b, j]]` for values `(batch, size, ...)` and indices `(batch, count)`: one gather of rows."""
    batch, size = ops.shape(values)[0], values.shape[1]
    offsets = ops.expand_dims(ops.arange(batch, dtype="int32") * size, -1)
    flat = ops.reshape(values, (-1, *ops.shape(values)[2:]))
    return ops.take(flat, offsets + ops.cast(indices, "int32"), axis=0)


def write(texts, position, tokens):
    """`texts` `(batch, count, length)` with `tokens` `(batch, count)` at the given position."""
    here = ops.arange(ops.shape(texts)[-1], dtype="int32") == position
    return ops.where(here, ops.expand_dims(tokens, -1), texts)
