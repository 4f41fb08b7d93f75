"""The group `data` of recipes that train: where the parts of the data come from, and which rows of them are used."""

from __future__ import annotations

import dataclasses
from typing import Any, Literal

from recipes.common.config import setting
from recipes.common.data.data_sets import are_named, refuse_file_keys
from recipes.common.errors import ConfigError, shown

_AS_TRAIN = "Files or a data set, as for train. Empty: "


@dataclasses.dataclass(frozen=True)
class DataConfig:
    """Where the rows come from; recipes derive from it, with defaults and keys of their own."""

    train: list[str] = setting([], "Files, or the name of a data set.", offers="paths")
    validation: list[str] = setting(
        [], f"{_AS_TRAIN}the validation set of the data set that train names.", offers="paths"
    )
    validation_share: float | None = setting(
        None,
        "Share of the training rows that are the validation set, in place of data.validation. Rows with the same input "
        "stay together; each label keeps its share.",
        above=0,
        below=1,
    )
    group_column: str | None = setting(
        None,
        "Column, or key, whose equal values stay together when validation_share divides the rows: speakers, sources.",
        describes_files=True,
    )
    limit: int | None = setting(
        None, "Largest number of rows of each part, drawn by chance, the same for all seeds. null: all rows.", least=1
    )
    on_error: Literal["raise", "skip"] = setting("raise", "What to do at a malformed row: stop, or skip and count it.")
    deduplicate: bool = setting(
        False,
        "Whether to leave out rows of the training data that validation or test have, too, rows of the validation that "
        "test has, and rows that a part repeats. They are counted in any case.",
    )


@dataclasses.dataclass(frozen=True)
class TextDataConfig(DataConfig):
    """Where running text comes from."""

    text_key: str = setting(
        "text",
        "Key of the text in JSON lines, Parquet files and data sets. Each text is as a file.",
        describes_files=True,
    )


@dataclasses.dataclass(frozen=True)
class TestedDataConfig(DataConfig):
    """Where the rows come from, those of a test among them."""

    __test__ = False  # of pytest

    test: list[str] = setting(
        [], f"{_AS_TRAIN}the test set of the data set, or the validation set if there is none.", offers="paths"
    )


def check_data(data: Any) -> None:
    """Checks keys that depend on each other, before data are read.

    Args:
        data: The group `data` of a config.

    Raises:
        ConfigError: If a key says how files are read though all data are of named data sets, or how rows are divided
            though they are not.
    """
    if are_named(data):
        refuse_file_keys(data, [field.name for field in dataclasses.fields(data)])
    share, group = getattr(data, "validation_share", None), getattr(data, "group_column", None)
    if share is not None and data.validation:
        raise ConfigError(f"data.validation_share must be null with data.validation, got {share}")
    if share is None and group is not None:
        raise ConfigError(f"data.group_column must be null without data.validation_share, got {shown(group)}")
