"""Attention in a window with global tokens, in time and memory that grow with the length times the window.

A global token sees all tokens and is seen by all (Beltagy et al. 2020, "Longformer", section 3.1). What it sees is
scored with queries, keys and values of its own.
"""

import dataclasses
from collections.abc import Callable
from typing import Any, NamedTuple

from keras import ops

from layers.attention.kernels.banded import SeenByAll, banded_attention
from layers.attention.kernels.dispatch import attend, choose_path
from layers.attention.masks import AttentionMask, both
from layers.attention.slices import smaller
from layers.fusion import graph_forms, sizes

# Global tokens of a row up to which windows are computed chunk by chunk. Rows with more are exact, too, and slower.
_MOST_GLOBAL = 64


class Projected(NamedTuple):
    """Queries, keys and values `(batch, heads or key_value_heads, length, width)`."""

    query: Any
    key: Any
    value: Any


def attend_with_global(
    local: Projected,
    of_global: Projected,
    is_global: Any,
    mask: AttentionMask,
    *,
    scale: float,
    dropout: Any = None,
    preferred_path: str = "auto",
    return_weights: bool = False,
) -> Any:
    """Returns attention in a window, in which global tokens see all tokens and are seen by all.

    With up to 64 global tokens in each row, time and memory grow with the length times the window. With more, time
    grows with the square of the length; memory does not.

    Args:
        local: The tokens for queries that are not global.
        of_global: The tokens for queries that are global.
        is_global: True where a token is global, `(batch, length)`.
        mask: The other conditions, with a window.
        scale, preferred_path, return_weights: As for `attend`.
        dropout: As for `attend`; it must have the method `by_block` of `layers.dropout.Dropout`.

    Returns:
        As for `attend`.

    Reference:
        Beltagy et al. 2020, "Longformer: The Long-Document Transformer", section 3.1.
    """
    length = sizes(local.key)[2]
    mask = mask.with_padding_mask(length)
    is_global = both(is_global, mask.key_padding_mask)
    # drawn before any condition: a branch must not draw, which changes a variable
    drops = [None if dropout is None else _Drawn(dropout.by_block()) for _ in range(2)]

    def with_all_pairs() -> Any:
        undrawn = dataclasses.replace(mask, drawn=None)
        masks = dataclasses.replace(undrawn, global_keys=is_global), dataclasses.replace(undrawn, window=None)
        options = {"scale": scale, "return_weights": return_weights}
        results = [
            attend(*parts, own, dropout=drop, **options)
            for parts, own, drop in zip((local, of_global), masks, drops, strict=True)
        ]
        rows = is_global[:, None, :, None]
        if return_weights:
            return tuple(ops.where(rows, ours, others) for others, ours in zip(*results, strict=True))
        return ops.where(rows, results[1], results[0])

    def with_few() -> Any:
        return _with_few(local, of_global, is_global, mask, smaller(_MOST_GLOBAL, length), scale, drops)

    if return_weights or graph_forms().attention is not None:
        return with_all_pairs()
    chosen = choose_path(*local, mask, dropout=drops[0], preferred_path=preferred_path)
    if chosen.path != "banded":
        return with_all_pairs()
    if isinstance(length, int) and length <= _MOST_GLOBAL:
        return with_few()
    count = ops.max(ops.sum(ops.cast(is_global, "int32"), axis=1), initial=0)
    return ops.cond(count <= _MOST_GLOBAL, with_few, with_all_pairs)


def _with_few(
    local: Projected,
    of_global: Projected,
    is_global: Any,
    mask: AttentionMask,
    most: Any,
    scale: float,
    drops: list[Any],
) -> Any:
    """The result for rows with at most `most` global tokens: these are gathered, and all others banded."""
    length = sizes(local.key)[2]
    numbers = ops.expand_dims(ops.arange(length, dtype="int32"), 0)
    # the places of the global tokens, before those of other tokens
    places = ops.argsort(ops.where(is_global, numbers, numbers + length), axis=-1)[:, :most]
    is_used = ops.take_along_axis(is_global, places, axis=1)
    segments = mask.query_segment_ids
    if segments is not None:
        segments = ops.take_along_axis(segments, places, axis=1)

    def at_places(x: Any) -> Any:
        return ops.take_along_axis(x, places[:, None, :, None], axis=2)

    others = dataclasses.replace(
        mask, key_padding_mask=both(mask.key_padding_mask, ops.logical_not(is_global)), drawn=None
    )
    keys = SeenByAll(at_places(local.key), at_places(local.value), is_used, segments)
    result = banded_attention(*local, others, scale=scale, dropout=drops[0], seen_by_all=keys)
    seen = AttentionMask(
        key_padding_mask=mask.key_padding_mask, query_segment_ids=segments, key_segment_ids=mask.key_segment_ids
    )
    query = at_places(of_global.query)
    found = attend(query, of_global.key, of_global.value, seen, scale=scale, dropout=drops[1], path="plain")
    # each global token takes what was found for it
    rank = ops.clip(ops.cumsum(ops.cast(is_global, "int32"), axis=1) - 1, 0, most - 1)
    return ops.where(is_global[:, None, :, None], ops.take_along_axis(found, rank[:, None, :, None], axis=2), result)


class _Drawn:
    """Dropout of attention weights whose random numbers come from a seed that has been drawn.

    Args:
        factors: The result of `Dropout.by_block`.
    """

    def __init__(self, factors: Callable[[Any, Any, str], Any]) -> None:
        self._factors = factors
        self._calls = 0

    def __call__(self, weights: Any) -> Any:
        self._calls += 1
        return weights * self._factors(self._calls, ops.shape(weights), weights.dtype)

    def by_block(self) -> Callable[[Any, Any, str], Any]:
        """See `Dropout.by_block`."""
        return self._factors
