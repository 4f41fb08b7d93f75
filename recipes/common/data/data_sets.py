"""Data sets: files of one's own, or names of data sets, which are found in a folder or downloaded once and checked."""

from __future__ import annotations

import dataclasses
import functools
import gzip
import hashlib
import os
import re
import zlib
from collections.abc import Callable, Collection, Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import pooch
import requests

from recipes.common.data.account import DataAccount
from recipes.common.data.choosing import groups_by_column, hold_out, limited
from recipes.common.data.overlap import deduplicated, overlaps
from recipes.common.data.records import part_of
from recipes.common.errors import BadLines, ConfigError, DataError, OnError, nearest, shown

DATA_FOLDER_VARIABLE = "ZOO_DATA"
CACHE_FOLDER_VARIABLE = "ZOO_CACHE"
SOURCE_URL = "https://raw.githubusercontent.com/{repository}/{commit}/{path}"
NO_GROUP = "no group"
_TIMEOUT_SECONDS = 30


class Splits(NamedTuple):
    """The parts of a data set, lists of rows; `test` is None where there is none."""

    train: list[Any]
    validation: list[Any]
    test: list[Any] | None = None


class TextPair(NamedTuple):
    """A source text, its target text and where they stand, `FILE:line`."""

    source: str
    target: str
    origin: str


# loads each data set of one kind, by its name
Loaders = Mapping[str, Callable[[], Splits]]
# reads files of one kind into rows, noting bad lines
Reader = Callable[[Sequence[str], BadLines], list[Any]]


def is_name(files: Sequence[str]) -> bool:
    """Returns whether the value of a key such as `data.train` names a data set: one word, without a dot or a slash.

    A file of such a name is written with its folder: `./sst2`.

    Args:
        files: The value.
    """
    return len(files) == 1 and re.fullmatch(r"\w+", str(files[0])) is not None


def are_named(data: Any) -> bool:
    """Returns whether all data are named data sets, and none are files.

    Args:
        data: The group `data` of a config.
    """
    parts = (getattr(data, part, []) for part in Splits._fields)
    return all(is_name(files) for files in parts if files)


def refuse_file_keys(data: Any, names: Collection[str], further: Collection[str] = ()) -> None:
    """Raises an error for keys that say how files are read, and differ from their defaults.

    Args:
        data: The group `data` of a config.
        names: The keys that are looked at.
        further: Keys that do so here, besides those that always do.

    Raises:
        ConfigError: If there is one.
    """
    for field in dataclasses.fields(data):
        value, default = getattr(data, field.name), getattr(type(data)(), field.name)
        is_of_files = field.metadata.get("describes_files") or field.name in further
        if field.name in names and is_of_files and value != default:
            usual = "null" if default is None else repr(default)
            raise ConfigError(
                f"data.{field.name} must be {usual} with a named data set, because it describes files, got "
                f"{shown(value)}"
            )


def load_named(name: str, loaders: Loaders) -> Splits:
    """Returns the data set of a name.

    Args:
        name: The name.
        loaders: What loads each.

    Raises:
        DataError: If there is none of that name, naming the nearest.
    """
    if name in loaders:
        return _load(loaders[name])
    near = nearest(name, loaders)
    hint = f"did you mean {near!r}?" if near else f"known: {', '.join(loaders)}"
    if os.path.exists(name):
        hint = f"write './{name}' for the file"
    raise DataError(f"{shown(name)} is not the name of a data set; {hint}")


# the parts of a data set are mostly asked for one after the other
@functools.lru_cache(maxsize=1)
def _load(loader: Callable[[], Splits]) -> Splits:
    return loader()


class Source(NamedTuple):
    """How rows of one kind are read.

    Args:
        loaders: What loads each named data set.
        read: What reads files.
        check: What else a row must be, of a file or a named data set: whether it is, noting it where it is not.
    """

    loaders: Loaders
    read: Reader
    check: Callable[[Any, BadLines], bool] | None = None


def open_part(files: Sequence[str], split: str, source: Source, on_error: OnError) -> tuple[list[Any] | None, BadLines]:
    """Returns the rows that files, or the name of a data set, stand for; says how many lines were left out, and why.

    Args:
        files: Paths, or one name.
        split: The part: "train", "validation" or "test".
        source: How rows are read.
        on_error: What to do at a bad line: "raise" or "skip".

    Returns:
        The rows, None where a named data set lacks that part; and the account of the lines left out.

    Raises:
        DataError: A missing or damaged file, a bad line, no row that is left.

    Example:

    >>> rows, bad = open_part(["a.conll"], "train", Source(TAGGED, read_conll), "skip")
    """
    bad = BadLines(on_error)
    if is_name(files):
        rows = getattr(load_named(str(files[0]), source.loaders), split)
    else:
        rows = source.read(files, bad)
    if source.check is not None and rows is not None:
        rows = [row for row in rows if source.check(row, bad)]
    if bad.total:
        print(f"{split}: {bad.report()}")
    if rows is not None and not rows:
        raise DataError(f"nothing is left of {' '.join(map(str, files))}: {bad.report()}")
    return rows, bad


def files_of(data: Any, split: str) -> list[str]:
    """Returns the files, or the name of the data set, that a part of the data is in; none if nothing says it.

    An empty key stands for the part of the data set that `train` names, of the recipes or of the Hugging Face library.

    Args:
        data: The group `data` of a config.
        split: The part.
    """
    if getattr(data, split, None):
        return getattr(data, split)
    if split == "validation" and getattr(data, "validation_share", None) is not None:
        return data.train
    if is_name(data.train):
        return data.train
    part = part_of(data.train[0], split) if len(data.train) == 1 else None
    return [part] if part is not None else []


class Parts:
    """The parts of the data as a run has them: with a validation set that is divided off, and no more rows than asked.

    Args:
        data: The group `data` of a config.
        source: How rows are read.

    Example:

    >>> rows, bad = Parts(config.data, Source(TAGGED, read_conll)).open("validation")
    """

    def __init__(self, data: Any, source: Source) -> None:
        self._data, self._source = data, source
        # an evaluation may name files beside the share of the run
        self._share = None if data.validation else getattr(data, "validation_share", None)
        self._divided: tuple[dict[str, list[Any]], BadLines] | None = None

    def open(self, split: str, of: str | None = None) -> tuple[list[Any] | None, BadLines | None]:
        """Returns the rows of a part, and the account of the lines left out; None if there is no such part.

        Args:
            split: The part.
            of: The part whose files are read; that part if it is None.

        Raises:
            DataError: See `open_part`; and if nothing can be divided off.
        """
        files = files_of(self._data, of or split)
        if not files:
            return None, None
        if self._share is not None and split in ("train", "validation") and of in (None, split):
            rows, bad = self._divide(files)
            rows = rows and rows[split]
        else:
            rows, bad = open_part(files, split, self._source, self._data.on_error)
        return rows and limited(rows, getattr(self._data, "limit", None)), bad

    def _divide(self, files: Sequence[str]) -> tuple[dict[str, list[Any]], BadLines]:
        if self._divided is None:
            rows, bad = open_part(files, "train", self._source, self._data.on_error)
            column = getattr(self._data, "group_column", None)
            group_of = None if column is None else self._groups(rows, bad, files, column)
            if group_of is not None:
                rows = [row for row in rows if row.origin in group_of]
            parts = hold_out(rows, self._share, group_of and (lambda row: group_of[row.origin]))
            print(f"validation: {len(parts[1])} of the {len(rows)} training rows (data.validation_share)")
            self._divided = dict(zip(("train", "validation"), parts, strict=True)), bad
        return self._divided

    def _groups(self, rows: Sequence[Any], bad: BadLines, files: Sequence[str], column: str) -> Mapping[str, str]:
        """The groups of rows by their origins; notes the rows that have none."""
        if isinstance(rows[0], str):
            raise ConfigError(
                f"data.group_column must be null with running text, which has no columns, got {shown(column)}"
            )
        groups, before = groups_by_column(files, column, getattr(self._data, "header", None)), bad.total
        for row in rows:
            if row.origin not in groups:
                bad.add(NO_GROUP, row.origin, f"{column!r} is missing or null")
        if bad.total > before:
            print(f"train: {bad.report()}")
        return groups


def open_parts(data: Any, source: Source, *, account: DataAccount | None = None) -> list[list[Any]]:
    """Returns the training, validation and test sets, and says what was left out and which rows are in two of them.

    Args:
        data: A group of a config with the keys `train`, `validation`, perhaps `test`, and `on_error`, see
            `recipes.common.data.data_config`. With a key `deduplicate` that is true, rows that are in two of them stay
            in the latter one.
        source: How rows are read.
        account: What the run has read, which must be the same whenever it goes on; None where there is no run.

    Returns:
        A part for each of these keys. Without a test set, the validation set takes its place, and a message says so.
        It is that of the data set that `test` names, if it names one. If both are the same, `test == validation`.

    Raises:
        DataError: If there is no training or validation set, and see `open_part`.

    Example:

    >>> train, validation, test = open_parts(config.data, Source(TAGGED, read_conll), account=run.data)
    """
    opened, parts = Parts(data, source), list[list[Any]]()
    for split in ("train", "validation", "test")[: 2 + hasattr(data, "test")]:
        part, _ = opened.open(split)
        if part is None and split != "test":
            raise DataError(
                f"data.{split} must be given, unless data.train names a data set that has one"
                + (", or data.validation_share" if split == "validation" and hasattr(data, "validation_share") else "")
            )
        if part is None:
            files = files_of(data, split)
            where = f"{' '.join(files)}: there is no test set" if files else "data.test is empty"
            print(f"{where}; the validation set takes its place")
            part = parts[1]
            if data.test:
                part, _ = opened.open("validation", of="test")
        parts.append(part)
    named = dict(zip(Splits._fields, parts, strict=False))
    test_is_validation = "test" in named and named["test"] == named["validation"]
    if test_is_validation:
        del named["test"]
    if getattr(data, "deduplicate", False):
        named = deduplicated(named)
        empty = next((part for part, rows in named.items() if not rows), None)
        if empty is not None:
            raise DataError(
                f"data.deduplicate leaves nothing of data.{empty}: all of its rows are in another part, too"
            )
    counts = overlaps(named)
    if account is not None:
        account.counts.update(counts)
        for part, rows in named.items():
            account.note_rows(part, rows)
    return [*named.values(), *([named["validation"]] if test_is_validation else [])]


class RemoteFile(NamedTuple):
    """A file of a public repository at a fixed commit.

    `name` is its path below the data folder and the cache, `sha256` the checksum of its content.
    """

    name: str
    sha256: str
    repository: str
    commit: str
    path: str

    @property
    def url(self) -> str:
        """Where the file is downloaded from."""
        return SOURCE_URL.format(repository=self.repository, commit=self.commit, path=self.path)


def fetch(file: RemoteFile) -> Path:
    """Returns the path of a file of a data set, downloaded if it is missing.

    It is looked for below the folder that the environment variable ZOO_DATA names, as it is or compressed (its name
    with `.gz` at the end), then in the cache (ZOO_CACHE, by default the user's cache folder), then downloaded into the
    cache. The SHA-256 of its content is checked wherever it comes from.

    Args:
        file: The file.

    Returns:
        Its path.

    Raises:
        DataError: The file in ZOO_DATA or at the source is another one than it should be, or it cannot be downloaded;
            the message says where to put it.

    Example:

    >>> fetch(TATOEBA_EN_FR).name
    'fra-eng.zip'
    """
    data_folder = os.environ.get(DATA_FOLDER_VARIABLE)
    if data_folder:
        for path in (Path(data_folder, file.name), Path(data_folder, file.name + ".gz")):
            if not path.exists():
                continue
            sha256 = _sha256(path, compressed=path.name != Path(file.name).name)
            if sha256 != file.sha256:
                raise DataError(
                    f"{path} has the SHA-256 {sha256}, expected {file.sha256}: it is damaged or another version; "
                    f"replace it by {file.url} or remove it to have it downloaded"
                )
            return path
    return _download(file)


def _sha256(path: Path, compressed: bool) -> str:
    try:
        with gzip.open(path) if compressed else open(path, "rb") as stream:
            return hashlib.file_digest(stream, "sha256").hexdigest()
    except (EOFError, gzip.BadGzipFile, zlib.error) as error:
        raise DataError(f"{path}: the compressed file is damaged: {error}") from error


def _download(file: RemoteFile) -> Path:
    cache = Path(os.environ.get(CACHE_FOLDER_VARIABLE) or pooch.os_cache("keras_transformer_zoo"))
    path = cache / file.name
    if not path.exists():
        print(f"downloading {file.url}")
    by_hand = (
        f"put that file at {file.name} below a folder of your choice and name the folder in the environment variable "
        f"{DATA_FOLDER_VARIABLE}"
    )
    pooch.get_logger().setLevel("WARNING")
    try:
        pooch.retrieve(
            file.url,
            known_hash=f"sha256:{file.sha256}",
            fname=path.name,
            path=path.parent,
            downloader=pooch.HTTPDownloader(timeout=_TIMEOUT_SECONDS),
        )
    except requests.exceptions.RequestException as error:
        raise DataError(f"cannot download {file.url}: {error}\n{by_hand}") from error
    except OSError as error:
        raise DataError(f"cannot store {file.url} in {cache}: {error}\n{by_hand}") from error
    except ValueError as error:
        # pooch's word for a wrong checksum; it keeps nothing of the file.
        raise DataError(f"{file.url} is not the file that it was, or arrived damaged: {error}\n{by_hand}") from error
    return path
