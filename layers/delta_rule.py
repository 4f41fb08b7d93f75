"""States of heads, matrices that each token lets fade, writes and reads, whole sequences or step by step."""

import math
from typing import Any

from keras import ops

from layers.fusion import sizes
from layers.recurrent.loop import Features, run_steps

# tokens that are computed together: products of matrices within a chunk, a loop over chunks
CHUNK = 64


def delta_rule(
    query: Any, key: Any, value: Any, log_decay: Any, strength: Any = None, state: Any = None, segment_ids: Any = None
) -> tuple[Any, Any]:
    """Returns what tokens read of a state, and the state after them.

    For a token with query `q`, key `k`, value `v`, decay `d = exp(log_decay)` and strength `b`, the state `S`, a matrix
    `(key_dim, value_dim)`, becomes `d S + k b (v - d S^T k)^T`, and the token reads `S^T q`. With a decay of 1 and a
    strength of 0 the state stays as it is.

    Without strengths a token adds its value, whatever the state holds: `S` becomes `d S + k v^T`. This is the state
    space of Mamba 2 in its dual form.

    One token is a step of this recurrence. More are computed by chunks: within a chunk the corrections of all tokens
    are the solution of a triangular system.

    Args:
        query, key: `(batch, length, key_heads, key_dim)`.
        value: `(batch, length, key_heads, group, value_dim)`: heads of values that share a key stand together.
        log_decay: At most 0, `(batch, length, key_heads, group)`.
        strength: From 0 to 1, `(batch, length, key_heads, group)`; None for tokens that correct nothing.
        state: `(batch, key_heads, group, key_dim, value_dim)`; None for zeros.
        segment_ids: Integers `(batch, length)` of packed sequences, each of which starts with a state of zeros; None
            for one sequence in a row.

    Returns:
        `(batch, length, key_heads, group, value_dim)` and the state, in float32.

    Reference:
        Yang et al. 2025, "Gated Delta Networks: Improving Mamba2 with Delta Rule", equation 10 and section 3.3
        (chunks); Yang et al. 2024, "Parallelizing Linear Transformers with the Delta Rule over Sequence Length",
        section 3.2; Dao and Gu 2024, "Transformers are SSMs", sections 6 and 7 (without strengths).
    """
    query, key, value, log_decay = (ops.cast(part, "float32") for part in (query, key, value, log_decay))
    strength = None if strength is None else ops.cast(strength, "float32")
    batch, length = sizes(value)[:2]
    heads, group, value_dim = value.shape[2:]
    key_dim = key.shape[-1]
    if state is None:
        state = ops.zeros((batch, heads, group, key_dim, value_dim), dtype="float32")
    state = ops.cast(state, "float32")  # of a cache that others hold in less
    if isinstance(length, int) and length == 1:
        return _step(query, key, value, log_decay, strength, state)
    return _by_chunks(query, key, value, log_decay, strength, state, segment_ids)


def _by_chunks(
    query: Any, key: Any, value: Any, log_decay: Any, strength: Any, state: Any, segment_ids: Any
) -> tuple[Any, Any]:
    """The rule for many tokens: products of matrices within chunks, a loop over them for the state."""
    batch, length = sizes(value)[:2]
    heads, group, value_dim = value.shape[2:]
    key_dim = key.shape[-1]
    chunk = min(CHUNK, length) if isinstance(length, int) else CHUNK
    rest = -length % chunk
    chunks = (length + rest) // chunk

    def in_chunks(x: Any) -> Any:
        """`(batch, length, ...)` as `(batch, chunks, chunk, ...)`, filled up with zeros, which change no state."""
        x = ops.pad(x, [[0, 0], [0, rest]] + [[0, 0]] * (len(x.shape) - 2))
        return ops.reshape(x, (batch, chunks, chunk, *x.shape[2:]))

    # (batch, chunks, key_heads, group, chunk, ...)
    query, key = (ops.transpose(in_chunks(x), (0, 1, 3, 2, 4))[:, :, :, None] for x in (query, key))
    value = ops.transpose(in_chunks(value), (0, 1, 3, 4, 2, 5))
    log_decay = ops.transpose(in_chunks(log_decay), (0, 1, 3, 4, 2))
    # one of less than 2e-9 is none in float32, where larger sums would be too coarse for the decays between tokens
    log_decay = ops.maximum(log_decay, -20.0)
    since_start = ops.cumsum(log_decay, axis=-1)  # the decay from before the chunk to behind a token
    place = ops.arange(chunk)
    is_seen = (place[:, None] >= place)[None, None, None, None]  # (..., reader, writer)
    between = since_start[..., :, None] - since_start[..., None, :]
    decay = ops.where(is_seen, ops.exp(ops.where(is_seen, between, 0.0)), 0.0)
    from_start, to_end = ops.exp(since_start), ops.exp(since_start[..., -1:] - since_start)
    whole = from_start[..., -1]
    if segment_ids is not None:
        segments = in_chunks(segment_ids)  # (batch, chunks, chunk)
        last = segments[:, :, -1:]
        before = ops.concatenate([segments[:, :1, :1], last[:, :-1]], axis=1)
        reads, stays = (ops.cast(ops.equal(segments, one), "float32")[:, :, None, None] for one in (before, last))
        same = ops.equal(segments[:, :, :, None], segments[:, :, None])
        decay = decay * ops.cast(same, "float32")[:, :, None, None]
        from_start, to_end = from_start * reads, to_end * stays
        whole = whole * ops.cast(ops.equal(last, before), "float32")[:, :, None]

    turned, writes = ops.swapaxes(key, -1, -2), {"written": _flat(value)}
    if strength is not None:
        strength = ops.transpose(in_chunks(strength), (0, 1, 3, 4, 2))[..., None]
        # what each token writes depends on what the tokens before it in the chunk have written
        corrections = ops.where(place[:, None] > place, strength * ops.matmul(key, turned) * decay, 0.0)
        system = corrections + ops.eye(chunk)
        known = ops.concatenate([strength * value, strength * key * from_start[..., None]], axis=-1)
        solved = ops.solve_triangular(system, known, lower=True)
        writes = {"written": _flat(solved[..., :value_dim]), "corrected": _flat(solved[..., value_dim:])}
    features = Features(
        **writes,
        read=_flat(query * from_start[..., None]),
        seen=_flat(ops.matmul(query, turned) * decay),
        left=_flat(key * to_end[..., None]),
        whole=_flat(whole),
    )

    def shaped(x: Any, width: int) -> Any:
        return ops.reshape(x, (-1, heads, group, chunk, width))

    def advance(inputs: Any, states: list[Any]) -> tuple[Any, list[Any]]:
        parts, before = features.split(inputs), ops.reshape(states[0], (-1, heads, group, key_dim, value_dim))
        written = shaped(parts["written"], value_dim)
        if "corrected" in parts:
            written = written - ops.matmul(shaped(parts["corrected"], key_dim), before)
        outputs = ops.matmul(shaped(parts["read"], key_dim), before)
        outputs = outputs + ops.matmul(shaped(parts["seen"], chunk), written)
        after = before * ops.reshape(parts["whole"], (-1, heads, group, 1, 1))
        after = after + ops.matmul(ops.swapaxes(shaped(parts["left"], key_dim), -1, -2), written)
        return ops.reshape(outputs, (-1, heads * group * chunk * value_dim)), [
            ops.reshape(after, (-1, heads * group * key_dim * value_dim))
        ]

    state = ops.reshape(state, (batch, heads * group * key_dim * value_dim))
    outputs, states = run_steps(advance, features.joined, [state])
    outputs = ops.reshape(outputs, (batch, chunks, heads, group, chunk, value_dim))
    outputs = ops.reshape(ops.transpose(outputs, (0, 1, 4, 2, 3, 5)), (batch, chunks * chunk, heads, group, value_dim))
    return outputs[:, :length], ops.reshape(states[0], (batch, heads, group, key_dim, value_dim))


def _step(query: Any, key: Any, value: Any, log_decay: Any, strength: Any, state: Any) -> tuple[Any, Any]:
    """The recurrence for one token."""
    query, key, written = query[:, 0, :, None], key[:, 0, :, None], value[:, 0]
    state = state * ops.exp(log_decay[:, 0])[..., None, None]
    if strength is not None:
        held = ops.sum(state * key[..., None], axis=-2)  # (batch, key_heads, group, value_dim)
        written = strength[:, 0, ..., None] * (written - held)
    state = state + key[..., None] * written[..., None, :]
    return ops.expand_dims(ops.sum(state * query[..., None], axis=-2), 1), state


def _flat(x: Any) -> Any:
    """`(batch, chunks, ...)` as `(batch, chunks, features)`."""
    return ops.reshape(x, (*sizes(x)[:2], math.prod(x.shape[2:])))
