"""Key-value caches of attention: a layout makes, writes and reads a plain tree of tensors."""

import dataclasses
from typing import Any

import keras
from keras import ops

from layers.constructor_arguments import ConfigFromArguments
from layers.fusion import sizes, update_places, update_slice


class CacheLayout(ConfigFromArguments):
    """The layout of a key-value cache of one attention layer: which slot holds which entry.

    A cache is a dictionary of tensors with the batch on axis 0. Writing returns a new cache, so that any loop can carry
    it; a compiler updates it in place if the old one is not used again. A plan is also one for other tensors than keys
    and values, of the shape `(batch, num_heads, slots, width)`.

    Entries are numbered in the order of writing, separately for each row. The index of a write is a scalar for all rows
    or one number per row, `(batch,)`; with one per row, texts can start and end at different steps. Rows with fewer new
    entries than others are padded on the right. Entries beyond the `count` of a row do not count as written.

    Where entries go depends on numbers and shapes alone, so it is planned once for all layers with equal layouts.

    To add a layout, derive a class and override `plan` and `entries`.
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

    def entries(self, cache: dict[str, Any], index: Any) -> Any:
        """Returns the number of the entry that each slot holds after `index` entries were written.

        Args:
            cache: The cache. Only its shapes are used.
            index: A scalar or `(batch,)`.

        Returns:
            Integers `(slots,)`, or `(batch, slots)` for an index per row; below zero where a slot is empty.
        """
        raise NotImplementedError

    def plan(self, cache: dict[str, Any], new: Any, index: Any, count: Any = None) -> "CachePlan":
        """Returns where new entries go, from entry `index` on, and which entries new queries see.

        Args:
            cache: The cache. Only its shapes are used.
            new: Number of new entries, an integer or a scalar tensor.
            index: Number of entries written before, a scalar or `(batch,)`.
            count: Number of new entries of each row, `(batch,)`, the others being padding; None if all count.

        Raises:
            ValueError: If the new entries do not fit. A symbolic `index` cannot be checked.
        """
        raise NotImplementedError

    def extend(self, cache: dict[str, Any], key: Any, value: Any, plan: "CachePlan") -> tuple[Any, Any, dict[str, Any]]:
        """Writes new entries, and returns the keys and values for the new queries, and the new cache.

        Args:
            cache: What `make` or the last `extend` returned.
            key: New keys `(batch, num_heads, new, head_dim)`.
            value: New values `(batch, num_heads, new, value_head_dim)`.
            plan: The result of `plan`. `plan.entries` are the numbers of the keys that are returned.
        """
        new = {"key": key, "value": value}
        parts = {name: (old, ops.cast(new[name], old.dtype)) for name, old in cache.items()}
        written = {name: plan.write(*pair) for name, pair in parts.items()}
        seen = {name: ops.concatenate(pair, axis=2) for name, pair in parts.items()} if plan.sees_old else written
        return seen["key"], seen["value"], written

    def write(self, cache: dict[str, Any], key: Any, value: Any, index: Any, count: Any = None) -> dict[str, Any]:
        """Returns the cache with new entries written. Args: as for `extend` and `plan`."""
        return self.extend(cache, key, value, self.plan(cache, sizes(key)[2], index, count))[2]


@dataclasses.dataclass(frozen=True, eq=False)
class CachePlan:
    """Where a call writes new entries of a cache, and which entries its queries see. It holds for many layers.

    Args:
        entries: The number of the entry of each key that queries see, `(keys,)` or `(batch, keys)`. Empty slots have a
            number that hides them: one after the new entries, or one far below zero.
        start: Place of the first new entry, the others following, `(0, 0, slot, 0)`.
        places: Row, head and slot of each new entry, `(batch * num_heads * new, 3)`, where rows differ.
        sources: Which of the old slots and, after these, the new entries each slot holds then, `(slots,)` or `(batch,
            slots)`, where neither does.
        sees_old: Whether queries see what the slots held before, followed by the new entries.
    """

    entries: Any
    start: Any = None
    places: Any = None
    sources: Any = None
    sees_old: bool = False

    def write(self, old: Any, new: Any) -> Any:
        """Returns what slots hold, `(batch, num_heads, slots, width)`, after new entries are written."""
        if self.start is not None:
            return update_slice(old, self.start, new)
        if self.places is not None:
            return update_places(old, self.places, ops.reshape(new, (-1, new.shape[-1])))
        joined = ops.concatenate([old, new], axis=2)
        if len(self.sources.shape) == 1:
            return ops.take(joined, self.sources, axis=2)
        return ops.take_along_axis(joined, self.sources[:, None, :, None], axis=2)


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

    def entries(self, cache: dict[str, Any], index: Any) -> Any:
        slots = ops.arange(sizes(_example(cache))[2])
        return ops.where(slots < column(index), slots, -1)

    def plan(self, cache: dict[str, Any], new: Any, index: Any, count: Any = None) -> CachePlan:
        _check_room(_example(cache).shape[2], new, index)
        num_slots = sizes(_example(cache))[2]
        # an empty slot has the number of a later entry, so the causal order hides it
        slots = ops.arange(num_slots)
        # Padding of a full row falls beyond the last slot. Padding of other rows is overwritten before it is seen.
        if not _per_row(index):
            return CachePlan(slots, start=_start(index))
        if isinstance(new, int) and new == 1:
            return CachePlan(slots, places=_places(cache, index if count is None else ops.minimum(index, slots[-1])))
        is_new = ops.logical_and(slots >= column(index), slots < column(index + new))
        return CachePlan(slots, sources=ops.where(is_new, num_slots + slots - column(index), slots))


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

    def entries(self, cache: dict[str, Any], index: Any) -> Any:
        slots = sizes(_example(cache))[2]
        last = column(index) - 1
        return last - (last - ops.arange(slots)) % slots

    def plan(self, cache: dict[str, Any], new: Any, index: Any, count: Any = None) -> CachePlan:
        slots = sizes(_example(cache))[2]
        if isinstance(slots, int) and slots < self.window:
            _check_room(slots, new, index)
        if isinstance(new, int) and new == 1:
            # padding too may be written: its slot is outside the window of all later queries
            entries, slot = _empty_far_back(self.entries(cache, index + 1)), index % slots
            to = {"places": _places(cache, slot)} if _per_row(index) else {"start": _start(slot)}
            return CachePlan(entries, **to)
        # each slot takes the last new entry that falls on it, or keeps its own if there is none
        after = self.entries(cache, index + (new if count is None else count))
        sources = ops.where(after >= column(index), slots + after - column(index), ops.arange(slots))
        # the first of the new queries still see entries that the last new keys overwrite
        entries = ops.concatenate([self.entries(cache, index), ops.arange(new) + column(index)], axis=-1)
        return CachePlan(_empty_far_back(entries), sources=sources, sees_old=True)


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
    in_order = positions[..., :1] + ops.arange(sizes(positions)[-1], dtype=positions.dtype)
    return ops.sum(ops.cast(ops.equal(positions, in_order), "int32"), axis=-1)


def _example(cache: dict[str, Any]) -> Any:
    """A tensor of a cache: all have the same rows, heads and slots."""
    return next(iter(cache.values()))


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
    if isinstance(slots, int) and isinstance(new, int) and first + new > slots:
        raise ValueError(
            f"cache_index must leave room for {new} new entries in a cache with a capacity of {slots}, got {first}."
        )


def _start(slot: Any) -> Any:
    """The place of an update of `(batch, num_heads, slots, width)` from a slot on."""
    if isinstance(slot, int):
        return (0, 0, slot, 0)
    zero = ops.zeros_like(slot)
    return ops.stack([zero, zero, slot, zero])


def _places(cache: dict[str, Any], slots: Any) -> Any:
    """Row, head and slot of an entry of each row and head, `(batch * num_heads, 3)`, of slots `(batch,)`."""
    rows, heads = (ops.arange(size, dtype=slots.dtype) for size in sizes(_example(cache))[:2])
    parts = (rows[:, None], heads, slots[:, None])
    places = [ops.broadcast_to(part, sizes(_example(cache))[:2]) for part in parts]
    return ops.reshape(ops.stack(places, axis=-1), (-1, 3))
