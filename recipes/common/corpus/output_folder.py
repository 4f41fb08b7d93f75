"""A folder that a long work on files fills part by part, and that the same command goes on in."""

from __future__ import annotations

import contextlib
import json
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import filelock

import zoo
from recipes.common.corpus.sources import Part, state_of
from recipes.common.errors import DataError, RunFolderError, shown

WORK_FOLDER = "work"
_PLAN_FILE, _LOCK_FILE = "plan.json", ".lock"


@contextlib.contextmanager
def locked(folder: Path) -> Iterator[None]:
    """Makes a folder, and keeps other processes from writing to it.

    Args:
        folder: The folder.

    Raises:
        RunFolderError: If another process does.
    """
    folder.mkdir(parents=True, exist_ok=True)
    lock = filelock.FileLock(folder / _LOCK_FILE)
    try:
        lock.acquire(blocking=False)
    except filelock.Timeout as error:
        raise RunFolderError(f"output: another process writes to {shown(str(folder), 300)}") from error
    with lock:
        yield


def compare(before: Mapping[str, Any], now: Mapping[str, Any], folder: Path) -> None:
    """Raises a `RunFolderError` that names the settings with which a folder was made otherwise.

    Args:
        before: The settings that the folder was begun with.
        now: Those of this process.
        folder: The folder.
    """
    names = [name for name in {**before, **now} if before.get(name) != now.get(name)]
    if names:
        lines = [f"  {name}: {shown(before.get(name))} in the folder, {shown(now.get(name))} now" for name in names]
        raise RunFolderError(
            f"{str(folder)!r} was begun otherwise; take the old values, or name another folder:\n" + "\n".join(lines)
        )


def planned(
    folder: Path,
    settings: Mapping[str, Any],
    make: Callable[[], Sequence[Sequence[Part]]],
    *,
    mine: Sequence[str] = (),
) -> list[list[Part]]:
    """Returns the parts of the input that each shard is made of, as an earlier run has planned, or planned now.

    Args:
        folder: The folder, see `locked`.
        settings: All that its content depends on, apart from the files.
        make: Plans.
        mine: What else an earlier run may have left there before it planned.

    Raises:
        RunFolderError: If the folder was begun with other settings, or holds something else.
        DataError: If a file of the input is another one now.
    """
    zoo.storage.remove_incomplete(folder)
    path = folder / WORK_FOLDER / _PLAN_FILE
    if path.is_file():
        plan = json.loads(path.read_text(encoding="utf-8"))
        compare(plan["settings"], settings, folder)
        shares = [[Part(**part) for part in share] for share in plan["shares"]]
        try:
            files = state_of(part for share in shares for part in share)
        except OSError as error:
            raise DataError(f"input: {error.filename}, with which {str(folder)!r} was begun, is gone") from error
        changed = [file for file, state in plan["files"].items() if state != files[file]]
        if changed:
            raise DataError(
                f"input: {changed[0]} is not what it was when {str(folder)!r} was begun: remove that folder"
            )
        print(f"{folder}: going on")
        return shares
    content = sorted(entry.name for entry in folder.iterdir() if entry.name not in (_LOCK_FILE, *mine))
    if content and content != [WORK_FOLDER]:
        raise RunFolderError(f"{str(folder)!r} holds {content[0]!r} of something else: name a new or an empty folder")
    shares = [list(share) for share in make()]
    plan = {
        "settings": dict(settings),
        "files": state_of(part for share in shares for part in share),
        "shares": [[vars(part) for part in share] for share in shares],
    }
    zoo.storage.write_text_atomically(path, json.dumps(plan))
    return shares
