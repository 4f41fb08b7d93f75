"""What a run has read: digests of its files and rows, kept in the run folder, and what was found out about them."""

from __future__ import annotations

import functools
import hashlib
import json
import os
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

import zoo
from recipes.common.data.overlap import content_of
from recipes.common.errors import RunFolderError

DATA_FILE = "data.json"
_SHOWN = 12


class DataAccount:
    """The data of a run, which must stay what they are as long as it goes on.

    Args:
        folder: The run folder; None for a process that trains with the one that keeps the account.
        paths: The files and folders that the config names, by key. Files are looked at, folders are not.
        is_trained: Whether the run has been trained, so that its data must be those of the account.

    Attributes:
        counts: Numbers that belong into the results, such as "test_rows_in_train".

    Raises:
        RunFolderError: If a file has changed.
    """

    def __init__(self, folder: Path | None, paths: Mapping[str, Sequence[str]], is_trained: bool) -> None:
        self.counts: dict[str, int] = {}
        self._folder = folder
        self._stored: dict[str, Any] = {"files": {}, "rows": {}}
        if folder is None:
            return
        if is_trained:
            require_same_files(folder, paths)
            self._stored = _read(folder)
        self._stored["files"] = {**self._stored["files"], **_digests(paths)}

    def note_rows(self, part: str, rows: Iterable[Any]) -> None:
        """Compares the rows of a part with those that the run has read before, and notes those of a new run.

        Args:
            part: The part.
            rows: Its rows.

        Raises:
            RunFolderError: If they are others, though no file has changed.
        """
        if self._folder is None:
            return
        digest = hashlib.sha256()
        for row in rows:
            digest.update(content_of(row).encode("utf-8", "surrogatepass") + b"\0")
        found = digest.hexdigest()
        before = self._stored["rows"].setdefault(part, found)
        if before != found:
            raise RunFolderError(
                f"data.{part}: the rows are not those that the run in {str(self._folder)!r} has read before, though no "
                "file has changed: another version of this library reads or generates them in another way. Go on with "
                "that version, or name another run folder"
            )
        self.save()

    def save(self) -> None:
        """Writes the account to the run folder."""
        zoo.storage.write_text_atomically(self._folder / DATA_FILE, json.dumps(self._stored, indent=1) + "\n")


def require_same_files(folder: Path, paths: Mapping[str, Sequence[str]]) -> None:
    """Raises a `RunFolderError` if files have changed since a run has read them; those that are gone are not looked at.

    Args:
        folder: The run folder.
        paths: The files and folders that its config names, by key.
    """
    changed = changed_files(folder, paths)
    if changed:
        raise RunFolderError(
            f"the run in {str(folder)!r} has read data that have changed since; put the old files back to go on with "
            "it, or name another folder to use the new ones:\n" + "\n".join(changed)
        )


def changed_files(folder: Path, paths: Mapping[str, Sequence[str]]) -> list[str]:
    """Returns a line for each file that has changed since a run has read it; those that are gone are not looked at.

    Args:
        folder: The run folder.
        paths: The files and folders, by the key that names them.
    """
    before, now = _read(folder)["files"], _digests(paths)
    keys = {file: key for key, files in paths.items() for file in files}
    return [
        f"  {keys[file]}: {file} had {_described(before[file])}, now {_described(now[file])}"
        for file in now
        if now[file] != before.get(file, now[file])
    ]


def _described(file: Mapping[str, Any]) -> str:
    return f"{file['bytes']:,} bytes (SHA-256 {file['sha256'][:_SHOWN]})"


def _read(folder: Path) -> dict[str, Any]:
    try:
        stored = json.loads((folder / DATA_FILE).read_text(encoding="utf-8"))
        return {"files": dict(stored["files"]), "rows": dict(stored["rows"])}
    except FileNotFoundError:
        return {"files": {}, "rows": {}}  # of a run that an earlier version has begun
    except (OSError, ValueError, KeyError, TypeError) as error:
        raise RunFolderError(f"{str(folder / DATA_FILE)!r} cannot be read: {error!r}") from error


def _digests(paths: Mapping[str, Sequence[str]]) -> dict[str, dict[str, Any]]:
    files = dict.fromkeys(file for named in paths.values() for file in named if os.path.isfile(file))
    return {file: _digest(file, os.stat(file).st_mtime_ns, os.stat(file).st_size) for file in files}


# many runs of a comparison have the same files
@functools.lru_cache(maxsize=256)
def _digest(file: str, _: int, size: int) -> dict[str, Any]:
    try:
        with open(file, "rb") as stream:
            return {"sha256": hashlib.file_digest(stream, "sha256").hexdigest(), "bytes": size}
    except OSError:
        return {"sha256": "", "bytes": size}  # what reads it says why
