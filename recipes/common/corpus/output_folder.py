"""A folder that a long work on files fills part by part, and that the same command resumes in."""

from __future__ import annotations

import contextlib
import errno
import json
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import filelock

import zoo
from recipes.common.corpus.sources import Part
from recipes.common.errors import DataError, RunFolderError, shown

WORK_FOLDER = "work"
# the files of the stages
_WORK_FILE = re.compile(r"(repeated|[0-9]{5}|[a-z]+-[0-9]{3,})\.(json|jsonl|npy|npz|bin)")
_PLAN_FILE, _LOCK_FILE = "plan.json", ".lock"
# what a full, broken or forbidden disk says
_DISK_ERRORS = {errno.ENOSPC, errno.EDQUOT, errno.EFBIG, errno.EIO, errno.EROFS, errno.EACCES, errno.EPERM}


@contextlib.contextmanager
def locked(folder: Path) -> Iterator[None]:
    """Makes a folder, and keeps other processes from writing to it.

    Args:
        folder: The folder.

    Raises:
        RunFolderError: If another process does, or the folder cannot be written to.
    """
    name = shown(str(folder), 300)
    lock = filelock.FileLock(folder / _LOCK_FILE)
    try:
        folder.mkdir(parents=True, exist_ok=True)
        lock.acquire(blocking=False)
    except filelock.Timeout as error:
        raise RunFolderError(f"output: another process writes to {name}") from error
    except OSError as error:
        raise RunFolderError(f"output: cannot write to {name}: {error.strerror}") from error
    try:
        yield
    except OSError as error:
        if error.errno not in _DISK_ERRORS:
            raise
        raise RunFolderError(f"output: {error}; complete files in {name} stay, and the same command resumes") from error
    finally:
        lock.release()


def compare(before: Mapping[str, Any], now: Mapping[str, Any], folder: Path) -> None:
    """Raises a `RunFolderError` that names the settings that differ from those a folder was begun with.

    Bad records may be left out from now on (`on_error` "skip"): where they had to stop the work, what is done has none.

    Args:
        before: The settings that the folder was begun with.
        now: Those of this process.
        folder: The folder.
    """
    names = [name for name in {**before, **now} if before.get(name) != now.get(name)]
    names = [name for name in names if (name, now.get(name)) != ("on_error", "skip")]
    if names:
        lines = [f"  {name}: {shown(before.get(name))} in the folder, {shown(now.get(name))} now" for name in names]
        raise RunFolderError(
            f"{str(folder)!r} was begun otherwise; take the old values, or name another folder:\n" + "\n".join(lines)
        )


def compare_files(before: Mapping[str, Any], now: Mapping[str, Any], folder: Path, *, may_lack: bool = False) -> None:
    """Raises a `DataError` if the files of the input are not those that a folder was made from.

    Args:
        before: Their states (see `state_of`) when the folder was begun.
        now: Their states now.
        folder: The folder.
        may_lack: Whether files may be gone.
    """
    changes = (
        ("is gone, with which {} was begun", [] if may_lack else [file for file in before if file not in now]),
        ("was not there when {} was begun", [file for file in now if file not in before]),
        ("is not what it was when {} was begun", [file for file in now if now[file] != before.get(file)]),
    )
    for what, files in changes:
        if files:
            raise DataError(f"input: {files[0]} {what.format(repr(str(folder)))}: remove that folder, or name another")


def tidy(folder: Path) -> None:
    """Removes what killed processes, and the work itself, have left in a folder that is complete.

    Args:
        folder: The folder.
    """
    for place in (folder, *(entry for entry in folder.iterdir() if entry.is_dir() and entry.name != WORK_FOLDER)):
        zoo.storage.remove_incomplete(place)
    work = folder / WORK_FOLDER
    if not work.is_dir():
        return
    zoo.storage.remove_incomplete(work)
    for path in (*(path for path in work.iterdir() if _WORK_FILE.fullmatch(path.name)), work / _PLAN_FILE):
        path.unlink(missing_ok=True)
    with contextlib.suppress(OSError):  # it holds something else
        work.rmdir()


def planned(
    folder: Path,
    settings: Mapping[str, Any],
    files: Mapping[str, Any],
    make: Callable[[], Sequence[Sequence[Part]]],
    *,
    mine: Sequence[str] = (),
) -> list[list[Part]]:
    """Returns the parts of the input that each shard is made of, as an earlier run has planned, or planned now.

    Args:
        folder: The folder, see `locked`.
        settings: All that its content depends on, apart from the files.
        files: The states of the files of the input, see `state_of`.
        make: Plans.
        mine: What else an earlier run may have left there before it planned.

    Raises:
        RunFolderError: If the folder was begun with other settings, or holds something else.
        DataError: If a file of the input is another one now.
    """
    for place in (folder, folder / WORK_FOLDER):
        zoo.storage.remove_incomplete(place)
    path = folder / WORK_FOLDER / _PLAN_FILE
    if path.is_file():
        plan = json.loads(path.read_text(encoding="utf-8"))
        compare(plan["settings"], settings, folder)
        compare_files(plan["files"], files, folder)
        zoo.storage.write_text_atomically(path, json.dumps({**plan, "settings": dict(settings)}))
        print(f"{folder}: going on")
        return [[Part(**part) for part in share] for share in plan["shares"]]
    content = [entry for entry in folder.iterdir() if entry.name not in (_LOCK_FILE, WORK_FOLDER, *mine)]
    # without a plan, only its own beginning
    content += (folder / WORK_FOLDER).glob("*")
    content = sorted(str(entry.relative_to(folder)) for entry in content)
    if content:
        raise RunFolderError(f"{str(folder)!r} holds {content[0]!r} of something else: name a new or an empty folder")
    shares = [list(share) for share in make()]
    plan = {
        "settings": dict(settings),
        "files": dict(files),
        "shares": [[vars(part) for part in share] for share in shares],
    }
    zoo.storage.write_text_atomically(path, json.dumps(plan))
    return shares
