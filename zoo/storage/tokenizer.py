"""A tokenizer on disk: `tokenizer.json` beside vocabulary files whose sizes and SHA-256 are checked on loading."""

from __future__ import annotations

import contextlib
import hashlib
import json
import os
from pathlib import Path

from zoo.storage.files import atomic_write, write_bytes

CONFIG_FILE = "tokenizer.json"
FORMAT = "keras_transformer_zoo.tokenizer"
FORMAT_VERSION = 1


def write_tokenizer(directory: str | os.PathLike, kind: str, config: dict, files: dict[str, bytes]) -> None:
    """Writes a tokenizer so that a reader finds the old one or the new one whole, never a mixture.

    The vocabulary files carry a part of their SHA-256 in their names, so new ones never overwrite those of a tokenizer
    that is there already. Replacing `tokenizer.json`, one rename, is the moment of change. Other files in `directory`
    are left alone.

    Args:
        directory: made if missing.
        kind: the registered name of the tokenizer class.
        config: its choices, as JSON can hold them.
        files: content of each vocabulary file by its logical name, such as `"sentencepiece.model"`.

    Raises:
        OSError: the directory can't be made or written, for example on a full disk. What was there stays good.
    """
    directory = Path(directory)
    directory.mkdir(parents=True, exist_ok=True)
    replaced = _stored_names(directory)
    entries = {}
    for name, content in files.items():
        digest = hashlib.sha256(content).hexdigest()
        path = Path(name)
        stored = f"{path.stem}-{digest[:16]}{path.suffix}"
        _write(directory / stored, content)
        entries[name] = {"file": stored, "bytes": len(content), "sha256": digest}
    description = {"format": FORMAT, "version": FORMAT_VERSION, "kind": kind, "config": config, "files": entries}
    text = json.dumps(description, indent=2, ensure_ascii=False) + "\n"
    _write(directory / CONFIG_FILE, text.encode("utf-8"))
    for stored in replaced - {entry["file"] for entry in entries.values()}:
        with contextlib.suppress(FileNotFoundError):
            (directory / stored).unlink()


def read_tokenizer(directory: str | os.PathLike) -> tuple[str, dict, dict[str, bytes]]:
    """Reads what `write_tokenizer` wrote.

    Returns:
        Kind, config and the content of each vocabulary file by its logical name.

    Raises:
        FileNotFoundError: the directory, its `tokenizer.json` or a vocabulary file is missing.
        ValueError: a file is not what was written: broken JSON, another format, another size or SHA-256.
    """
    directory = Path(directory)
    if not directory.is_dir():
        raise FileNotFoundError(f"There is no tokenizer directory {str(directory)!r}.")
    path = directory / CONFIG_FILE
    if not path.is_file():
        raise FileNotFoundError(
            f"{str(directory)!r} holds no {CONFIG_FILE!r}, so it is not a directory that Tokenizer.save wrote."
        )
    description = _read_description(path)
    files = {name: _read_checked(directory, entry) for name, entry in description["files"].items()}
    return description["kind"], description["config"], files


def _read_description(path: Path) -> dict:
    try:
        description = json.loads(path.read_bytes())
    except ValueError as error:  # JSONDecodeError and UnicodeDecodeError are both ValueErrors
        raise ValueError(f"{str(path)!r} is damaged: it is not JSON ({error}).") from error
    if not isinstance(description, dict) or description.get("format") != FORMAT:
        raise ValueError(f"{str(path)!r} is not a tokenizer of this library: it has no 'format': {FORMAT!r}.")
    if description.get("version") != FORMAT_VERSION:
        raise ValueError(
            f"{str(path)!r} has format version {description.get('version')!r}; this release reads {FORMAT_VERSION}."
        )
    missing = {"kind", "config", "files"} - description.keys()
    if missing:
        raise ValueError(f"{str(path)!r} is damaged: it lacks {sorted(missing)}.")
    for name, entry in description["files"].items():
        file = entry.get("file") if isinstance(entry, dict) else None
        # A plain name only: a downloaded tokenizer must not be able to point outside its directory.
        if not isinstance(file, str) or not file or Path(file).name != file or "sha256" not in entry:
            raise ValueError(f"{str(path)!r} is damaged: its entry for {name!r} is {entry!r}.")
    return description


def _read_checked(directory: Path, entry: dict) -> bytes:
    path = directory / entry["file"]
    if not path.is_file():
        raise FileNotFoundError(f"The vocabulary file {str(path)!r}, named in {CONFIG_FILE!r}, is missing.")
    content = path.read_bytes()
    digest = hashlib.sha256(content).hexdigest()
    if digest != entry["sha256"]:
        raise ValueError(
            f"The vocabulary file {str(path)!r} is damaged: {len(content)} bytes with SHA-256 {digest}, "
            f"expected {entry.get('bytes')} bytes with {entry['sha256']}."
        )
    return content


def _stored_names(directory: Path) -> set[str]:
    """Names of the vocabulary files of the tokenizer that is in the directory; none if there is no readable one."""
    try:
        return {entry["file"] for entry in _read_description(directory / CONFIG_FILE)["files"].values()}
    except (OSError, ValueError):
        return set()


def _write(path: Path, content: bytes) -> None:
    with atomic_write(path) as temporary:
        write_bytes(temporary, [content])
