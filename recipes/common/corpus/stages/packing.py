"""The third stage: the documents of a shard that are left, as rows of tokens."""

from __future__ import annotations

import functools
import hashlib
import itertools
import json
from collections import Counter
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any

import numpy as np

import zoo
from recipes.common.corpus.documents import write_documents
from recipes.common.corpus.shards import (
    TOKENIZER_FOLDER,
    dtype_for,
    fingerprint,
    join_documents,
    packed_rows,
    write_shard,
)
from recipes.common.corpus.stages.comparing import HELD_OUT, TRAIN
from recipes.common.corpus.stages.reading import keys_of
from recipes.common.corpus.stages.tasks import ShardTask
from recipes.common.errors import BadLines, DataError

# of each batch that is tokenized at once
_DOCUMENTS_AT_ONCE, _CHARACTERS_AT_ONCE = 512, 1 << 20


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
