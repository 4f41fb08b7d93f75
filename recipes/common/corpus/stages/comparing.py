"""The second stage: duplicates among the documents of all shards, and what becomes of each document."""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence
from pathlib import Path

import numpy as np

import zoo
from recipes.common.corpus import duplicates
from recipes.common.corpus.stages.reading import keys_of, signatures_of
from recipes.common.corpus.stages.tasks import Settings

# what becomes of a document that the filters keep
_FATES = ("train", "held_out", "exact", "near")
TRAIN, HELD_OUT, EXACT, NEAR = range(len(_FATES))
# keys that are compared at once; all are read as often as there are groups of them
_KEYS_AT_ONCE, _MOST_GROUPS = 1 << 20, 16


@dataclasses.dataclass(frozen=True)
class DuplicatesTask:
    """The work on all keys, or on a band of all signatures; `counts` are the documents of each shard that are kept."""

    settings: Settings
    counts: Sequence[int]
    band: int | None = None

    @property
    def path(self) -> Path:
        """What it makes."""
        return self.settings.work("repeated.npy" if self.band is None else f"pairs-{self.band:03d}.npy")


def find_duplicates(task: DuplicatesTask) -> None:
    """Finds exact duplicates, or near ones that agree in a band, among the documents of all shards.

    Args:
        task: What to compare.
    """
    settings, shards = task.settings, range(len(task.counts))
    if task.band is None:
        found = _repeated(settings, task.counts)
    else:
        bands = [
            np.load(settings.work(f"bands-{number:05d}.npy"), mmap_mode="r") for number in shards if task.counts[number]
        ]
        keys = np.concatenate([np.zeros(0, np.uint64), *(band[task.band] for band in bands)])
        found = duplicates.similar_pairs(keys, _Signatures(settings, task.counts), settings.threshold)
    with zoo.storage.atomic_write(task.path) as path, open(path, "wb") as stream:
        np.save(stream, found)


def _repeated(settings: Settings, counts: Sequence[int]) -> np.ndarray:
    """Which documents have the key of an earlier one; a part of all keys is in memory at a time."""
    found = np.zeros(sum(counts), bool)
    groups = min(_MOST_GROUPS, 1 + len(found) // _KEYS_AT_ONCE)
    starts = np.cumsum(counts) - counts
    for group in range(groups):
        places, parts = [np.zeros(0, np.int64)], [np.zeros((0, 2), np.uint64)]
        for number, start in enumerate(starts):
            keys = keys_of(settings, number)[1]
            chosen = np.flatnonzero(keys[:, 0] % np.uint64(groups) == group)
            places.append(start + chosen)
            parts.append(keys[chosen])
        found[np.concatenate(places)] = duplicates.repeated(np.concatenate(parts))
    return found


class _Signatures:
    """The signatures of all shards, by the number of the document."""

    def __init__(self, settings: Settings, counts: Sequence[int]) -> None:
        self._ends = np.cumsum(counts)
        self._parts = [signatures_of(settings, number, count) for number, count in enumerate(counts)]

    def __getitem__(self, numbers: np.ndarray) -> np.ndarray:
        shards = np.searchsorted(self._ends, numbers, side="right")
        starts = self._ends - [len(part) for part in self._parts]
        return np.stack(
            [self._parts[shard][number - starts[shard]] for shard, number in zip(shards, numbers, strict=True)]
        )


def decide(settings: Settings, counts: Sequence[int], bands: int) -> dict[str, int]:
    """Decides about each document that the filters keep, in a file for each shard; returns how many have which fate.

    Args:
        settings: The settings.
        counts: Documents of each shard that the filters keep.
        bands: Number of bands that were compared.
    """
    decisions = np.full(sum(counts), TRAIN, np.uint8)
    ends = np.cumsum(counts)
    for number, count in enumerate(counts):
        # by the text alone, which is the same wherever a document stands
        is_held_out = keys_of(settings, number)[1][:, 0] < np.uint64(int(settings.held_out * 2**64))
        decisions[ends[number] - count : ends[number]][is_held_out] = HELD_OUT
    if bands:
        pairs = (np.load(settings.work(f"pairs-{band:03d}.npy")) for band in range(bands))
        decisions[duplicates.later_of_groups(pairs)] = NEAR
    if settings.deduplicate != "none":
        decisions[np.load(settings.work("repeated.npy"))] = EXACT
    for number, count in enumerate(counts):
        with zoo.storage.atomic_write(settings.work(f"decisions-{number:05d}.npy")) as path, open(path, "wb") as stream:
            np.save(stream, decisions[ends[number] - count : ends[number]])
    return {name: int(np.count_nonzero(decisions == code)) for code, name in enumerate(_FATES)}
