"""Folders that are replaced whole, and read in one version while others replace them."""

import contextlib
import os
import shutil
import tempfile
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from fnmatch import fnmatchcase
from pathlib import Path
from typing import TypeVar

from zoo.storage.files import (
    INCOMPLETE,
    SET_ASIDE,
    absolute_path,
    locked,
    locked_if_free,
    put_back,
    remove,
    remove_incomplete,
    synchronize,
    synchronize_all,
    temporary_folder,
    temporary_folders,
)
from zoo.storage.processes import is_first_process

T = TypeVar("T")
_SECONDS_OF_A_SWITCH = 10


@contextlib.contextmanager
def replace_folder(
    directory: str | os.PathLike[str], may_replace: Callable[[Path], bool], what: str, own: Iterable[str] = ()
) -> Iterator[Path]:
    """A context with a new folder, which replaces `directory` when the block ends without an error.

    Files of the old directory that are neither in the new one nor among `own` are somebody else's, and stay.

    An error, a full disk or a kill leaves the old directory intact. After a kill between the two renames, `recover`
    restores it. If there are several writers, the last one wins. If several processes train together, only the first
    one writes; what the others write is discarded.

    The working directory, mounted and linked directories, and those that hold files of others are not renamed: their
    files are replaced one by one. A kill meanwhile leaves a mixture of old and new files.

    Args:
        directory: The directory to write.
        may_replace: Function that tells whether an existing directory that is not empty may be replaced.
        what: Name of such directories in the error message.
        own: Files that such directories have, and that go if the new one lacks them: patterns of paths below the
            directory, such as `"variables/*"`, in which `*` stands for a part of one name.

    Raises:
        FileExistsError: If the directory exists, is not empty and may not be replaced, or a file of somebody else is in
            the way.

    Example:

    >>> with replace_folder("runs/model", lambda old: (old / "config.json").exists(), "saved model") as folder:
    ...     (folder / "config.json").write_text("{}")
    """
    directory = absolute_path(directory)
    if not is_first_process():
        with tempfile.TemporaryDirectory() as place:
            yield Path(place)
        return
    recover(directory)
    while not _is_free(directory, may_replace):
        found = _identity(directory)
        # another writer may have exchanged it while it was looked at
        if not _is_free(directory, may_replace) and _identity(directory) == found:
            raise FileExistsError(f"{directory} exists and is no {what}: it will not be overwritten.")
    own = tuple(own)
    stays = directory.is_dir() and (
        directory.is_symlink() or os.path.ismount(directory) or _is_working_directory(directory)
    )
    home = directory if stays else directory.parent
    home.mkdir(parents=True, exist_ok=True)
    remove_incomplete(home, directory.name)
    with temporary_folder(home, directory.name) as place:
        new = place / "new"
        new.mkdir()
        yield new
        synchronize_all(new)
        if stays or _others(directory, own) - _files(new):
            with locked(directory):  # the files of two writers do not mix
                _refill(new, directory, place, own)
        else:
            _exchange(new, directory, place)
            synchronize(home)


def _is_free(directory: Path, may_replace: Callable[[Path], bool]) -> bool:
    try:
        return not directory.exists() or (directory.is_dir() and not os.listdir(directory)) or may_replace(directory)
    except FileNotFoundError:
        return False


def _is_working_directory(directory: Path) -> bool:
    here, directory = Path.cwd(), directory.resolve()
    return directory == here or directory in here.parents


def _exchange(new: Path, directory: Path, place: Path) -> None:
    old = place / SET_ASIDE
    while True:
        is_set_aside = False
        try:
            os.rename(directory, old)
            is_set_aside = True
        except FileNotFoundError:
            pass  # there is none, or another writer has set it aside just now
        try:
            os.rename(new, directory)
            break
        except BaseException:
            if is_set_aside and not directory.exists():
                os.rename(old, directory)
                raise
            if not directory.exists():
                raise
        # another writer was faster: its folder is replaced, too
        shutil.rmtree(old, ignore_errors=True)
    shutil.rmtree(old, ignore_errors=True)


def _refill(new: Path, directory: Path, place: Path, own: Sequence[str]) -> None:
    """Replaces files one by one; those of others stay."""
    names, others = _files(new), _others(directory, own)
    for name in names:
        for other in others:
            # a file has the name of a folder that holds files of others, or the other way round
            if (name in other.parents and not _is_folder(new / name)) or (
                other in name.parents and not _is_folder(directory / other)
            ):
                raise FileExistsError(f"{directory / other} is in the way of {name}: it will not be overwritten.")
    old = place / "replaced"
    old.mkdir()
    for number, name in enumerate(sorted(_files(directory) - names - others)):
        os.rename(directory / name, old / str(number))
        for folder in (*name.parents,)[:-1]:
            with contextlib.suppress(OSError):  # it holds more
                (directory / folder).rmdir()
    for name in sorted(names):
        if _is_folder(new / name):
            (directory / name).mkdir(parents=True, exist_ok=True)
            continue
        (directory / name).parent.mkdir(parents=True, exist_ok=True)
        with contextlib.suppress(OSError):  # a file
            (directory / name).rmdir()
        os.replace(new / name, directory / name)
        synchronize((directory / name).parent)
    shutil.rmtree(old, ignore_errors=True)


def _is_folder(path: Path) -> bool:
    return path.is_dir() and not path.is_symlink()


def _files(directory: Path) -> set[Path]:
    """Files and empty folders below a folder, without what others are writing there."""
    found: set[Path] = set()
    for root, folders, names in os.walk(directory):
        folders[:] = [name for name in folders if not name.endswith(INCOMPLETE)]
        links = [name for name in folders if os.path.islink(os.path.join(root, name))]
        found.update(Path(root, name).relative_to(directory) for name in (*names, *links))
        if not folders and not names:
            found.add(Path(root).relative_to(directory))
    return found - {Path()}


def _others(directory: Path, own: Sequence[str]) -> set[Path]:
    """The files below a folder that are none of its kind."""
    patterns = [Path(pattern).parts for pattern in own]
    return {
        name
        for name in _files(directory)
        if not any(len(parts) == len(name.parts) and all(map(fnmatchcase, name.parts, parts)) for parts in patterns)
    }


def readable_folder(directory: str | os.PathLike[str]) -> Path:
    """Returns where to read a folder that others may be replacing just now; nothing is renamed for it.

    It is the folder itself, which is waited for while another process replaces it. Where a kill in the middle of a
    replacement has left none, it is what was there before, at the place where it was set aside.

    Args:
        directory: What is about to be read.
    """
    path = absolute_path(directory)
    end = time.monotonic() + _SECONDS_OF_A_SWITCH
    while not os.path.lexists(path):
        set_aside = [place for place in temporary_folders(path.parent, path.name) if (place / SET_ASIDE).is_dir()]
        for place in set_aside:
            with locked_if_free(place) as is_free:
                if is_free and not os.path.lexists(path):
                    return place / SET_ASIDE
        if not set_aside or time.monotonic() > end:
            break
        time.sleep(0.01)
    return Path(directory)


def recover(directory: str | os.PathLike[str]) -> None:
    """Puts back what a kill in the middle of a replacement has set aside; waits while another process replaces it.

    Args:
        directory: What is about to be written.
    """
    directory = absolute_path(directory)
    end = time.monotonic() + _SECONDS_OF_A_SWITCH
    while not directory.exists() and time.monotonic() < end:
        set_aside = [
            place for place in temporary_folders(directory.parent, directory.name) if (place / SET_ASIDE).is_dir()
        ]
        if not set_aside:
            return
        for place in set_aside:
            with locked_if_free(place) as is_free:
                if is_free:
                    put_back(place)
                    remove(place)
                    break
        else:
            time.sleep(0.01)


def read_one_version(directory: str | os.PathLike[str], read: Callable[[], T]) -> T:
    """Returns the result of reading one version of a folder that `replace_folder` may replace meanwhile.

    Args:
        directory: The folder.
        read: Function that reads the folder.

    Raises:
        Exception: The error of `read`, if the folder has not changed meanwhile.
    """
    directory = absolute_path(directory)
    for _ in range(20):
        before = _identity(directory)
        try:
            result = read()
        except Exception:
            readable_folder(directory)
            if _identity(directory) == before:
                raise
        else:
            if _identity(directory) == before:
                return result
    raise ValueError(f"{directory} was replaced each time that it was read.")


def _identity(directory: Path) -> tuple[int, ...] | None:
    """What distinguishes a folder from earlier ones of the same path."""
    try:
        status = os.stat(directory)
    except OSError:
        return None
    return status.st_dev, status.st_ino, status.st_mtime_ns
