"""Attention in a window, in time and memory that grow with the length times the window.

This is the restricted self-attention of Vaswani et al. 2017 (section 4, table 1, fourth row) and the local attention of
later models (Child et al. 2019; Beltagy et al. 2020). Queries are cut into chunks. Each chunk is multiplied only with
the keys that any of its queries may see. No tensor has an entry for each pair of a query and a key.
"""

from collections.abc import Callable
from typing import Any, NamedTuple

from keras import ops

from layers.attention.kernels.bias import bias_by_distance, toeplitz
from layers.attention.kernels.plain import mean_of_values, penalty, softmax, softmax_with_sinks, to_float32
from layers.attention.masks import AttentionMask
from layers.attention.slices import larger, pad_axis, smaller

# Bounds on the queries in a chunk. Products of small matrices are slow, hence the lower one. Each query is multiplied
# with all keys of its chunk, so a chunk should not be much longer than the window.
_SHORTEST_CHUNK, _LONGEST_CHUNK = 32, 256


class SeenByAll(NamedTuple):
    """Keys that all queries see, besides those in their windows.

    Args:
        key: `(batch, key_value_heads, count, head_dim)`.
        value: `(batch, key_value_heads, count, value_dim)`.
        is_used: True where there is such a key, `(batch, count)`.
        segment_ids: Integers `(batch, count)` of packed sequences: queries of this segment see the key; None for all.
    """

    key: Any
    value: Any
    is_used: Any
    segment_ids: Any = None


def band(mask: AttentionMask | None) -> tuple[int, int] | None:
    """Returns how many keys before and after its own index a query may see, or None if no limit is known in advance.

    Args:
        mask: An `AttentionMask` or `None`.
    """
    if mask is None or not mask.default_positions or mask.prefix_length is not None or mask.allowed is not None:
        return None
    if mask.global_keys is not None:
        return None
    left, right = mask.window or (None, None)
    if mask.causal:
        right = 0
    if mask.block_size is not None:
        left = mask.block_size - 1 if left is None else min(left, mask.block_size - 1)
        right = mask.block_size - 1 if right is None else min(right, mask.block_size - 1)
    return None if left is None or right is None else (left, right)


def chunk_layout(mask: AttentionMask, query_length: Any, key_length: Any) -> tuple[Any, Any, Any]:
    """Returns the number of queries in a chunk, and of the keys before and after the chunk that it may see.

    A chunk with its keys is never much longer than the sequence, so that a wide window costs a short text nothing.

    Args:
        mask: An `AttentionMask` with a `band`.
        query_length: Number of queries, an int or a scalar tensor.
        key_length: Number of keys, likewise.

    Returns:
        Three ints, or scalar tensors where a length is one.
    """
    chunk, left, right = _longest_chunk(mask)
    return (
        smaller(chunk, larger(query_length, key_length)),
        smaller(left, query_length),
        smaller(right, key_length),
    )


def _longest_chunk(mask: AttentionMask) -> tuple[int, int, int]:
    """The layout of chunks for a sequence without end."""
    left, right = band(mask)
    if mask.block_size is not None:
        # Chunks of whole blocks see nothing outside of themselves.
        blocks = max(1, _SHORTEST_CHUNK // mask.block_size)
        return blocks * mask.block_size, 0, 0
    chunk = min(max(-(-(left + right) // 2), _SHORTEST_CHUNK), _LONGEST_CHUNK)
    return chunk, left, right


def _most_pieces(mask: AttentionMask) -> int:
    """The largest number of chunks that the keys of one chunk span, for any lengths."""
    chunk, left, right = _longest_chunk(mask)
    # a short sequence is one chunk, plus at most one chunk of empty keys on each side of the window
    return max(-(-(left + chunk + right) // chunk), 1 + (left > 0) + (right > 0))


def banded_attention(
    query: Any,
    key: Any,
    value: Any,
    mask: AttentionMask,
    *,
    scale: float,
    bias: Any = None,
    soft_cap: float | None = None,
    sinks: Any = None,
    dropout: Callable[[Any], Any] | None = None,
    weighting: Any = None,
    seen_by_all: SeenByAll | None = None,
) -> Any:
    """Attention with a window or in blocks, in O(length * window) time and memory.

    Args: as for `layers.attention.kernels.attend`; the mask must have a `band`, and `bias`, if given, depend on the
        distance only.
        seen_by_all: Further keys that all queries see, for which there is no bias; None for none. With them, the keys
            of windows that the mask hides are theirs.

    Returns:
        The output `(batch, heads, query_length, value_dim)`.
    """
    batch, heads, query_length, _ = ops.shape(query)
    _, key_value_heads, key_length, _ = ops.shape(key)
    groups = heads // key_value_heads
    chunk, before, after = chunk_layout(mask, query_length, key_length)
    chunks = -(-query_length // chunk)
    frame = before + chunk + after
    pieces = -(-frame // chunk) if isinstance(frame, int) else _most_pieces(mask)

    def frames(x: Any, axis: int) -> Any:
        """Cuts an axis of keys into overlapping runs, one for each chunk: `(..., chunks, frame, ...)`."""
        x = pad_axis(_fit_axis(x, axis, (pieces + chunks - 1) * chunk - before), axis, before, front=True)
        runs = []
        for piece in range(pieces):
            run = _split_axis(_slice_axis(x, axis, piece * chunk, (piece + chunks) * chunk), axis, chunk)
            runs.append(_slice_axis(run, axis + 1, 0, smaller(chunk, larger(frame - piece * chunk, 0))))
        return runs[0] if pieces == 1 else ops.concatenate(runs, axis=axis + 1)

    query = _split_axis(_fit_axis(to_float32(query) * scale, 2, chunks * chunk), 2, chunk)
    if groups > 1:
        query = ops.reshape(query, (batch, key_value_heads, groups, chunks, chunk, query.shape[-1]))
        query = ops.transpose(query, (0, 1, 3, 2, 4, 5))
        query = ops.reshape(query, (batch, key_value_heads, chunks, groups * chunk, query.shape[-1]))
    scores = ops.einsum("bkcqd,bkcmd->bkcqm", query, to_float32(frames(key, 2)))
    if seen_by_all is not None:
        further = ops.einsum("bkcqd,bkmd->bkcqm", query, to_float32(seen_by_all.key))
        scores = ops.concatenate([scores, further], axis=-1)
    if soft_cap is not None:
        scores = soft_cap * ops.tanh(scores / soft_cap)
    if bias is not None:
        matrix = toeplitz(bias_by_distance(bias, chunk, frame, first_key=-before), chunk, frame)
        matrix = ops.reshape(matrix, (1, key_value_heads, 1, groups * chunk, frame))
        scores = scores + ops.cast(matrix, scores.dtype)
    visible = _visible(mask, frames, key_length, chunks, chunk, before, frame)
    if seen_by_all is not None:
        visible = _with_seen_by_all(visible, seen_by_all, mask, chunks, chunk)
    if groups > 1:
        visible = ops.tile(visible, (1, 1, 1, groups, 1))
    scores = scores - penalty(visible, scores.dtype)
    if weighting is not None:
        weights = weighting.normalize(scores, visible)
        weights = ops.where(visible, weights, ops.cast(0, weights.dtype))
    elif sinks is None:
        weights = softmax(scores)
    else:
        sinks = ops.broadcast_to(ops.reshape(sinks, (key_value_heads, groups, 1)), (key_value_heads, groups, chunk))
        weights = softmax_with_sinks(scores, ops.reshape(sinks, (1, key_value_heads, 1, groups * chunk, 1)))

    def product(weights: Any, values: Any) -> Any:
        result = ops.einsum("bkcqm,bkcmd->bkcqd", weights[..., :frame], values)
        if seen_by_all is not None:
            result = result + ops.einsum("bkcqm,bkmd->bkcqd", weights[..., frame:], seen_by_all.value)
        return result

    output = mean_of_values(weights, frames(value, 2), dropout, product)
    if sinks is None and not mask.sees_something(query_length, key_length):
        output = output * ops.cast(ops.any(visible, axis=-1, keepdims=True), output.dtype)
    if groups > 1:
        output = ops.reshape(output, (batch, key_value_heads, chunks, groups, chunk, value.shape[-1]))
        output = ops.transpose(output, (0, 1, 3, 2, 4, 5))
    output = ops.reshape(output, (batch, heads, chunks * chunk, value.shape[-1]))
    return output[:, :, :query_length]


def _visible(
    mask: AttentionMask, frames: Any, key_length: Any, chunks: Any, chunk: Any, before: Any, frame: Any
) -> Any:
    """Which key of its frame each query of a chunk sees: `(batch or 1, 1, chunks, chunk, frame)`."""
    # Order depends on the difference of positions alone (chunks are whole blocks where the mask has blocks).
    in_chunk = ops.expand_dims(ops.arange(chunk, dtype="int32"), -1)
    in_frame = ops.arange(frame, dtype="int32") - before
    visible = ops.reshape(mask.visible(in_chunk, in_frame), (1, 1, 1, chunk, frame))
    key_padding_mask = mask.key_padding_mask
    if key_padding_mask is None:
        key_padding_mask = ops.ones((1, key_length), dtype="bool")
    visible = ops.logical_and(visible, frames(key_padding_mask, 1)[:, None, :, None, :])
    if mask.query_segment_ids is not None:
        query_segments = _split_axis(_fit_axis(mask.query_segment_ids, 1, chunks * chunk), 1, chunk)
        same = ops.equal(query_segments[:, None, :, :, None], frames(mask.key_segment_ids, 1)[:, None, :, None, :])
        visible = ops.logical_and(visible, same)
    return visible


def _with_seen_by_all(visible: Any, keys: SeenByAll, mask: AttentionMask, chunks: Any, chunk: Any) -> Any:
    """Which key of its frame, then of those that all see, a query sees: `(batch, 1, chunks, chunk, frame + count)`."""
    further = keys.is_used[:, None, None, None, :]
    if keys.segment_ids is not None:
        query_segments = _split_axis(_fit_axis(mask.query_segment_ids, 1, chunks * chunk), 1, chunk)
        same = ops.equal(query_segments[:, None, :, :, None], keys.segment_ids[:, None, None, None, :])
        further = ops.logical_and(further, same)
    batch, count = ops.shape(keys.is_used)
    shapes = (batch, 1, chunks, chunk)
    parts = ops.broadcast_to(visible, (*shapes, ops.shape(visible)[-1])), ops.broadcast_to(further, (*shapes, count))
    return ops.concatenate(parts, axis=-1)


def _slice_axis(x: Any, axis: int, start: Any, stop: Any) -> Any:
    return x[(*(slice(None),) * axis, slice(start, stop))]


def _split_axis(x: Any, axis: int, size: Any) -> Any:
    """Splits an axis into runs of `size`: `(..., length, ...)` to `(..., length / size, size, ...)`."""
    shape = list(ops.shape(x))
    return ops.reshape(x, (*shape[:axis], shape[axis] // size, size, *shape[axis + 1 :]))


def _fit_axis(x: Any, axis: int, length: Any) -> Any:
    """`x` cut, or padded with zeros (false) at the end, to `length` along an axis."""
    actual = ops.shape(x)[axis]
    if isinstance(actual, int) and isinstance(length, int):
        return pad_axis(x, axis, length - actual) if actual <= length else _slice_axis(x, axis, 0, length)
    return pad_axis(_slice_axis(x, axis, 0, length), axis, ops.maximum(length - actual, 0))
