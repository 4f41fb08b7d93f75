"""What the stages work on: the settings of a corpus, its shards, and what earlier runs have done of a stage."""

from __future__ import annotations

import dataclasses
import itertools
import json
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence
from pathlib import Path
from typing import Any

from recipes.common.corpus.documents import read_documents
from recipes.common.corpus.output_folder import WORK_FOLDER
from recipes.common.corpus.sources import Part
from recipes.common.errors import BadLines

SHARD_FOLDER = "shards"


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
