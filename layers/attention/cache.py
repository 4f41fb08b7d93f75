"""Key-value caches of attention: a layout makes, writes and reads a plain tree of tensors."""

from typing import Any

import keras
from keras import ops

from layers.constructor_arguments import ConfigFromArguments
from layers.fusion import update_slice


class CacheLayout(ConfigFromArguments):
    """The layout of a key-value cache of one attention layer: which slot holds which entry.

    A cache is a dictionary of tensors with the batch on axis 0. Writing returns a new cache, so that any loop can carry
    it; a compiler updates it in place if the old one is not used again.

    Entries are numbered in the order of writing, separately for each row. The index of a write is a scalar for all rows
    or one number per row, `(batch,)`; with one per row, texts can start and end at different steps. Rows with fewer new
    entries than others are padded on the right. Entries beyond the `count` of a row do not count as written.

    To add a layout, derive a class and override `make`, `write` and `entries`. Override `extend` too if new queries
    must see entries that the new keys overwrite.
    """

    # Whether slot i holds entry i. Only then can a padding mask name slots.
    slots_in_order = True

    def make(
        self, batch_size: Any, capacity: Any, *, num_heads: int, head_dim: int, value_head_dim: int, dtype: str
    ) -> dict[str, Any]:
        """Returns an empty cache.

        Args:
            batch_size: Number of rows, an integer or an integer tensor.
            capacity: Largest number of entries that will be written, an integer or an integer tensor.
            num_heads: Number of key-value heads.
            head_dim: Width of a key head.
            value_head_dim: Width of a value head.
            dtype: Data type of the entries.

        Returns:
            `{"key": (batch, num_heads, slots, head_dim), "value": (batch, num_heads, slots, value_head_dim)}`, zeros.
        """
        slots = self.num_slots(capacity)
        return {
            "key": ops.zeros((batch_size, num_heads, slots, head_dim), dtype=dtype),
            "value": ops.zeros((batch_size, num_heads, slots, value_head_dim), dtype=dtype),
        }

    def num_slots(self, capacity: Any) -> Any:
        """Returns the number of slots of a cache for `capacity` entries."""
        return capacity

    def write(self, cache: dict[str, Any], key: Any, value: Any, index: Any, count: Any = None) -> dict[str, Any]:
        """Returns the cache with new entries written, from entry `index` on.

        Args:
            cache: What `make` or the last `write` returned.
            key: New keys `(batch, num_heads, new, head_dim)`.
            value: New values `(batch, num_heads, new, value_head_dim)`.
            index: Number of entries written before, a scalar or `(batch,)`.
            count: Number of new entries of each row, `(batch,)`, the others being padding; None if all count.

        Raises:
            ValueError: If the new entries do not fit. A symbolic `index` cannot be checked.
        """
        raise NotImplementedError

    def entries(self, cache: dict[str, Any], index: Any) -> Any:
        """Returns the number of the entry that each slot holds after `index` entries were written.

        Args:
            cache: The cache. Only its shapes are used.
            index: A scalar or `(batch,)`.

        Returns:
            Integers `(slots,)`, or `(batch, slots)` for an index per row; below zero where a slot is empty.
        """
        raise NotImplementedError

    def extend(
        self, cache: dict[str, Any], key: Any, value: Any, index: Any, count: Any = None
    ) -> tuple[Any, Any, Any, dict[str, Any]]:
        """Writes new entries, and returns the keys, values and positions for the new queries.

        Args: as for `write`.

        Returns:
            Keys, values, the entry number of each key, and the new cache. Empty slots must have a number that hides
            them: one after the new entries, or one far below zero.
        """
        cache = self.write(cache, key, value, index, count)
        return cache["key"], cache["value"], self.entries(cache, index + ops.shape(key)[2]), cache


@keras.saving.register_keras_serializable("keras_transformer_zoo")
class WholeCache(CacheLayout):
    """Keeps all entries: entry i is in slot i.

    Example:

    >>> layout = WholeCache()
    >>> cache = layout.make(2, 16, num_heads=4, head_dim=8, value_head_dim=8, dtype="float32")
    >>> tuple(cache["key"].shape)
    (2, 4, 16, 8)

    Reference:
        Shazeer 2019, "Fast Transformer Decoding: One Write-Head is All You Need", section 2.4 (incremental decoding).
    """

    def write(self, cache: dict[str, Any], key: Any, value: Any, index: Any, count: Any = None) -> dict[str, Any]:
        _check_room(cache["key"].shape[2], key.shape[2], index)
        slots = ops.arange(ops.shape(cache["key"])[2])
        # Padding of a full row falls beyond the last slot. Padding of other rows is overwritten before it is seen.
        if not _per_row(index):
            return _write_slots(cache, key, value, index)
        if key.shape[2] == 1:
            return _write_slots(cache, key, value, index if count is None else ops.minimum(index, slots[-1]))
        is_new = ops.logical_and(slots >= column(index), slots < column(index + ops.shape(key)[2]))
        return _picked(cache, key, value, ops.where(is_new, ops.shape(slots)[0] + slots - column(index), slots))

    def entries(self, cache: dict[str, Any], index: Any) -> Any:
        slots = ops.arange(ops.shape(cache["key"])[2])
        return ops.where(slots < column(index), slots, -1)

    def extend(
        self, cache: dict[str, Any], key: Any, value: Any, index: Any, count: Any = None
    ) -> tuple[Any, Any, Any, dict[str, Any]]:
        cache = self.write(cache, key, value, index, count)
        # an empty slot has the number of a later entry, so the causal order hides it
        return cache["key"], cache["value"], ops.arange(ops.shape(cache["key"])[2]), cache


@keras.saving.register_keras_serializable("keras_transformer_zoo")
class RollingCache(CacheLayout):
    """Keeps the last entries: entry i is in slot `i % slots`, where it overwrites an older one.

    With a sliding window, decoding then takes the same memory for a text of any length.

    Args:
        window: Number of entries that a query sees, its own included.

    Raises:
        ValueError: If `window` is no integer of at least 1.

    Example:

    >>> layout = RollingCache(window=4)
    >>> cache = layout.make(1, 100, num_heads=1, head_dim=8, value_head_dim=8, dtype="float32")  # 4 slots
    >>> layout.entries(cache, 6)  # entries 2, 3, 4, 5 are held
    [4, 5, 2, 3]

    Reference:
        Jiang et al. 2023, "Mistral 7B", section 2 (rolling buffer cache).
    """

    slots_in_order = False

    def __init__(self, window: int) -> None:
        if isinstance(window, bool) or not isinstance(window, int) or window < 1:
            raise ValueError(f"window must be an integer of at least 1, got {window!r}.")
        self.window = window

    def num_slots(self, capacity: Any) -> Any:
        return min(capacity, self.window) if isinstance(capacity, int) else ops.minimum(capacity, self.window)

    def write(self, cache: dict[str, Any], key: Any, value: Any, index: Any, count: Any = None) -> dict[str, Any]:
        slots, new = ops.shape(cache["key"])[2], key.shape[2]
        if isinstance(slots, int) and slots < self.window:
            _check_room(slots, new, index)
        if new == 1:  # padding too may be written: its slot is outside the window of all later queries
            return _write_slots(cache, key, value, index % slots)
        # each slot takes the last new entry that falls on it, or keeps its own if there is none
        entries = self.entries(cache, index + (ops.shape(key)[2] if count is None else count))
        sources = ops.where(entries >= column(index), slots + entries - column(index), ops.arange(slots))
        return _picked(cache, key, value, sources)

    def entries(self, cache: dict[str, Any], index: Any) -> Any:
        slots = ops.shape(cache["key"])[2]
        last = column(index) - 1
        return last - (last - ops.arange(slots)) % slots

    def extend(
        self, cache: dict[str, Any], key: Any, value: Any, index: Any, count: Any = None
    ) -> tuple[Any, Any, Any, dict[str, Any]]:
        if key.shape[2] == 1:
            key, value, entries, cache = super().extend(cache, key, value, index, count)
            return key, value, _empty_far_back(entries), cache
        # the first of the new queries still see entries that the last new keys overwrite
        held, new = self.entries(cache, index), ops.arange(ops.shape(key)[2]) + column(index)
        if len(held.shape) == 1:
            new = ops.reshape(new, (-1,))
        joined = _joined(cache, key, value)
        entries = ops.concatenate([held, new], axis=-1)
        return joined["key"], joined["value"], _empty_far_back(entries), self.write(cache, key, value, index, count)


def layout_for(window: tuple[int | None, int | None] | None) -> CacheLayout:
    """Returns a rolling layout for a window `(left, right)` with a limit on the left, else a whole one."""
    return WholeCache() if window is None or window[0] is None else RollingCache(window[0] + 1)


def count_new(positions: Any, index: Any) -> Any:
    """Returns how many new entries each row has before its padding, where positions stop being consecutive.

    Args:
        positions: Positions of the new entries, `(length,)` or `(batch, length)`; None for no padding.
        index: Number of entries before.

    Returns:
        Integers `(batch,)`; None with one index for all rows, as padding then counts as an entry.
    """
    if positions is None or not _per_row(index):
        return None
    in_order = positions[..., :1] + ops.arange(ops.shape(positions)[-1], dtype=positions.dtype)
    return ops.sum(ops.cast(ops.equal(positions, in_order), "int32"), axis=-1)


def _empty_far_back(entries: Any) -> Any:
    """Entry numbers, with those of empty slots so low that they are outside every window."""
    return ops.where(entries < 0, -(2**30), entries)


def column(index: Any) -> Any:
    """Returns a scalar as it is, an index per row `(batch,)` as `(batch, 1)`."""
    return ops.expand_dims(index, -1) if _per_row(index) else index


def _per_row(index: Any) -> bool:
    return not isinstance(index, int) and len(index.shape) == 1


def _check_room(slots: Any, new: Any, index: Any) -> None:
    first = index if isinstance(index, int) else 0
    if slots is not None and new is not None and first + new > slots:
        raise ValueError(
            f"cache_index must leave room for {new} new entries in a cache with a capacity of {slots}, got {first}."
        )


def _write_slots(cache: dict[str, Any], key: Any, value: Any, first: Any) -> dict[str, Any]:
    """Writes new entries to slots `first, first + 1, ...`, a scalar or `(batch,)`."""
    new = {name: ops.cast(x, cache[name].dtype) for name, x in (("key", key), ("value", value))}
    if not _per_row(first):
        zero = ops.zeros_like(first)
        return {name: update_slice(cache[name], (zero, zero, first, zero), x) for name, x in new.items()}
    batch, heads, length, _ = ops.shape(key)
    shape = (batch, heads, length)
    slots = ops.expand_dims(first, -1) + ops.arange(length, dtype=first.dtype)
    places = (
        ops.broadcast_to(ops.reshape(ops.arange(batch, dtype=first.dtype), (-1, 1, 1)), shape),
        ops.broadcast_to(ops.reshape(ops.arange(heads, dtype=first.dtype), (1, -1, 1)), shape),
        ops.broadcast_to(ops.expand_dims(slots, 1), shape),
    )
    places = ops.reshape(ops.stack(places, axis=-1), (-1, 3))
    return {name: ops.scatter_update(cache[name], places, ops.reshape(x, (-1, x.shape[-1]))) for name, x in new.items()}


def _picked(cache: dict[str, Any], key: Any, value: Any, sources: Any) -> dict[str, Any]:
    """A cache with slots picked by `sources`, `(slots,)` or `(batch, slots)`: old slots, then the new entries."""
    joined = _joined(cache, key, value)
    if len(sources.shape) == 1:
        return {name: ops.take(entry, sources, axis=2) for name, entry in joined.items()}
    sources = ops.expand_dims(ops.expand_dims(sources, 1), -1)
    return {name: ops.take_along_axis(entry, sources, axis=2) for name, entry in joined.items()}


def _joined(cache: dict[str, Any], key: Any, value: Any) -> dict[str, Any]:
    """What the slots hold, followed by the new entries."""
    new = {"key": key, "value": value}
    return {name: ops.concatenate([cache[name], ops.cast(new[name], cache[name].dtype)], axis=2) for name in new}
