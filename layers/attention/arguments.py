"""Checks of what `MultiHeadAttention` is made with and called with."""

from typing import Any

import keras
from keras import ops

from layers.attention.masks import AttentionMask
from layers.positions.base import PositionEncoding

PROJECTIONS = ("query", "key", "value", "output")


def check_configuration(layer: Any) -> None:
    """Checks the choices that a `MultiHeadAttention` was made with, which it holds as attributes.

    Args:
        layer: The layer.

    Raises:
        ValueError: If one is out of range or does not go with another.
    """
    for name in ("num_heads", "head_dim", "num_key_value_heads", "value_head_dim"):
        value = getattr(layer, name)
        if not isinstance(value, int) or value < 1:
            raise ValueError(f"{name} must be an integer of at least 1, got {value!r}.")
    if layer.num_heads % layer.num_key_value_heads:
        raise ValueError(
            f"num_key_value_heads must divide num_heads={layer.num_heads}, got {layer.num_key_value_heads}: each "
            "key-value head serves the same number of query heads."
        )
    unknown = set(layer.use_bias) - set(PROJECTIONS)
    if unknown:
        raise ValueError(f"use_bias names {sorted(unknown)}, which are not among the projections {PROJECTIONS}.")
    if layer.query_key_norm == "batch":
        raise ValueError("query_key_norm='batch' would count padding; allowed: a norm over the width of a head.")
    if layer.output_dim is not None and (not isinstance(layer.output_dim, int) or layer.output_dim < 1):
        raise ValueError(f"output_dim must be an integer of at least 1 or None, got {layer.output_dim!r}.")
    if not 0 <= layer.dropout_rate < 1:
        raise ValueError(f"dropout must be at least 0 and below 1, got {layer.dropout_rate!r}.")
    if layer.logit_soft_cap is not None and not layer.logit_soft_cap > 0:
        raise ValueError(f"logit_soft_cap must be positive or None, got {layer.logit_soft_cap!r}.")
    # raises where they are out of range
    AttentionMask(causal=layer.causal, window=layer.window, block_size=layer.block_size)
    if layer.position is not None:
        _check_position(layer)


def _check_position(layer):
    position = layer.position
    if not isinstance(position, PositionEncoding):
        raise ValueError(f"position must be a PositionEncoding or None, got {position!r}.")
    if not position.acts_in_attention():
        raise ValueError(
            f"position must act on queries and keys, on scores or on the output of attention, got {position!r}, which "
            "acts on the embedded tokens: add it to the inputs of the model."
        )
    position.check_heads(layer.num_heads, layer.head_dim, layer.value_head_dim)
    if position.needs_weights and layer.attention_path not in ("auto", "plain"):
        raise ValueError(
            f"path must be 'auto' or 'plain' with position={position!r}, which needs all weights at once; "
            f"got {layer.attention_path!r}."
        )


def check_call(
    inputs: Any, memory: Any, projected_memory: Any, cache: Any, cache_index: Any, segment_ids: Any, causal: bool
) -> None:
    """Checks which call arguments of a `MultiHeadAttention` are given together.

    Args: see `MultiHeadAttention`.

    Raises:
        ValueError: If some exclude each other, or `inputs` have a wrong rank.
    """
    if len(inputs.shape) != 3:
        raise ValueError(f"inputs must have shape (batch, length, width), got {tuple(inputs.shape)}.")
    if (memory is not None or projected_memory is not None) and (cache is not None or segment_ids is not None):
        raise ValueError(
            "cache and segment_ids belong to self-attention and exclude memory and projected_memory. For "
            "cross-attention, compute projected_memory once with project_memory()."
        )
    if memory is not None and projected_memory is not None:
        raise ValueError("memory and projected_memory exclude each other.")
    if (cache is None) != (cache_index is None):
        raise ValueError("cache and cache_index come together.")
    if cache is not None and segment_ids is not None:
        raise ValueError("segment_ids exclude a cache: the segments of its entries are not kept.")
    if cache is not None and not causal:
        raise ValueError("cache needs causal=True: a query that sees later positions cannot be computed before them.")


def checked(name: str, x: Any, *shapes: tuple, broadcast: bool = False, integers: bool = False) -> Any:
    """Returns `x` as a tensor of one of `shapes`, whose sizes are None where they are not known; None for None.

    Args:
        name: Name of the argument.
        x: Its value.
        shapes: The shapes that are allowed.
        broadcast: Whether sizes of 1 are allowed for any other.
        integers: Whether it must hold integers, which become int32.

    Raises:
        ValueError: If it has another shape or type.
    """
    if x is None:
        return None
    x = ops.convert_to_tensor(x)
    if integers:
        dtype = keras.backend.standardize_dtype(x.dtype)
        if "int" not in dtype:
            raise ValueError(f"{name} must be integers, got type {dtype}.")
        x = ops.cast(x, "int32")
    for shape in shapes:
        if len(shape) == len(x.shape) and all(
            None in (size, expected) or size == expected or (broadcast and size == 1)
            for size, expected in zip(x.shape, shape, strict=True)
        ):
            return x
    allowed = " or ".join(str(shape) for shape in shapes)
    raise ValueError(f"{name} must have shape {allowed}, got {tuple(x.shape)}.")
