"""A tokenizer on disk: `tokenizer.json` and vocabulary files whose sizes and SHA-256 are checked on loading."""

from __future__ import annotations

import contextlib
import dataclasses
import hashlib
import json
import os
import re
from pathlib import Path
from typing import Any

from zoo.storage.errors import quote, quote_key
from zoo.storage.files import atomic_write, locked, remove_incomplete, write_bytes
from zoo.storage.json_files import parse_json, read_bytes
from zoo.storage.stored_file import StoredFile, is_plain
from zoo.storage.typed import to_dataclass

CONFIG_FILE = "tokenizer.json"
# patterns of the files of a folder
TOKENIZER_FILES = (CONFIG_FILE, f"*-{16 * '[0-9a-f]'}.*")
FORMAT = "keras_transformer_zoo.tokenizer"
FORMAT_VERSION = 1
MOST_BYTES = 96 * 2**20
# a vocabulary file with the beginning of the SHA-256 of its content
_STORED_NAME = re.compile(r".+-([0-9a-f]{16})(\.\w+)?")


@dataclasses.dataclass(frozen=True)
class TokenizerDescription:
    """What `tokenizer.json` says.

    Args:
        format, version: What tells it from other files of this name.
        kind: The registered name of the tokenizer class.
        config: Its choices.
        files: The vocabulary files by their logical names.
    """

    format: str
    version: int
    kind: str
    config: dict[str, Any]
    files: dict[str, StoredFile]


@dataclasses.dataclass(frozen=True)
class TokenizerFiles:
    """The parts of a tokenizer.

    Args:
        path: Its `tokenizer.json`.
        kind: The registered name of the tokenizer class.
        config: Its configuration.
        files: Content of each vocabulary file by its logical name, such as `"sentencepiece.model"`.
        names: Names of these files in the directory.
        sha256: SHA-256 of `tokenizer.json`, which contains those of the other files.
    """

    path: Path
    kind: str
    config: dict[str, Any]
    files: dict[str, bytes]
    names: tuple[str, ...]
    sha256: str


def write_tokenizer(
    directory: str | os.PathLike[str], kind: str, config: dict[str, Any], files: dict[str, bytes]
) -> None:
    """Writes a tokenizer. A reader always finds either the old one or the new one, never a mixture.

    The names of vocabulary files contain a part of their SHA-256, so new files never overwrite those of an existing
    tokenizer. Renaming `tokenizer.json` switches to the new tokenizer. Vocabulary files that a killed writer left are
    then removed. Other files in `directory` are kept.

    Args:
        directory: The directory, created if it does not exist.
        kind: The registered name of the tokenizer class.
        config: Its configuration, as JSON values.
        files: Content of each vocabulary file by its logical name, such as `"sentencepiece.model"`.

    Raises:
        OSError: The directory cannot be created or written, for example on a full disk. The old tokenizer is intact.
    """
    directory = Path(directory)
    directory.mkdir(parents=True, exist_ok=True)
    with locked(directory):
        remove_incomplete(directory)
        entries = {}
        for name, content in files.items():
            digest = hashlib.sha256(content).hexdigest()
            path = Path(name)
            entries[name] = StoredFile(f"{path.stem}-{digest[:16]}{path.suffix}", len(content), digest)
            _write(directory / entries[name].file, content)
        description = TokenizerDescription(FORMAT, FORMAT_VERSION, kind, config, entries)
        text = json.dumps(dataclasses.asdict(description), indent=2, ensure_ascii=False) + "\n"
        replaced = _stored_names(directory) | _named_by_content(directory)
        _write(directory / CONFIG_FILE, text.encode("utf-8"))
        for stored in replaced - {entry.file for entry in entries.values()}:
            with contextlib.suppress(OSError):
                (directory / stored).unlink()


def remove_tokenizer(directory: str | os.PathLike[str]) -> None:
    """Removes the files of a tokenizer, and their folder if it holds nothing else.

    Args:
        directory: The folder.
    """
    directory = Path(directory)
    for name in _stored_names(directory) | _named_by_content(directory) | {CONFIG_FILE}:
        with contextlib.suppress(OSError):
            (directory / name).unlink()
    with contextlib.suppress(OSError):  # it holds more
        directory.rmdir()


def is_stored_tokenizer(directory: str | os.PathLike[str]) -> bool:
    """Returns whether a directory holds a `tokenizer.json` of `write_tokenizer`.

    Args:
        directory: The directory.
    """
    path = Path(directory) / CONFIG_FILE
    if not path.is_file():
        return False
    try:
        values = parse_json(read_bytes(path, MOST_BYTES), str(path))
    except ValueError:
        return False
    return isinstance(values, dict) and values.get("format") == FORMAT


def read_tokenizer(directory: str | os.PathLike[str]) -> TokenizerFiles:
    """Reads what `write_tokenizer` wrote.

    Args:
        directory: The directory.

    Raises:
        FileNotFoundError: The directory, its `tokenizer.json` or a vocabulary file is missing.
        ValueError: A file is not what was written: broken JSON, another format, another size or SHA-256.
    """
    directory = Path(directory)
    if not directory.is_dir():
        raise FileNotFoundError(f"There is no tokenizer directory {str(directory)!r}.")
    path = directory / CONFIG_FILE
    if not path.is_file():
        raise FileNotFoundError(
            f"{str(directory)!r} holds no {CONFIG_FILE!r}, so it is not a directory that Tokenizer.save wrote."
        )
    while True:
        content = read_bytes(path, MOST_BYTES)
        description = _parse(path, content)
        try:
            files = {name: _read_checked(directory, entry) for name, entry in description.files.items()}
        except (OSError, ValueError):
            if read_bytes(path, MOST_BYTES) == content:
                raise
            continue  # another process has replaced it meanwhile
        digest = hashlib.sha256(content).hexdigest()
        names = tuple(entry.file for entry in description.files.values())
        return TokenizerFiles(path, description.kind, description.config, files, names, digest)


def _parse(path: Path, content: bytes) -> TokenizerDescription:
    values = parse_json(content, str(path))
    if not isinstance(values, dict) or values.get("format") != FORMAT:
        found = quote(values.get("format")) if isinstance(values, dict) else f"a {type(values).__name__}"
        raise ValueError(f"{path} is not a tokenizer of this library: format must be {FORMAT!r}, got {found}.")
    if values.get("version") != FORMAT_VERSION:
        raise ValueError(f"{path}: version must be {FORMAT_VERSION}, got {quote(values.get('version'))}.")
    description = to_dataclass(TokenizerDescription, values, str(path))
    for name, entry in description.files.items():
        # a downloaded tokenizer must not be able to point outside its directory
        if not is_plain(entry.file) or (path.parent / entry.file).is_dir():
            raise ValueError(
                f"{path}: files.{quote_key(name)}.file must be the name of a file, got {quote(entry.file)}."
            )
    return description


def _read_checked(directory: Path, entry: StoredFile) -> bytes:
    if entry.bytes > MOST_BYTES:
        raise ValueError(f"{directory / entry.file} must have at most {MOST_BYTES} bytes, got {entry.bytes}.")
    with entry.open(directory, CONFIG_FILE) as file:
        return file.read()


def _stored_names(directory: Path) -> set[str]:
    """Names of the vocabulary files of the tokenizer that is in the directory; none if there is no readable one."""
    path = directory / CONFIG_FILE
    try:
        return {entry.file for entry in _parse(path, read_bytes(path, MOST_BYTES)).files.values()}
    except (OSError, ValueError):
        return set()


def _named_by_content(directory: Path) -> set[str]:
    """Names of the vocabulary files that are in the directory, of whatever tokenizer."""
    names = set()
    for path in directory.iterdir():
        match = _STORED_NAME.fullmatch(path.name)
        with contextlib.suppress(OSError):
            if match and path.is_file() and path.stat().st_size <= MOST_BYTES:
                if hashlib.sha256(path.read_bytes()).hexdigest().startswith(match[1]):
                    names.add(path.name)
    return names


def _write(path: Path, content: bytes) -> None:
    with atomic_write(path) as temporary:
        write_bytes(temporary, [content])
