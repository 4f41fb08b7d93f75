"""Attention by its definition, one query at a time in float64, and tools to run every path against it."""

import types

import numpy as np
import pytest
from keras import ops

from layers.attention import attend
from layers.attention.kernels.banded import banded_attention
from layers.attention.kernels.blocked import blocked_attention
from layers.attention.masks import AttentionMask


def visible_pairs(batch, heads, query_length, key_length, options):
    """Which key each query sees, `(batch, heads, query_length, key_length)`, pair by pair."""
    visible = np.ones((batch, heads, query_length, key_length), bool)

    def entry(name, *index):
        value = options.get(name)
        if value is None:
            return None
        value = np.asarray(value)
        return value[index[-value.ndim :]]

    for row, head, query, key in np.ndindex(*visible.shape):
        i, j = entry("query_positions", row, query), entry("key_positions", row, key)
        i, j = query if i is None else i, key if j is None else j
        left, right = options.get("window") or (None, None)
        prefix = entry("prefix_length", row)
        sees = not options.get("causal") or j <= i or (prefix is not None and j < prefix)
        sees &= left is None or j >= i - left
        sees &= right is None or j <= i + right
        sees &= options.get("block_size") is None or i // options["block_size"] == j // options["block_size"]
        sees &= options.get("key_padding_mask") is None or entry("key_padding_mask", row, key)
        if options.get("query_segment_ids") is not None:
            sees &= entry("query_segment_ids", row, query) == entry("key_segment_ids", row, key)
        if options.get("allowed") is not None:
            allowed = np.asarray(options["allowed"])
            allowed = allowed[:, None] if allowed.ndim == 3 else allowed
            sees &= np.broadcast_to(allowed, visible.shape)[row, head, query, key]
        visible[row, head, query, key] = sees
    return visible


def formula(query, key, value, visible, *, scale, bias=None, soft_cap=None, sinks=None):
    """Output and weights of attention, in float64."""
    query, key, value = (np.asarray(x, "float64") for x in (query, key, value))
    batch, heads, query_length, _ = query.shape
    groups = heads // key.shape[1]
    weights = np.zeros((batch, heads, query_length, key.shape[2]))
    output = np.zeros((batch, heads, query_length, value.shape[-1]))
    bias = np.broadcast_to(0.0 if bias is None else np.asarray(bias, "float64"), weights.shape)
    for row, head, i in np.ndindex(batch, heads, query_length):
        scores = scale * key[row, head // groups] @ query[row, head, i]
        if soft_cap is not None:
            scores = soft_cap * np.tanh(scores / soft_cap)
        seen = np.flatnonzero(visible[row, head, i])
        if not len(seen):
            continue
        scores = scores[seen] + bias[row, head, i, seen]
        highest = max(scores.max(), -np.inf if sinks is None else sinks[head])
        total = np.exp(scores - highest).sum() + (0 if sinks is None else np.exp(sinks[head] - highest))
        weights[row, head, i, seen] = np.exp(scores - highest) / total
        output[row, head, i] = weights[row, head, i] @ value[row, head // groups]
    return output, weights


class BiasOfDistance:
    """A bias `(1, heads, queries, keys)` that is a smooth function of the distance, by head."""

    depends_on_distance = True

    def __init__(self, heads):
        self.slopes = np.linspace(0.2, 1.0, heads)[:, None, None]

    def __call__(self, query_positions, key_positions):
        distance = ops.expand_dims(key_positions, -2) - ops.expand_dims(query_positions, -1)
        distance = ops.expand_dims(ops.cast(distance, "float32"), -3)
        result = ops.sin(distance * self.slopes.astype("float32"))
        return result if len(result.shape) == 4 else ops.expand_dims(result, 0)

    def matrix(self, query_length, key_length):
        return np.sin((np.arange(key_length) - np.arange(query_length)[:, None]) * self.slopes)[None]


def run(path, query, key, value, mask, **options):
    """Attention by a path; "blocked" and "banded" in pieces so small that a short sequence has several of them."""
    if path == "blocked":
        options.pop("return_weights", None)
        return blocked_attention(query, key, value, mask, block_length=3, **options)
    return attend(query, key, value, mask, path=path, **options)


def normal(*shape, seed=0):
    return np.random.default_rng(seed).normal(size=shape).astype("float32")


@pytest.fixture(scope="session")
def kernels():
    """The functions of this file, by name."""
    return types.SimpleNamespace(
        visible_pairs=visible_pairs,
        formula=formula,
        run=run,
        normal=normal,
        BiasOfDistance=BiasOfDistance,
        AttentionMask=AttentionMask,
        banded_attention=banded_attention,
    )


@pytest.fixture
def short_pieces(monkeypatch):
    """Makes the plain path cut queries and the banded path chunks at lengths that a test can afford."""
    from layers.attention.kernels import banded, plain

    monkeypatch.setattr(plain, "_STEP", 2)
    monkeypatch.setattr(plain, "_PART_SIZE", 12)
    monkeypatch.setattr(banded, "_SHORTEST_CHUNK", 3)
