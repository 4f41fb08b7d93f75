"""Decoding with positions that depend on the length of the text: one that outgrows a group of lengths is fed again."""

from typing import Any

from keras import ops

from layers.fusion import update_slice


def text_lengths(length: Any, padding_mask: Any = None, sequence_ids: Any = None) -> Any:
    """Returns the number of tokens of the text that each token is of.

    Args:
        length: Number of tokens of a row, padding included.
        padding_mask: True where a token is real, `(batch, length)`.
        sequence_ids: Integers `(batch, length)` of packed sequences, those of one next to each other.

    Returns:
        A scalar; `(batch,)` with a padding mask; `(batch, length)` with sequence ids.

    Example:

    >>> text_lengths(5, sequence_ids=np.array([[1, 1, 1, 2, 2]]))
    [[3, 3, 3, 2, 2]]
    """
    if sequence_ids is not None:
        batch = ops.shape(sequence_ids)[0]
        numbers = _numbers_of_sequences(sequence_ids)
        counts = ops.segment_sum(ops.ones_like(numbers), numbers, num_segments=batch * length)
        return ops.reshape(ops.take(counts, numbers), (batch, length))
    if padding_mask is not None:
        return ops.sum(ops.cast(padding_mask, "int32"), axis=1)
    return length


def positions_of_packed(sequence_ids: Any) -> Any:
    """Returns positions that start at 0 in each packed sequence, `(batch, length)`.

    Args:
        sequence_ids: Integers `(batch, length)`, those of one sequence next to each other.

    Example:

    >>> positions_of_packed(np.array([[1, 1, 1, 2, 2]]))
    [[0, 1, 2, 0, 1]]
    """
    batch, length = ops.shape(sequence_ids)
    numbers, steps = _numbers_of_sequences(sequence_ids), ops.arange(length, dtype="int32")
    places = ops.reshape(ops.broadcast_to(steps, (batch, length)), (-1,))
    firsts = -ops.segment_max(-places, numbers, num_segments=batch * length)
    return ops.reshape(places - ops.take(firsts, numbers), (batch, length))


def _numbers_of_sequences(sequence_ids: Any) -> Any:
    """Numbers of the packed sequences of all tokens of a batch, `(batch * length,)`: no two rows share one."""
    batch, length = ops.shape(sequence_ids)
    starts = ops.cast(sequence_ids[:, 1:] != sequence_ids[:, :-1], "int32")
    numbers = ops.pad(ops.cumsum(starts, axis=1), ((0, 0), (1, 0)))
    return ops.reshape(numbers + length * ops.arange(batch, dtype="int32")[:, None], (-1,))


def begin(batch_size: Any, capacity: Any) -> dict[str, Any]:
    """Returns what decoding carries besides the caches: the tokens that were fed, and lengths of the texts so far."""
    return {
        "token_ids": ops.zeros((batch_size, capacity), "int32"),
        "lengths": ops.zeros((batch_size,), "int32"),
    }


def advance(
    decoder: Any, embed: Any, token_ids: Any, index: Any, state: dict[str, Any], start: Any, memory: Any
) -> Any:
    """Feeds tokens; all of the text where its length is now of another group than what the caches were made for.

    Args:
        decoder: A `TransformerStack` with a position that depends on the length.
        embed: Embeds tokens.
        token_ids: New tokens `(batch, new)`.
        index: Number of entries before, a scalar integer.
        state: The caches, and what `begin` returned.
        start: First real entry of each row, `(batch,)`; None for 0.
        memory: Further arguments of the decoder.

    Returns:
        Hidden states `(batch, new, hidden_dim)` and the new state.
    """
    batch, new = ops.shape(token_ids)
    fed = state["token_ids"]
    capacity = ops.shape(fed)[1]
    start = ops.zeros((batch,), "int32") if start is None else ops.cast(start, "int32")
    fed = update_slice(fed, (ops.zeros_like(index), index), ops.cast(token_ids, "int32"))
    lengths = index + new - start

    def places_of(steps: Any) -> Any:
        return steps - ops.expand_dims(start, 1)

    def feed_new() -> Any:
        return decoder(
            embed(token_ids),
            caches=state["caches"],
            cache_index=index,
            positions=places_of(index + ops.arange(new, dtype="int32")),
            sequence_length=lengths,
            training=False,
            **memory,
        )

    def feed_all() -> Any:
        steps = ops.arange(capacity, dtype="int32")
        # with an index per row, positions below zero behind the text are not kept
        places = ops.where(steps < index + new, places_of(steps), -1)
        hidden, caches = decoder(
            embed(fed),
            caches=decoder.make_caches(batch, capacity),
            cache_index=ops.zeros((batch,), "int32"),
            positions=places,
            sequence_length=lengths,
            training=False,
            **memory,
        )
        return ops.take(hidden, index + ops.arange(new, dtype="int32"), axis=1), caches

    if isinstance(index, int) and index == 0:
        hidden, caches = feed_new()
    else:
        group = decoder.position_by_length.length_group
        has_moved = ops.logical_and(state["lengths"] > 0, group(lengths) != group(state["lengths"]))
        hidden, caches = ops.cond(ops.any(has_moved), feed_all, feed_new)
    return hidden, {"caches": caches, "token_ids": fed, "lengths": lengths}
