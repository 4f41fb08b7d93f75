"""What an exported model makes of the records of a shard: batches of similar length, results in order."""

from __future__ import annotations

import dataclasses
import functools
import json
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

import zoo
from recipes.common.corpus.documents import NOT_TEXT, lines_of
from recipes.common.corpus.output_folder import WORK_FOLDER
from recipes.common.corpus.sources import Part, import_extra, open_data_set
from recipes.common.data.json_files import objects_of_lines
from recipes.common.data.text_files import MISSING_KEY, UNDECODABLE
from recipes.common.errors import BadLines, ConfigError, DataError, shown

DESCRIPTION_FILE = "signature.json"
REFUSED, OUTPUT = "refused by the model", "output"
# records whose outputs are in memory at the same time
_RECORDS_AT_ONCE = 4096
_NUMBERS = {"int32": int, "int64": int, "float32": float, "bool": bool}


@dataclasses.dataclass(frozen=True)
class Application:
    """What is done with each record; the content of the results depends on nothing else but the files.

    Args:
        model: Folder of the SavedModel.
        endpoint: Name of one of its endpoints.
        keys: For each input of texts the key, or column, that holds them.
        options: The values of its other inputs.
        split: Which part of a data set is read.
        keep: Keys of the record that stand in the result as well; None for all.
        on_error: "raise" or "skip".
        batch_size: Records of a call.
    """

    model: str
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


def describe_endpoint(model: str, endpoint: str | None) -> tuple[str, dict[str, Any]]:
    """Returns name and description of an endpoint of a SavedModel.

    Args:
        model: Its folder, that of a model with versions, or the folder of a run that was exported.
        endpoint: The name; None for the default one.

    Raises:
        DataError: If the folder holds no SavedModel of this library.
        ConfigError: If there is no such endpoint.
    """
    path = export_folder(model) / DESCRIPTION_FILE
    try:
        described = json.loads(path.read_text(encoding="utf-8"))
        endpoints, name = described["endpoints"], endpoint or described["default"]
    except (OSError, ValueError, LookupError, TypeError) as error:
        raise DataError(f"{path} does not describe a SavedModel: {error}; recipes.export writes one") from error
    if name not in endpoints:
        raise ConfigError(f"endpoint must be one of {', '.join(endpoints)}, got {shown(name)}")
    return name, endpoints[name]


def export_folder(model: str) -> Path:
    """Returns the folder of a SavedModel.

    Args:
        model: It, the folder of a model, of which the newest version is taken, or the folder of a run.
    """
    folder = Path(model)
    for models in (folder, folder / "export" / folder.absolute().name):
        if zoo.export.versions(models):
            return zoo.export.newest_version(models)
    return folder


def bind(endpoint: Mapping[str, Any], keys: Mapping[str, str], options: Mapping[str, Any]) -> dict[str, str]:
    """Returns for each input of texts the key that holds them.

    Args:
        endpoint: Its description.
        keys: Those that were named.
        options: Values of the inputs that all records share; those that have a default may be left out.

    Raises:
        ConfigError: If an input takes neither texts nor a number, or has no value, or something is no input.
    """
    bound: dict[str, str] = {}
    numbers = set()
    for field in endpoint["inputs"]:
        name = field["name"]
        if field["dtype"] == "string" and field["shape"] == ["batch"]:
            bound[name] = keys.get(name, "text" if name == "texts" else name)
        elif "default" in field and name not in options:
            numbers.add(name)
        elif field["dtype"] == "string" and len(field["shape"]) == 1:
            numbers.add(name)
            if not isinstance(options[name], list) or not all(isinstance(text, str) for text in options[name]):
                raise ConfigError(f"options: {name} must be a list of texts, got {shown(options[name])}")
        elif not field["shape"] and field["dtype"] in _NUMBERS:
            numbers.add(name)
            value, kind = options.get(name), _NUMBERS[field["dtype"]]
            if not isinstance(value, (int, float) if kind is float else kind) or (
                isinstance(value, bool) and kind is not bool
            ):
                raise ConfigError(f"options must give {name} ({field['dtype']}), got {shown(value)}")
        else:
            raise ConfigError(f"endpoint must take texts; its input {name} is {field['dtype']} {field['shape']}")
    for group, given, known in (("keys", keys, bound), ("options", options, numbers)):
        unknown = [name for name in given if name not in known]
        if unknown:
            raise ConfigError(f"{group} must be among {', '.join(known) or 'none'}, got {unknown[0]}")
    if not bound:
        raise ConfigError("endpoint must take texts")
    return bound


def apply_shard(task: ApplyTask) -> dict[str, Any]:
    """Writes the results of a shard, one JSON object a line; returns counts.

    Args:
        task: The shard.

    Raises:
        DataError: With `on_error` "raise", at the first record that cannot be read or that the model refuses.
    """
    work = task.application
    bad = BadLines(work.on_error)
    count = 0
    with zoo.storage.atomic_write(task.path) as path, open(path, "w", encoding="utf-8", newline="\n") as stream:
        for records in _in_groups(_texts(read_records(task.parts, work.split, bad), work, bad)):
            for result in _results(records, work, bad):
                # dates and other values of Parquet files and data sets as they are printed
                stream.write(json.dumps(result, ensure_ascii=False, default=str) + "\n")
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
            parquet = import_extra("pyarrow.parquet", "corpus")
            with parquet.ParquetFile(part.path) as file:
                row = 0
                for batch in file.iter_batches(1024, row_groups=[part.start], use_threads=False):
                    for record in batch.to_pylist():
                        row += 1
                        yield record, f"{part.path}, row {row} of row group {part.start + 1}"
        elif part.kind == "data_set":
            rows = open_data_set(part.path, split)
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


def _texts(
    records: Iterator[tuple[dict[str, Any], str]], work: Application, bad: BadLines
) -> Iterator[tuple[dict[str, Any], str]]:
    """The records whose keys hold texts."""
    for record, origin in records:
        missing = next((key for key in work.keys.values() if key not in record), None)
        other = next((key for key in work.keys.values() if not isinstance(record.get(key), str)), None)
        if missing is not None:
            bad.add(MISSING_KEY, origin, f"{missing}; it has {shown(list(record))}")
        elif other is not None:
            bad.add(NOT_TEXT, origin, f"{other} is {shown(record[other])}")
        else:
            yield record, origin


def _in_groups(records: Iterator[tuple[dict[str, Any], str]]) -> Iterator[list[tuple[dict[str, Any], str]]]:
    group = []
    for record in records:
        group.append(record)
        if len(group) == _RECORDS_AT_ONCE:
            yield group
            group = []
    if group:
        yield group


def _results(
    records: Sequence[tuple[dict[str, Any], str]], work: Application, bad: BadLines
) -> Iterator[dict[str, Any]]:
    """The results of some records, in their order; the calls have records of similar length."""
    lengths = [sum(len(record[key]) for key in work.keys.values()) for record, _ in records]
    order = np.argsort(lengths, kind="stable")
    outputs: list[Any] = [None] * len(records)
    for start in range(0, len(order), work.batch_size):
        numbers = order[start : start + work.batch_size]
        for number, output in zip(numbers, _call([records[number] for number in numbers], work, bad), strict=True):
            outputs[number] = output
    for (record, origin), output in zip(records, outputs, strict=True):
        if output is None:
            continue
        kept = record if work.keep is None else {key: record[key] for key in work.keep if key in record}
        if OUTPUT in kept:
            raise DataError(f"{origin}: the record has a key {OUTPUT!r} of its own; keep names those that stay")
        yield {**kept, OUTPUT: output}


def _call(records: Sequence[tuple[dict[str, Any], str]], work: Application, bad: BadLines) -> list[Any]:
    """What the model makes of each record; None where it refuses one."""
    import tensorflow as tf

    texts = {name: tf.constant([record[key] for record, _ in records]) for name, key in work.keys.items()}
    function, numbers = _endpoint(work)
    try:
        outputs = function(**texts, **numbers)
    except tf.errors.InvalidArgumentError as error:
        if len(records) > 1:  # one of them
            return [_call([record], work, bad)[0] for record in records]
        ((_, origin),) = records
        bad.add(REFUSED, origin, " ".join(str(error.message).split())[:300])
        return [None]
    columns = {name: _values(tensor.numpy()) for name, tensor in outputs.items()}
    if len(columns) == 1:
        return next(iter(columns.values()))
    return [dict(zip(columns, row, strict=True)) for row in zip(*columns.values(), strict=True)]


def _endpoint(work: Application) -> tuple[Any, dict[str, Any]]:
    return _load(work.model, work.endpoint, json.dumps(dict(work.options)))


@functools.lru_cache(maxsize=1)
def _load(model: str, endpoint: str, options: str) -> tuple[Any, dict[str, Any]]:
    import tensorflow as tf
    import tensorflow_text  # noqa: F401 (its operations)

    loaded = tf.saved_model.load(model)
    function = loaded.signatures[endpoint]
    function.loaded = loaded  # which keeps the variables alive
    types = {name: spec.dtype for name, spec in function.structured_input_signature[1].items()}
    return function, {name: tf.constant(value, types[name]) for name, value in json.loads(options).items()}


def _values(array: np.ndarray) -> list[Any]:
    """Values for JSON; nine digits hold all of a float32."""
    if array.dtype == object:
        return _nested(array.tolist(), lambda value: value.decode("utf-8", errors="replace"))
    if array.dtype.kind == "f":
        return _nested(array.tolist(), lambda value: float(f"{value:.9g}") if np.isfinite(value) else None)
    return array.tolist()


def _nested(values: list[Any], convert: Any) -> list[Any]:
    return [_nested(value, convert) if isinstance(value, list) else convert(value) for value in values]
