"""Key-value cache of one attention layer: a dictionary of two tensors, so that any loop can carry it."""

from typing import Any

import keras
from keras import ops


def make_cache(
    batch_size: Any,
    num_key_value_heads: int,
    capacity: int,
    head_dim: int,
    value_head_dim: int | None = None,
    dtype: str | None = None,
) -> dict[str, Any]:
    """Returns an empty key-value cache.

    The cache is a plain value: `write_cache` returns a new one, and a compiler that sees the old one die updates it
    in place.

    Args:
        batch_size: Rows, an integer or an integer tensor.
        num_key_value_heads: Number of key-value heads.
        capacity: Number of positions that the cache can hold. For a sliding window that looks `left` positions back,
            `left + 1` suffices (see `write_cache`).
        head_dim: Width of one key head.
        value_head_dim: Width of one value head. Default `head_dim`.
        dtype: Data type of the entries. Default `keras.config.floatx()`.

    Returns:
        `{"key": (batch, key_value_heads, capacity, head_dim), "value": (batch, key_value_heads, capacity,
        value_head_dim)}`, all zero.

    Example:

    >>> cache = make_cache(2, num_key_value_heads=4, capacity=16, head_dim=8)
    >>> tuple(cache["key"].shape)
    (2, 4, 16, 8)

    Reference:
        Shazeer 2019, "Fast Transformer Decoding: One Write-Head is All You Need", section 2.4 (incremental decoding).
    """
    dtype = dtype or keras.config.floatx()
    value_head_dim = head_dim if value_head_dim is None else value_head_dim
    return {
        "key": ops.zeros((batch_size, num_key_value_heads, capacity, head_dim), dtype=dtype),
        "value": ops.zeros((batch_size, num_key_value_heads, capacity, value_head_dim), dtype=dtype),
    }


def write_cache(cache: dict[str, Any], key: Any, value: Any, index: Any) -> dict[str, Any]:
    """Returns the cache with `key` and `value` written from slot `index` on.

    Args:
        cache: What `make_cache` returned.
        key: New keys `(batch, key_value_heads, new, head_dim)`.
        value: New values `(batch, key_value_heads, new, value_head_dim)`.
        index: Slot of the first new entry, a scalar integer (the same for all rows).

    Returns:
        A cache of the same shapes.

    Raises:
        ValueError: If the new entries do not fit, as far as it is known: `index` may be a tensor without a value yet.
    """
    capacity, new = cache["key"].shape[2], key.shape[2]
    first = index if isinstance(index, int) else 0
    if capacity is not None and new is not None and first + new > capacity:
        raise ValueError(f"{new} new entries from index {first} on do not fit a cache with a capacity of {capacity}.")
    zero = ops.zeros_like(index)
    start = (zero, zero, index, zero)
    return {
        "key": ops.slice_update(cache["key"], start, ops.cast(key, cache["key"].dtype)),
        "value": ops.slice_update(cache["value"], start, ops.cast(value, cache["value"].dtype)),
    }


def write_rolling_cache(cache: dict[str, Any], key: Any, value: Any, index: Any) -> dict[str, Any]:
    """Returns the cache with entry `index + i` written to slot `(index + i) % capacity`, oldest entries overwritten.

    Args:
        cache: What `make_cache` returned.
        key: New keys `(batch, key_value_heads, new, head_dim)`; of more than `capacity` only the last are kept.
        value: New values `(batch, key_value_heads, new, value_head_dim)`.
        index: Number of entries written so far, a scalar integer.

    Returns:
        A cache of the same shapes.
    """
    capacity = cache["key"].shape[2]
    if key.shape[2] == 1:
        return write_cache(cache, key, value, index % capacity)
    # each slot takes the last entry that falls on it, from the new ones or, where there is none, from itself
    entries = rolling_positions(capacity, index + ops.shape(key)[2])
    sources = ops.where(entries >= index, capacity + entries - index, ops.arange(capacity))
    joined = {
        name: ops.concatenate([cache[name], ops.cast(new, cache[name].dtype)], axis=2)
        for name, new in (("key", key), ("value", value))
    }
    return {name: ops.take(entry, sources, axis=2) for name, entry in joined.items()}


def rolling_positions(capacity: int, index: Any) -> Any:
    """Returns the entry number that each slot of a rolling cache holds after `index` entries were written.

    Args:
        capacity: Number of slots.
        index: Number of entries written so far, a scalar integer.

    Returns:
        Integers `(capacity,)`: the largest entry number below `index` that falls on the slot; negative where the slot
        is still empty.

    Example:

    >>> rolling_positions(4, 6)  # entries 2, 3, 4, 5 are held
    [4, 5, 2, 3]
    """
    slots = ops.arange(capacity)
    last = index - 1
    return last - (last - slots) % capacity


def extend_cache(
    cache: dict[str, Any], key: Any, value: Any, index: Any, positions: Any, rolling: bool
) -> tuple[Any, Any, Any, dict[str, Any]]:
    """Writes new entries to a cache and returns what the new queries may see.

    Args:
        cache: What `make_cache` returned.
        key: New keys `(batch, key_value_heads, new, head_dim)`.
        value: New values `(batch, key_value_heads, new, value_head_dim)`.
        index: Number of entries written so far, a scalar integer.
        positions: Positions of the new entries, `(new,)` or `(batch, new)`, consecutive in each row.
        rolling: Whether the cache is written round and round.

    Returns:
        Keys, values, the positions of both, `(entries,)` or `(batch, entries)`, and the new cache.
    """
    capacity, new = ops.shape(cache["key"])[2], ops.shape(key)[2]
    offset = ops.expand_dims(positions[..., 0], -1) - index
    if not rolling:
        new_cache = write_cache(cache, key, value, index)
        return new_cache["key"], new_cache["value"], ops.arange(capacity) + offset, new_cache
    new_cache = write_rolling_cache(cache, key, value, index)
    if key.shape[2] == 1:
        entries = rolling_positions(capacity, index + 1)
        key, value = new_cache["key"], new_cache["value"]
    else:
        # the first of the new queries still see entries that the last new keys overwrite
        entries = ops.concatenate([rolling_positions(capacity, index), ops.arange(new) + index])
        key = ops.concatenate([cache["key"], ops.cast(key, cache["key"].dtype)], axis=2)
        value = ops.concatenate([cache["value"], ops.cast(value, cache["value"].dtype)], axis=2)
    # an empty slot is moved out of every window
    entries = ops.where(entries < 0, -(2**30), entries)
    return key, value, entries + offset, new_cache
