"""The first stage: documents that the filters keep, with the keys and signatures by which duplicates are found."""

from __future__ import annotations

import json
from collections import Counter
from typing import Any

import numpy as np

import zoo
from recipes.common.corpus import duplicates
from recipes.common.corpus.documents import BadRecords
from recipes.common.corpus.filters import make_filters
from recipes.common.corpus.stages.tasks import Settings, ShardTask

_SIGNATURES_AT_ONCE = 4096


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


def keys_of(settings: Settings, number: int) -> tuple[np.ndarray, np.ndarray]:
    """Returns what the filters said of each document of a shard (0 where it stays), and the keys of those that stay.

    Args:
        settings: The settings.
        number: The shard.
    """
    with np.load(settings.work(f"keys-{number:05d}.npz")) as arrays:
        return arrays["codes"], arrays["keys"]
