"""The input of a corpus: files and data sets, cut into parts that are read one at a time."""

from __future__ import annotations

import dataclasses
import glob
import itertools
import os
from collections.abc import Sequence
from pathlib import Path
from typing import Any, BinaryIO

from recipes.common.data.records import HUB, PARQUET, open_data_set
from recipes.common.data.text_files import suffix_of
from recipes.common.errors import ConfigError, DataError, errors_of, shown
from zoo.extras import import_extra

JSON_LINES = (".jsonl", ".ndjson")
_GZIP_MAGIC = b"\x1f\x8b"
# where large files are cut; small enough that no part fills the memory
PART_BYTES, _PART_ROWS = 16 << 20, 20_000
# of a line that is looked for its end
_BLOCK = 1 << 20


@dataclasses.dataclass(frozen=True)
class Part:
    """A part of the input.

    Args:
        path: The file, or the folder of a data set, from the root on, or the name of a data set.
        kind: "text", "json_lines", "parquet" or "data_set".
        start, end: Bytes of a plain file, row groups of a Parquet file, or rows of a data set; 0 and None for a
            compressed file, which is read as a whole.
        size: Bytes, or rows, by which shards are made equally large.
    """

    path: str
    kind: str
    start: int
    end: int | None
    size: int


def find_parts(names: Sequence[str], unit: str, split: str, part_bytes: int = PART_BYTES) -> list[Part]:
    """Returns the parts of the input, in the order of the names and, of a pattern, in that of the alphabet.

    Args:
        names: Files, patterns such as `dir/*.txt.gz`, folders of saved data sets, or `hf://datasets/owner/name`.
        unit: What a document of a text file is: "file", "paragraph" or "line". Documents are not cut.
        split: Which part of a data set is read.
        part_bytes: About how long a part of a plain file is.

    Raises:
        DataError: If there is nothing of a name, a file is named twice, or it cannot be read in parts.
    """
    parts = []
    for source in _sources(names):
        if _is_data_set(source):
            rows = len(open_data_set(source, split, "input"))
            starts = range(0, rows, _PART_ROWS)
            ends = [min(start + _PART_ROWS, rows) for start in starts]
            parts += [Part(source, "data_set", *pair, pair[1] - pair[0]) for pair in zip(starts, ends, strict=True)]
        else:
            parts += _parts_of_file(Path(source), unit, part_bytes)
    return parts


def _is_data_set(source: str) -> bool:
    return source.startswith(HUB) or os.path.isdir(source)


def _sources(names: Sequence[str], may_lack: bool = False) -> list[str]:
    """The files and data sets that names and patterns stand for; files from the root on, for processes elsewhere."""
    sources: dict[str, None] = {}
    for name in names:
        if name.startswith(HUB):
            found = [name]
        else:
            exists = os.path.exists(name)
            found = [os.path.abspath(path) for path in ([name] if exists else sorted(glob.glob(name, recursive=True)))]
        if not found and not may_lack:
            raise DataError(f"input: there is no file {shown(name, 300)}")
        twice = next((path for path in found if path in sources), None)
        if twice is not None:
            raise DataError(f"input: {twice} is named twice")
        sources.update(dict.fromkeys(found))
    return list(sources)


def state_of(names: Sequence[str], split: str, may_lack: bool = False) -> dict[str, list[int]]:
    """Returns size and modification time of the files, by which a resumed run notices changed files.

    Args:
        names, split: See `find_parts`.
        may_lack: Whether there may be nothing of a name; then data sets of a hub are not looked for.

    Raises:
        DataError: If there is nothing of a name otherwise.
    """
    files = []
    for source in _sources(names, may_lack):
        if may_lack and source.startswith(HUB):
            continue
        if _is_data_set(source):
            files += [entry["filename"] for entry in open_data_set(source, split, "input").cache_files]
        else:
            files.append(source)
    return {file: [os.stat(file).st_size, os.stat(file).st_mtime_ns] for file in sorted(files)}


def require_read(parts: Sequence[Part], **keys: tuple[Any, Any, Sequence[str]]) -> None:
    """Raises a `ConfigError` if a key was given that does not apply to the kinds of files of the input.

    Args:
        parts: The parts of the input.
        **keys: Of each key its value, its default, and the kinds of parts that are read by it.
    """
    kinds = {part.kind for part in parts}
    for name, (given, usual, readers) in keys.items():
        if given != usual and not kinds & set(readers):
            found = ", ".join(sorted(kind.replace("_", " ") for kind in kinds))
            raise ConfigError(f"{name} must be left out, as the input has {found} alone, got {shown(given)}")


def share_out(parts: Sequence[Part], shards: int | None) -> list[list[Part]]:
    """Returns the parts of each shard: neighbours, with about the same amount of data in each shard.

    Args:
        parts: The parts of the input.
        shards: The number of shards; None for 64, or as many as there are parts if there are fewer.

    Raises:
        ConfigError: If there are more shards than parts.
    """
    if shards is None:
        shards = min(64, len(parts))
    if shards > len(parts):
        raise ConfigError(
            f"shards must be at most {len(parts)}, the parts that the input has, got {shards}: plain text and JSON "
            f"lines are cut every {PART_BYTES >> 20} MiB, Parquet into row groups, compressed files are not cut"
        )
    total, done, end = sum(part.size for part in parts), 0, 0
    shares = []
    for left in range(shards, 0, -1):
        start = end
        # one at least, and one at least for each of the others
        while end == start or (
            len(parts) - end >= left
            and (left == 1 or done + parts[end].size / 2 <= total * (shards - left + 1) / shards)
        ):
            done += parts[end].size
            end += 1
        shares.append(list(parts[start:end]))
    return shares


def _parts_of_file(path: Path, unit: str, part_bytes: int) -> list[Part]:
    if not path.is_file():
        raise DataError(f"input: {path} is no file")
    size, suffix = path.stat().st_size, suffix_of(path)
    if suffix == PARQUET:
        parquet = import_extra("pyarrow.parquet", "corpus")
        with errors_of(f"input: {path}"):
            metadata = parquet.read_metadata(path)
        groups = [metadata.row_group(number).total_byte_size for number in range(metadata.num_row_groups)]
        return [Part(str(path), "parquet", number, number + 1, size) for number, size in enumerate(groups)]
    if suffix == ".json":
        raise DataError(f"input: {path}: an array of JSON cannot be read in parts: write JSON lines (.jsonl)")
    kind = "json_lines" if suffix in JSON_LINES else "text"
    with open(path, "rb") as stream:
        compressed = stream.read(2) == _GZIP_MAGIC
        if compressed or (kind == "text" and unit == "file"):
            return [Part(str(path), kind, 0, None, size)]
        cuts = [0]
        while cuts[-1] < size:
            cuts.append(_next_cut(stream, cuts[-1] + part_bytes, size, kind == "text" and unit == "paragraph"))
    return [Part(str(path), kind, *pair, pair[1] - pair[0]) for pair in itertools.pairwise(cuts)]


def _next_cut(stream: BinaryIO, place: int, size: int, at_empty_line: bool) -> int:
    """The first place from which on a new line, or what follows an empty line, begins."""
    if place >= size:
        return size
    stream.seek(place)
    _pass_line(stream)  # the rest of one
    while at_empty_line and not _pass_line(stream):
        pass
    return min(stream.tell(), size)


def _pass_line(stream: BinaryIO) -> bool:
    """Goes to the next line without holding this one; returns whether it is empty, as what follows the last one is."""
    is_empty = True
    while True:
        block = stream.readline(_BLOCK)
        is_empty = is_empty and not block.strip()
        if not block or block.endswith(b"\n"):
            return is_empty
