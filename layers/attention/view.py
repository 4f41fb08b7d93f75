"""What an attention layer knows about the tokens of a call, made of its call arguments before it computes anything."""

import dataclasses
from typing import Any

import keras
from keras import ops

from layers.attention.cache import CachePlan, column, count_new
from layers.attention.kernels.plain import draw_once
from layers.attention.masks import AttentionMask, both
from layers.errors import describe
from layers.fusion import sizes
from layers.positions.base import positions_from


@dataclasses.dataclass(frozen=True, eq=False)
class AttentionView:
    """What an attention layer knows about the tokens of a call. Layers of equal `outlook` share it.

    Args:
        query_positions: `(length,)` or `(batch, length)`.
        key_positions: Positions of the keys, those of a cache included, `(key_length,)` or `(batch, key_length)`.
        prepared: What the position encoding needs for `query_positions`.
        mask: Which query sees which key.
        real_queries: Keras's mask of the queries, `(batch, length)`, or None.
        is_global: True where a token is global, `(batch, length)`; None without such tokens.
        plan: Where the new entries of the cache go; None without one.
    """

    query_positions: Any
    key_positions: Any
    prepared: Any
    mask: AttentionMask
    real_queries: Any = None
    is_global: Any = None
    plan: CachePlan | None = None


def view_of_call(
    layer: Any,
    inputs: Any,
    memory: Any = None,
    *,
    padding_mask: Any = None,
    lengths: Any = None,
    attention_mask: Any = None,
    segment_ids: Any = None,
    memory_segment_ids: Any = None,
    prefix_length: Any = None,
    global_mask: Any = None,
    positions: Any = None,
    sequence_length: Any = None,
    cache: dict[str, Any] | None = None,
    cache_index: Any = None,
    projected_memory: dict[str, Any] | None = None,
    inputs_mask: Any = None,
    memory_mask: Any = None,
) -> AttentionView:
    """Returns what a `MultiHeadAttention` knows about the tokens of a call, for all layers with its `outlook`.

    Args:
        layer: The layer.
        inputs: `(batch, length, width)`. Of this, `memory`, `cache` and `projected_memory` only the shapes are used.
        inputs_mask, memory_mask: Keras's masks.
        memory, padding_mask, lengths, attention_mask, segment_ids, memory_segment_ids, prefix_length, global_mask,
            positions, sequence_length, cache, cache_index, projected_memory: Call arguments of the layer.

    Raises:
        ValueError: If arguments exclude each other, or one has a wrong shape or type.
    """
    check_call(
        layer,
        inputs,
        memory=memory,
        projected_memory=projected_memory,
        inputs_mask=inputs_mask,
        padding_mask=padding_mask,
        lengths=lengths,
        segment_ids=segment_ids,
        memory_segment_ids=memory_segment_ids,
        global_mask=global_mask,
        positions=positions,
        sequence_length=sequence_length,
        cache=cache,
        cache_index=cache_index,
    )
    batch, length = inputs.shape[:2]
    num_rows, num_queries = sizes(inputs)[:2]
    is_self = memory is None and projected_memory is None
    positions = to_tensor("positions", positions, (length,), (batch, length), kind="int")
    if cache_index is not None and not isinstance(cache_index, int):
        cache_index = to_tensor("cache_index", cache_index, (), (batch,), kind="int")
    has_positions = positions is not None or cache is not None
    query_positions = positions_from(cache_index, num_queries) if positions is None else positions
    plan = filled = None
    if cache is not None:
        count = count_new(positions, cache_index)
        plan = layer.cache_layout.plan(cache, num_queries, cache_index, count)
        key_positions = plan.entries
        if prefix_length is not None:  # the causal order does not hide keys of the prefix
            filled = key_positions < column(cache_index + (num_queries if count is None else count))
        if positions is not None:
            key_positions = key_positions + (positions[..., :1] - positions_from(cache_index, 1))
        # None stands for what the causal order says: it hides empty slots, which have the numbers of later entries
        if positions is not None or not layer.cache_layout.slots_in_order:
            filled = both(filled, key_positions >= 0)  # not left padding, nor an empty slot of a rolling cache
    elif is_self:
        key_positions = query_positions
    else:
        memory = to_tensor("memory", memory, (batch, None, None))
        num_keys = sizes(memory)[1] if projected_memory is None else sizes(projected_memory["key"])[2]
        key_positions = ops.arange(num_keys)
    num_keys = sizes(key_positions)[-1]

    pair = tuple(size if isinstance(size, int) else None for size in (num_queries, num_keys))
    key_padding_mask = to_tensor("padding_mask", padding_mask, (batch, pair[1]), kind="mask")
    if cache is None:
        keras_mask = inputs_mask if is_self else memory_mask
        keras_mask = to_tensor("The Keras mask", keras_mask, (batch, pair[1]), kind="mask")
        key_padding_mask = both(key_padding_mask, keras_mask)
    if filled is not None:
        key_padding_mask = both(key_padding_mask, ops.broadcast_to(filled, (num_rows, num_keys)))
    segments = to_tensor("segment_ids", segment_ids, (batch, pair[0]), kind="int")
    memory_segments = to_tensor("memory_segment_ids", memory_segment_ids, (batch, pair[1]), kind="int")
    shapes = (pair, (batch, *pair), (batch, layer.num_heads, *pair))
    # Positions 0, 1, 2, ... on both sides are left out: they are the default of the kernels. So are those of
    # self-attention with lengths, which ascend over the real tokens, where nothing but their order counts.
    if lengths is not None and is_self and layer.window is None and layer.block_size is None:
        has_positions = False
    mask = AttentionMask(
        causal=layer.causal,
        window=layer.window,
        block_size=layer.block_size,
        prefix_length=to_tensor("prefix_length", prefix_length, (batch,), kind="int"),
        query_positions=query_positions if has_positions else None,
        key_positions=key_positions if has_positions and is_self else None,
        key_padding_mask=key_padding_mask,
        key_lengths=to_tensor("lengths", lengths, (batch,), kind="int"),
        query_segment_ids=segments,
        key_segment_ids=segments if memory_segments is None else memory_segments,
        allowed=to_tensor("attention_mask", attention_mask, *shapes, broadcast=True, kind="mask"),
    )
    if not is_self and layer.causal:
        # kernels leave lengths out with the causal order, which hides keys behind the end of a row from queries of
        # this row; those of a memory may end before the queries
        mask = mask.with_padding_mask(num_keys)
    if cache is not None or None not in pair or not mask.uses_order:
        query, key = (keras.KerasTensor((batch, layer.num_heads, size, layer.head_dim)) for size in pair)
        mask = draw_once(mask, query, key, num_queries, num_keys)
    prepared = layer.position_hooks().prepare(query_positions, sequence_length)  # of (length,) or (batch, length)
    is_global = to_tensor("global_mask", global_mask, (batch, length), kind="mask")
    return AttentionView(query_positions, key_positions, prepared, mask, inputs_mask, is_global, plan)


def check_call(layer: Any, inputs: Any, **arguments: Any) -> None:
    """Checks which call arguments of a `MultiHeadAttention` are given together.

    Args:
        layer: The layer.
        inputs: The queries' inputs.
        **arguments: Other call arguments by name.

    Raises:
        ValueError: If some exclude each other, or `inputs` have a wrong rank.
    """
    given = {name for name, value in arguments.items() if value is not None}
    if len(inputs.shape) != 3:
        raise ValueError(f"inputs must have shape (batch, length, width), got {tuple(inputs.shape)}.")
    if {"memory", "projected_memory"} <= given:
        raise ValueError(f"memory must be None with projected_memory, got {describe(arguments['memory'])}.")
    is_cross = bool({"memory", "projected_memory"} & given)
    if "global_mask" in given and (is_cross or not layer.has_global_projections):
        raise ValueError(
            "global_mask must be None without global_projections, and with a memory, got "
            f"{describe(arguments['global_mask'])}."
        )
    if is_cross and "cache" in given:
        raise ValueError(
            f"cache must be None with memory or projected_memory, got {describe(arguments['cache'])}. For "
            "cross-attention, compute projected_memory once with project_memory()."
        )
    if ("memory_segment_ids" in given) != (is_cross and "segment_ids" in given):
        raise ValueError(
            "memory_segment_ids must be given exactly when segment_ids are given together with memory or "
            "projected_memory (a query sees the memory of its own segment), got "
            f"memory_segment_ids={describe(arguments['memory_segment_ids'])} and "
            f"segment_ids={describe(arguments['segment_ids'])}."
        )
    if ("cache" in given) != ("cache_index" in given):
        raise ValueError(
            f"cache and cache_index must be given together, got cache={describe(arguments['cache'])} and "
            f"cache_index={describe(arguments['cache_index'])}."
        )
    for name in sorted({"cache", "segment_ids"} & given):
        if layer.position is not None and layer.position.depends_on_length and "sequence_length" not in given:
            raise ValueError(
                f"sequence_length must be given with {name} and position={layer.position!r}, which depends on the "
                "length of each whole text, got None. Or make the position for one sequence_length."
            )
    if "cache" not in given:
        return
    if "segment_ids" in given:
        raise ValueError(
            "segment_ids must be None with a cache, which does not keep the segments of its entries, got "
            f"{describe(arguments['segment_ids'])}."
        )
    if not layer.causal:
        raise ValueError(
            "causal must be True with a cache, got False: a query that sees later positions cannot be computed before "
            "them."
        )
    if "padding_mask" in given and not layer.cache_layout.slots_in_order:
        raise ValueError(
            f"padding_mask must be None with {type(layer.cache_layout).__name__}, whose slots are used again, got "
            f"{describe(arguments['padding_mask'])}. Give padding positions below zero."
        )
    if "lengths" in given:
        raise ValueError(
            "lengths must be None with a cache, whose entries are known by their positions, got "
            f"{describe(arguments['lengths'])}."
        )
    if "inputs_mask" in given and not {"positions", "padding_mask"} & given:
        raise ValueError(
            "inputs must have no Keras mask with a cache, which does not keep it, got one of "
            f"{describe(arguments['inputs_mask'])}. Give padding positions below zero."
        )


def to_tensor(name: str, x: Any, *shapes: tuple[int | None, ...], broadcast: bool = False, kind: str = "") -> Any:
    """Returns `x` as a tensor of one of `shapes`; None for None.

    Args:
        name: Name of the argument.
        x: Its value.
        shapes: The allowed shapes, with None for sizes that are not known.
        broadcast: Whether a size of 1 is allowed in place of any other.
        kind: "int" for integers, which become int32; "mask" for booleans or integers, which become booleans (zero is
            false); empty for any type.

    Raises:
        ValueError: If it has another shape or type.
    """
    if x is None:
        return None
    x = ops.convert_to_tensor(x)
    dtype = keras.backend.standardize_dtype(x.dtype)
    if kind and "int" not in dtype and not (kind == "mask" and dtype == "bool"):
        allowed = "integers" if kind == "int" else "booleans or integers, true where there is something to see"
        raise ValueError(f"{name} must be {allowed}, got type {dtype}.")
    if kind:
        x = ops.cast(x, "int32" if kind == "int" else "bool")
    for shape in shapes:
        if len(shape) == len(x.shape) and all(
            None in (size, expected) or size == expected or (broadcast and size == 1)
            for size, expected in zip(x.shape, shape, strict=True)
        ):
            return x
    allowed = " or ".join(str(shape) for shape in shapes)
    raise ValueError(f"{name} must have shape {allowed}, got {tuple(x.shape)}.")
