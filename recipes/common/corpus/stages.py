"""The three stages of preparing a corpus; the work of each on one shard is a function of its own, see `engines`.

`read_shard` filters the documents and notes keys and signatures of those that stay, `find_repeated` and `find_similar`
find the duplicates among all, and `pack_shard` reads the documents again and writes the token rows of those that are
left. What a stage has made is a file that is whole or absent, so that an interrupted run goes on behind it.
"""

from __future__ import annotations

import dataclasses
import functools
import hashlib
import itertools
import json
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence
from pathlib import Path
from typing import Any

import numpy as np

import zoo
from recipes.common.corpus import duplicates
from recipes.common.corpus.documents import BadRecords, read_documents, write_documents
from recipes.common.corpus.filters import make_filters
from recipes.common.corpus.output_folder import WORK_FOLDER
from recipes.common.corpus.shards import (
    TOKENIZER_FOLDER,
    dtype_for,
    fingerprint,
    join_documents,
    packed_rows,
    write_shard,
)
from recipes.common.corpus.sources import Part
from recipes.common.errors import BadLines, DataError

SHARD_FOLDER = "shards"
# what becomes of a document that the filters keep
_FATES = ("train", "held_out", "exact", "near")
TRAIN, HELD_OUT, EXACT, NEAR = range(len(_FATES))
# of each batch that is tokenized at once
_DOCUMENTS_AT_ONCE, _CHARACTERS_AT_ONCE = 512, 1 << 20
_SIGNATURES_AT_ONCE = 4096
# keys that are compared at once; all are read as often as there are groups of them
_KEYS_AT_ONCE, _MOST_GROUPS = 1 << 20, 16


@dataclasses.dataclass(frozen=True)
class Settings:
    """What the bytes of a corpus depend on, and where it is made; see the keys of `recipes.prepare_text`.

    Of the tokenizer it is the fingerprint.
    """

    folder: Path
    unit: str
    key: str
    split: str
    on_error: str
    filters: Sequence[str | dict[str, Any]]
    deduplicate: str
    threshold: float
    held_out: float
    length: int
    start_token: bool
    tokenizer: str

    def work(self, name: str) -> Path:
        """A file of the stages, removed at the end."""
        return self.folder / WORK_FOLDER / name

    def shard(self, number: int) -> Path:
        """The file of a shard."""
        return self.folder / SHARD_FOLDER / f"{number:05d}.array_record"


@dataclasses.dataclass(frozen=True)
class ShardTask:
    """The work on one shard."""

    settings: Settings
    number: int
    parts: Sequence[Part]

    def documents(self, bad: BadLines) -> Iterator[str]:
        """Streams the documents of its parts."""
        of = self.settings
        for part in self.parts:
            yield from read_documents(part, of.unit, of.key, of.split, bad)


def read_shard(task: ShardTask) -> dict[str, Any]:
    """Filters the documents of a shard; returns counts.

    Args:
        task: The shard.
    """
    settings, number = task.settings, task.number
    bad, filters = BadRecords(settings.on_error), make_filters(settings.filters)
    counts, characters = Counter(), Counter()
    codes, keys = bytearray(), bytearray()
    near = settings.deduplicate == "minhash"
    with (
        zoo.storage.atomic_write(settings.work(f"signatures-{number:05d}.bin")) as path,
        open(path, "wb") as signatures,
    ):
        for text in task.documents(bad):
            code = next((index for index, (_, keeps) in enumerate(filters, 1) if not keeps(text)), 0)
            codes.append(code)
            name = filters[code - 1][0] if code else "kept"
            counts[name] += 1
            characters[name] += len(text)
            if not code:
                keys += duplicates.exact_key(text)
                if near:
                    signatures.write(duplicates.signature(duplicates.words_of(text)).tobytes())
    if near:
        _write_bands(settings, number, counts["kept"])
    with zoo.storage.atomic_write(settings.work(f"keys-{number:05d}.npz")) as path, open(path, "wb") as stream:
        np.savez(stream, codes=np.frombuffer(codes, np.uint8), keys=np.frombuffer(keys, np.uint64).reshape(-1, 2))
    result = {
        "documents": dict(counts),
        "characters": dict(characters),
        "bad": dict(bad.counts),
        "origins": bad.origins,
    }
    zoo.storage.write_text_atomically(settings.work(f"read-{number:05d}.json"), json.dumps(result))
    return result


def _write_bands(settings: Settings, number: int, documents: int) -> None:
    signatures = signatures_of(settings, number, documents)
    shape = (duplicates.band_shape(settings.threshold)[0], documents)
    with zoo.storage.atomic_write(settings.work(f"bands-{number:05d}.npy")) as path:
        bands = np.lib.format.open_memmap(path, "w+", np.uint64, shape) if documents else np.zeros(shape, np.uint64)
        for start in range(0, documents, _SIGNATURES_AT_ONCE):
            part = slice(start, start + _SIGNATURES_AT_ONCE)
            bands[:, part] = duplicates.band_keys(signatures[part], settings.threshold)
        if documents:
            bands.flush()
        else:
            with open(path, "wb") as stream:
                np.save(stream, bands)


def signatures_of(settings: Settings, number: int, documents: int) -> np.ndarray:
    """Returns the signatures of a shard, which stay on the disk, `(documents, 128)`.

    Args:
        settings: The settings.
        number: The shard.
        documents: Its documents that the filters keep.
    """
    shape = (documents, duplicates.NUMBERS_OF_A_SIGNATURE)
    if not documents:
        return np.zeros(shape, np.uint32)
    return np.memmap(settings.work(f"signatures-{number:05d}.bin"), np.uint32, "r", shape=shape)


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


def keys_of(settings: Settings, number: int) -> tuple[np.ndarray, np.ndarray]:
    """Returns what the filters said of each document of a shard (0 where it stays), and the keys of those that stay.

    Args:
        settings: The settings.
        number: The shard.
    """
    with np.load(settings.work(f"keys-{number:05d}.npz")) as arrays:
        return arrays["codes"], arrays["keys"]


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


def pack_shard(task: ShardTask) -> dict[str, Any]:
    """Tokenizes and packs the documents of a shard that stay; returns counts and the checksum.

    Args:
        task: The shard.
    """
    settings, number = task.settings, task.number
    tokenizer = _tokenizer(settings.folder / TOKENIZER_FOLDER, settings.tokenizer)
    decisions = np.load(settings.work(f"decisions-{number:05d}.npy"))
    counts: Counter[str] = Counter()

    def documents(wanted: int, characters: str) -> Iterator[str]:
        codes, place = keys_of(settings, number)[0], -1
        # what is bad has been counted, and with "raise" there is none
        for code, text in itertools.zip_longest(codes, task.documents(BadLines("skip"))):
            if code is None or text is None:
                raise DataError(f"input: a file of shard {number} has changed while it was read; begin anew")
            place += not code
            if not code and decisions[place] == wanted:
                counts[characters] += len(text)
                yield text

    def tokens() -> Iterator[np.ndarray]:
        start_id = tokenizer.start_id if settings.start_token else None
        for texts in _in_batches(documents(TRAIN, "characters")):
            ragged = tokenizer.tokenize(texts)
            ids, lengths = ragged.values.numpy(), ragged.row_lengths().numpy()
            joined = join_documents(ids, lengths, start_id, tokenizer.end_id)
            counts["documents"] += int(np.count_nonzero(lengths))
            counts["without_tokens"] += int(np.count_nonzero(lengths == 0))
            counts["tokens"] += len(joined)
            yield joined

    if settings.held_out:
        with zoo.storage.atomic_write(settings.work(f"validation-{number:05d}.jsonl")) as path:
            counts["held_out_documents"] = write_documents(path, documents(HELD_OUT, "held_out_characters"))
    with zoo.storage.atomic_write(settings.shard(number)) as path:
        rows = write_shard(path, packed_rows(tokens(), settings.length), dtype_for(tokenizer.vocabulary_size))
    with open(settings.shard(number), "rb") as stream:
        sha256 = hashlib.file_digest(stream, "sha256").hexdigest()
    file = str(settings.shard(number).relative_to(settings.folder))
    result = {"file": file, "bytes": settings.shard(number).stat().st_size, "sha256": sha256, "rows": rows, **counts}
    zoo.storage.write_text_atomically(settings.work(f"packed-{number:05d}.json"), json.dumps(result))
    return result


@functools.lru_cache(maxsize=1)
def _tokenizer(folder: Path, checksum: str) -> zoo.tokenizers.Tokenizer:
    """The tokenizer of a folder, in which another one may stand later in the life of this process."""
    tokenizer = zoo.tokenizers.Tokenizer.load(folder)
    if fingerprint(tokenizer) != checksum:
        raise DataError(f"{folder} holds another tokenizer than the corpus was begun with")
    return tokenizer


def _in_batches(texts: Iterable[str]) -> Iterator[list[str]]:
    batch: list[str] = []
    size = 0
    for text in texts:
        batch.append(text)
        size += len(text)
        if len(batch) == _DOCUMENTS_AT_ONCE or size >= _CHARACTERS_AT_ONCE:
            yield batch
            batch, size = [], 0
    if batch:
        yield batch


def finished(tasks: Sequence[ShardTask], name: str) -> dict[int, dict[str, Any]]:
    """Returns the results of a stage that earlier runs have left, by number of the shard.

    Args:
        tasks: The work on all shards.
        name: "read" or "packed".
    """
    paths = {task.number: task.settings.work(f"{name}-{task.number:05d}.json") for task in tasks}
    return {number: json.loads(path.read_text(encoding="utf-8")) for number, path in paths.items() if path.is_file()}


def do_missing(
    function: Callable[[ShardTask], dict[str, Any]],
    tasks: Sequence[ShardTask],
    name: str,
    run: Callable[[Callable, Sequence[Any], str], list[Any]],
    label: str,
) -> list[dict[str, Any]]:
    """Does a stage for the shards that lack it; returns the results for all, in their order.

    Args:
        function: The work on one shard.
        tasks: The work on all shards.
        name: See `finished`.
        run: Calls a function for tasks: function, tasks, label.
        label: What the progress bar says.
    """
    found = finished(tasks, name)
    missing = [task for task in tasks if task.number not in found]
    found.update(zip((task.number for task in missing), run(function, missing, label), strict=True))
    return [found[task.number] for task in tasks]


def total(results: Iterable[dict[str, Any]], group: str | None = None) -> dict[str, int]:
    """Adds up the numbers of the results of a stage.

    Args:
        results: The results.
        group: The entry whose numbers are added up; None for those of the results themselves.
    """
    parts = ((result if group is None else result[group]).items() for result in results)
    sums: Counter[str] = Counter()
    for name, value in itertools.chain.from_iterable(parts):
        if isinstance(value, int):
            sums[name] += value
    return dict(sums)
