"""Checks of the arguments of `MultiHeadAttention`, and the mask that its call arguments describe."""

import inspect
from typing import Any

import keras
from keras import ops

from layers.attention.cache import CacheLayout
from layers.attention.kernels.banded import band
from layers.attention.kernels.dispatch import PATHS
from layers.attention.masks import AttentionMask, both
from layers.errors import describe
from layers.positions.base import PositionEncoding

PROJECTIONS = ("query", "key", "value", "output")
NORM_SCOPES = ("head", "width")


def check_configuration(layer: Any) -> None:
    """Checks the constructor arguments of a `MultiHeadAttention`, which it holds as attributes.

    Args:
        layer: The layer.

    Raises:
        ValueError: If an argument is out of range, or two of them exclude each other.
    """
    for name in ("num_heads", "head_dim", "num_key_value_heads", "value_head_dim"):
        value = getattr(layer, name)
        if isinstance(value, bool) or not isinstance(value, int) or value < 1:
            raise ValueError(f"{name} must be an integer of at least 1, got {value!r}.")
    if layer.num_heads % layer.num_key_value_heads:
        raise ValueError(
            f"num_key_value_heads must divide num_heads={layer.num_heads}, got {layer.num_key_value_heads}: each "
            "key-value head serves the same number of query heads."
        )
    unknown = set(layer.use_bias) - set(PROJECTIONS)
    if unknown:
        raise ValueError(f"use_bias must be a bool or names out of {PROJECTIONS}, got {sorted(unknown)} too.")
    if layer.output_dim is not None and (not isinstance(layer.output_dim, int) or layer.output_dim < 1):
        raise ValueError(f"output_dim must be an integer of at least 1 or None, got {layer.output_dim!r}.")
    if not 0 <= layer.dropout_rate < 1:
        raise ValueError(f"dropout must be at least 0 and below 1, got {layer.dropout_rate!r}.")
    if layer.logit_soft_cap is not None and not layer.logit_soft_cap > 0:
        raise ValueError(f"logit_soft_cap must be positive or None, got {layer.logit_soft_cap!r}.")
    if layer.norm_scope not in NORM_SCOPES:
        raise ValueError(f"norm_scope must be one of {NORM_SCOPES}, got {layer.norm_scope!r}.")
    for name in ("query_norm", "key_norm"):
        _check_norm(name, getattr(layer, name))
    if layer.weighting is not None and (layer.has_sinks or layer.logit_soft_cap is not None):
        raise ValueError(
            f"sinks and logit_soft_cap must be left out with weighting={layer.weighting!r}, as they belong to the "
            f"softmax, got sinks={layer.has_sinks} and logit_soft_cap={layer.logit_soft_cap!r}."
        )
    if not isinstance(layer.cache_layout, CacheLayout):
        raise ValueError(f"cache_layout must be a CacheLayout or None, got {layer.cache_layout!r}.")
    if layer.position is not None:
        _check_position(layer)
    if layer.latents is not None:
        _check_latents(layer)
    _check_path(layer)


def _check_norm(name: str, norm: Any) -> None:
    if norm is None:
        return
    if not isinstance(norm, keras.layers.Layer):
        raise ValueError(f"{name} must be a Keras layer or None, got {norm!r}.")
    if "mask" in inspect.signature(norm.call).parameters:
        raise ValueError(
            f"{name} must be a norm of each position for itself, got {norm!r}: its statistics would count padding."
        )


def _check_position(layer: Any) -> None:
    position = layer.position
    if not isinstance(position, PositionEncoding):
        raise ValueError(f"position must be a PositionEncoding or None, got {position!r}.")
    if not position.acts_in_attention():
        raise ValueError(
            f"position must act on queries and keys, on scores or on the output of attention, got {position!r}, which "
            "acts on the embedded tokens: add it to the inputs of the model."
        )
    position.check_heads(layer.num_heads, layer.head_dim, layer.value_head_dim)


def _check_latents(layer: Any) -> None:
    shared = layer.latents.shared_key_dim
    if not shared < layer.head_dim:
        raise ValueError(f"latents must have a shared_key_dim below head_dim={layer.head_dim}, got {shared}.")
    for name, usual in (("num_key_value_heads", layer.num_heads), ("query_norm", None), ("key_norm", None)):
        if getattr(layer, name) != usual:
            raise ValueError(f"{name} must be {usual} with latents, got {getattr(layer, name)!r}.")
    for hook in ("on_pairs", "score_bias", "on_output"):
        if layer.position is not None and getattr(type(layer.position), hook) is not getattr(PositionEncoding, hook):
            raise ValueError(f"position must act on queries and keys alone with latents, got {layer.position!r}.")


def _check_path(layer: Any) -> None:
    """Raises if no call could take the path; otherwise a path is a preference."""
    path = layer.preferred_path
    if path not in ("auto", *PATHS):
        raise ValueError(f"path must be one of {('auto', *PATHS)}, got {path!r}.")
    if path in ("auto", "plain"):
        return
    if layer.position is not None and layer.position.needs_weights:
        raise ValueError(
            f"path must be 'auto' or 'plain' with position={layer.position!r}, which needs all weights at once; "
            f"got {path!r}."
        )
    if layer.weighting is not None and path not in layer.weighting.paths:
        raise ValueError(f"path must be 'auto' or one of {layer.weighting.paths} with weighting, got {path!r}.")
    if path == "banded" and band(AttentionMask(layer.causal, layer.window, layer.block_size)) is None:
        raise ValueError(
            "path must not be 'banded' without a block_size or a window with limits on both sides (one, if causal), "
            f"got 'banded' with window={layer.window} and block_size={layer.block_size}."
        )


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


def to_positions(inputs: Any, positions: Any, cache_index: Any) -> tuple[Any, Any]:
    """Returns the positions of the queries of a call, and the number of cached entries before them.

    Args:
        inputs: `(batch, length, width)`.
        positions: Integers `(length,)` or `(batch, length)`, or None.
        cache_index: An integer, or an integer tensor, a scalar or `(batch,)`, or None.

    Returns:
        Both as int32 tensors. None stays None, and an index that is a Python integer stays one.

    Raises:
        ValueError: If one has another shape or type.
    """
    batch, length = inputs.shape[:2]
    positions = to_tensor("positions", positions, (length,), (batch, length), kind="int")
    if cache_index is not None and not isinstance(cache_index, int):
        cache_index = to_tensor("cache_index", cache_index, (), (batch,), kind="int")
    return positions, cache_index


def mask_of_call(
    layer: Any,
    query: Any,
    key: Any,
    *,
    query_positions: Any,
    key_positions: Any,
    filled: Any,
    padding_mask: Any,
    lengths: Any,
    keras_mask: Any,
    attention_mask: Any,
    segment_ids: Any,
    memory_segment_ids: Any,
    prefix_length: Any,
) -> AttentionMask:
    """Returns which query sees which key in a call of a `MultiHeadAttention`.

    Args:
        layer: The layer.
        query: `(batch, heads, length, head_dim)`.
        key: `(batch, key_value_heads, key_length, head_dim)`.
        query_positions: `(length,)` or `(batch, length)`; None for 0, 1, 2, ...
        key_positions: `(key_length,)` or `(batch, key_length)`, likewise.
        filled: True where a slot of a cache holds a real entry, `(slots,)` or `(batch, slots)`; None where the causal
            order tells it.
        keras_mask: Keras's mask of the keys, `(batch, key_length)`.
        padding_mask, lengths, attention_mask, segment_ids, memory_segment_ids, prefix_length: Call arguments of the
            layer.

    Raises:
        ValueError: If one has a wrong shape or type.
    """
    batch, pair = query.shape[0], (query.shape[2], key.shape[2])
    key_padding_mask = to_tensor("padding_mask", padding_mask, (batch, pair[1]), kind="mask")
    key_padding_mask = both(key_padding_mask, to_tensor("The Keras mask", keras_mask, (batch, pair[1]), kind="mask"))
    if filled is not None:
        filled = ops.broadcast_to(filled, (ops.shape(query)[0], ops.shape(key)[2]))
        key_padding_mask = both(key_padding_mask, filled)
    segments = to_tensor("segment_ids", segment_ids, (batch, pair[0]), kind="int")
    memory_segments = to_tensor("memory_segment_ids", memory_segment_ids, (batch, pair[1]), kind="int")
    shapes = (pair, (batch, *pair), (batch, layer.num_heads, *pair))
    if lengths is not None and key_positions is not None and layer.window is None and layer.block_size is None:
        # positions of self-attention, which ascend over the real tokens, and nothing but their order counts
        query_positions = key_positions = None
    return AttentionMask(
        causal=layer.causal,
        window=layer.window,
        block_size=layer.block_size,
        prefix_length=to_tensor("prefix_length", prefix_length, (batch,), kind="int"),
        query_positions=query_positions,
        key_positions=key_positions,
        key_padding_mask=key_padding_mask,
        key_lengths=to_tensor("lengths", lengths, (batch,), kind="int"),
        query_segment_ids=segments,
        key_segment_ids=segments if memory_segments is None else memory_segments,
        allowed=to_tensor("attention_mask", attention_mask, *shapes, broadcast=True, kind="mask"),
    )
