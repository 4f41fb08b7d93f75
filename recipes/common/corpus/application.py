"""What an exported model makes of the records of a shard: batches of similar length, results in order."""

from __future__ import annotations

import dataclasses
import json
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

import zoo
from recipes.common.corpus import exported_model
from recipes.common.corpus.documents import NOT_TEXT, BadRecords, line_place, lines_of, parquet_records
from recipes.common.corpus.output_folder import WORK_FOLDER
from recipes.common.corpus.sources import Part
from recipes.common.data.json_files import objects_of_lines
from recipes.common.data.lines import UNDECODABLE
from recipes.common.data.records import open_data_set
from recipes.common.data.text_files import MISSING_KEY
from recipes.common.errors import BadLines, DataError, shown

REFUSED, OUTPUT = "refused by the model", "output"
# records, and characters of these, that are in memory at the same time
_RECORDS_AT_ONCE, _CHARACTERS_AT_ONCE = 4096, 16 << 20


@dataclasses.dataclass(frozen=True)
class Application:
    """What is done with each record; the content of the results depends on nothing else but the files.

    Args:
        model: Folder of the SavedModel.
        checksum: What tells it from another one in the same folder.
        endpoint: Name of one of its endpoints.
        keys: For each input of texts the key, or column, that holds them.
        options: The values of its other inputs.
        split: Which part of a data set is read.
        keep: Keys that each record must have and that stand in the result as well; None for all that it has.
        on_error: "raise" or "skip".
        batch_size: Records of a call.
    """

    model: str
    checksum: str
    endpoint: str
    keys: Mapping[str, str]
    options: Mapping[str, Any]
    split: str
    keep: Sequence[str] | None
    on_error: str
    batch_size: int


@dataclasses.dataclass(frozen=True)
class ApplyTask:
    """The work on one shard."""

    application: Application
    folder: Path
    number: int
    parts: Sequence[Part]

    @property
    def path(self) -> Path:
        """The file of the results."""
        return self.folder / f"{self.number:05d}.jsonl"

    @property
    def account(self) -> Path:
        """The file of the counts, written when the results are whole."""
        return self.folder / WORK_FOLDER / f"{self.number:05d}.json"


def apply_shard(task: ApplyTask) -> dict[str, Any]:
    """Writes the results of a shard, one JSON object a line; returns counts.

    Args:
        task: The shard.

    Raises:
        DataError: With `on_error` "raise", at the first record that cannot be read or that the model refuses.
    """
    work = task.application
    bad = BadRecords(work.on_error)
    count = 0
    with zoo.storage.atomic_write(task.path) as path, open(path, "w", encoding="utf-8", newline="\n") as stream:
        for records in _in_groups(_texts(read_records(task.parts, work.split, bad), work, bad), work):
            for result in _results(records, work, bad):
                stream.write(_json(result) + "\n")
                count += 1
    result = {"records": count, "bad": dict(bad.counts), "origins": bad.origins}
    zoo.storage.write_text_atomically(task.account, json.dumps(result))
    return result


def read_records(parts: Sequence[Part], split: str, bad: BadLines) -> Iterator[tuple[dict[str, Any], str]]:
    """Streams the records of parts of the input with their places; a line of plain text is a record with a `text`.

    Args:
        parts: The parts.
        split: Which part of a data set is read.
        bad: Where lines that cannot be read are noted.
    """
    for part in parts:
        if part.kind == "parquet":
            yield from parquet_records(part)
        elif part.kind == "data_set":
            rows = open_data_set(part.path, split, "input")
            for number in range(part.start, part.end):
                yield rows[number], f"{part.path}, row {number + 1}"
        else:
            for line in lines_of(part):
                if line.text is None:
                    bad.add(UNDECODABLE, line.origin, line.problem or "")
                elif part.kind == "text":
                    yield {"text": line.text}, line.origin
                elif line.text.strip():
                    yield from objects_of_lines([line], bad)


def _json(result: dict[str, Any]) -> str:
    """A line of JSON: dates and other values of Parquet files and data sets as they are printed, no number as null."""
    try:
        return json.dumps(result, ensure_ascii=False, default=str, allow_nan=False)
    except ValueError:
        text = json.dumps(result, ensure_ascii=False, default=str)
        return json.dumps(json.loads(text, parse_constant=lambda name: None), ensure_ascii=False)


def _texts(
    records: Iterator[tuple[dict[str, Any], str]], work: Application, bad: BadLines
) -> Iterator[tuple[dict[str, Any], str]]:
    """The records that have the keys that are read and kept, of which the former hold texts."""
    needed = [*work.keys.values(), *(work.keep or ())]
    for record, origin in records:
        missing = next((key for key in needed if key not in record), None)
        other = next((key for key in work.keys.values() if not isinstance(record.get(key), str)), None)
        if missing is not None:
            bad.add(MISSING_KEY, origin, f"{missing}; it has {shown(list(record))}")
        elif other is not None:
            bad.add(NOT_TEXT, origin, f"{other} is {shown(record[other])}")
        else:
            yield record, origin


def _in_groups(
    records: Iterator[tuple[dict[str, Any], str]], work: Application
) -> Iterator[list[tuple[dict[str, Any], str]]]:
    group, size = [], 0
    for record in records:
        group.append(record)
        size += _length(record[0], work)
        if len(group) == _RECORDS_AT_ONCE or size >= _CHARACTERS_AT_ONCE:
            yield group
            group, size = [], 0
    if group:
        yield group


def _length(record: Mapping[str, Any], work: Application) -> int:
    return sum(len(record[key]) for key in work.keys.values())


def _results(
    records: Sequence[tuple[dict[str, Any], str]], work: Application, bad: BadLines
) -> Iterator[dict[str, Any]]:
    """The results of some records, in their order; the calls have records of similar length."""
    lengths = [_length(record, work) for record, _ in records]
    order = np.argsort(lengths, kind="stable")
    outputs: list[Any] = [None] * len(records)
    for start in range(0, len(order), work.batch_size):
        numbers = order[start : start + work.batch_size]
        for number, output in zip(numbers, _call([records[number] for number in numbers], work, bad), strict=True):
            outputs[number] = output
    for (record, origin), output in zip(records, outputs, strict=True):
        if output is None:
            continue
        kept = record if work.keep is None else {key: record[key] for key in work.keep}
        if OUTPUT in kept:
            raise DataError(
                f"{line_place(origin)}: the record has a key {OUTPUT!r} of its own; keep names those that stay"
            )
        yield {**kept, OUTPUT: output}


def _call(records: Sequence[tuple[dict[str, Any], str]], work: Application, bad: BadLines) -> list[Any]:
    """What the model makes of each record; None where it refuses one."""
    texts = {name: [record[key] for record, _ in records] for name, key in work.keys.items()}
    try:
        return exported_model.call(work.model, work.checksum, work.endpoint, texts, work.options)
    except exported_model.Refused as error:
        if len(records) > 1:  # one of them
            return [_call([record], work, bad)[0] for record in records]
        ((_, origin),) = records
        bad.add(REFUSED, origin, str(error))
        return [None]
