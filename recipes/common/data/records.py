"""Rows with named columns: Parquet files, and data sets of the Hugging Face library, on a disk or on the hub."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from recipes.common.errors import DataError, errors_of
from zoo.extras import import_extra

HUB = "hf://datasets/"
PARQUET = ".parquet"
USUAL_SPLIT = "train"
# one of which a saved data set has
_FILES_OF_DATA_SETS = ("state.json", "dataset_dict.json")
# `hf://datasets/owner/name#config/split`: both of the latter may be missing
_ADDRESS = re.compile(r"(?P<name>[^#]+)(?:#(?:(?P<config>[^/]+)/)?(?P<split>[^/]+))?")


def is_data_set(name: str) -> bool:
    """Returns whether a name is that of a data set: `hf://datasets/owner/name`, or a folder of `save_to_disk`.

    Args:
        name: The name; behind a `#` may be the part, or the configuration, a slash and the part.

    Example:

    >>> is_data_set("hf://datasets/nyu-mll/glue#sst2/train"), is_data_set("train.tsv")
    (True, False)
    """
    return name.startswith(HUB) or _is_saved(name.partition("#")[0])


def _is_saved(folder: str) -> bool:
    return any((Path(folder) / file).is_file() for file in _FILES_OF_DATA_SETS)


def part_of(name: str, split: str) -> str | None:
    """Returns the name of another part of a data set whose name has no part; None where it has one, or there is none.

    Args:
        name: The name of a data set.
        split: The part: "train", "validation" or "test".

    Raises:
        DataError: If there is no such data set.
    """
    if not is_data_set(name) or "#" in name:
        return None
    parts = open_data_set(name, None)
    # a data set that was saved alone has no parts
    return f"{name}#{split}" if isinstance(parts, Mapping) and split in parts else None


def open_data_set(name: str, split: str | None, key: str = "data") -> Any:
    """Returns a data set of the Hugging Face library, whose rows stay on the disk.

    Args:
        name: See `is_data_set`.
        split: The part of it, where its name has none; None for all parts, by their names.
        key: The key of a config that names it, for errors.

    Raises:
        DataError: If there is none, or no such part.
    """
    found = _ADDRESS.fullmatch(name)
    if found is None:
        raise DataError(f"{key}: a data set is called {HUB}owner/name#config/split, got {name!r}")
    path, config, split = found["name"], found["config"], found["split"] or split
    if not path.startswith(HUB) and not _is_saved(path):
        raise DataError(
            f"{key}: {path} is no data set that save_to_disk has written; name files by a pattern: {path}/*.txt"
        )
    datasets = import_extra("datasets", "datasets")
    with errors_of(f"{key}: {name}"):
        if path.startswith(HUB):
            return datasets.load_dataset(path.removeprefix(HUB), *([config] if config else []), split=split)
        loaded = datasets.load_from_disk(path)
        if isinstance(loaded, datasets.DatasetDict):
            if split is not None and split not in loaded:
                raise DataError(f"{key}: {path} has no part {split!r}; it has {', '.join(loaded)}")
            return loaded if split is None else loaded[split]
        if split not in (None, USUAL_SPLIT, str(loaded.split)):
            raise DataError(f"{key}: {path} has no parts: split must be left out, got {split!r}")
        return loaded


def read_records(file: str) -> Iterator[tuple[dict[str, Any], str]]:
    """Streams the rows of a Parquet file or a data set, with their places, `FILE:row`, from 1.

    Numbers that stand for names of labels, as the library writes them, become these names; -1, which stands for no
    label, becomes None.

    Args:
        file: The file, or the name of the data set.

    Raises:
        DataError: A missing or damaged file, or a name of no data set.
    """
    number = 0
    for record in _rows(file):
        number += 1
        yield record, f"{file}:{number}"


def _rows(file: str) -> Iterator[dict[str, Any]]:
    if is_data_set(file):
        data = open_data_set(file, USUAL_SPLIT)
        names = _names_of(data.features.to_dict())
        yield from (_named(record, names) for record in data)
        return
    if not Path(file).is_file():
        raise DataError(f"file not found: {file}")
    parquet = import_extra("pyarrow.parquet", "corpus")
    with errors_of(f"data: {file}"):
        opened = parquet.ParquetFile(file)
    stored = json.loads((opened.schema_arrow.metadata or {}).get(b"huggingface", b"{}"))
    names = _names_of(stored.get("info", {}).get("features", {}))
    for batch in opened.iter_batches():
        yield from (_named(record, names) for record in batch.to_pylist())


def _names_of(features: Mapping[str, Any]) -> dict[str, list[str]]:
    """The names of labels of the columns that hold numbers in their place, or lists of these."""
    found = {}
    for column, feature in features.items():
        while isinstance(feature, Mapping) and "feature" in feature:
            feature = feature["feature"]
        if isinstance(feature, Mapping) and feature.get("_type") == "ClassLabel":
            found[column] = list(feature["names"])
    return found


def _named(record: dict[str, Any], names: Mapping[str, list[str]]) -> dict[str, Any]:
    def name_of(value: Any, of_column: list[str]) -> Any:
        if isinstance(value, list):
            return [name_of(each, of_column) for each in value]
        return value if not isinstance(value, int) else of_column[value] if value >= 0 else None

    return {key: name_of(value, names[key]) if key in names else value for key, value in record.items()}
