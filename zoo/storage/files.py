"""Files and folders that are written whole or not at all.

What is written comes into being in a hidden folder next to its place, `.NAME.xxxxxxxx.incomplete`, and is then renamed.
The writer holds a lock on that folder. So the next writer can tell what a killed process has left from what another one
is writing just now, and removes the former.
"""

import contextlib
import os
import shutil
import tempfile
import time
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from typing import TypeVar

from zoo.storage.locks import abandoned, try_lock

T = TypeVar("T")
INCOMPLETE = ".incomplete"
_SET_ASIDE = "old"
_SECONDS_OF_A_SWITCH = 10


def write_bytes(path: Path, blocks: Iterable[bytes]) -> None:
    """Writes the blocks to a file and waits until they are on the disk.

    Args:
        path: file to write.
        blocks: contents, one after the other.

    Raises:
        OSError: if the disk is full or the file cannot be written.

    Example:
        >>> write_bytes(Path("notes"), [b"one", b"two"])
    """
    with open(path, "wb") as file:
        for block in blocks:
            file.write(block)
        file.flush()
        os.fsync(file.fileno())


def synchronize(path: Path) -> None:
    """Waits until a file is on the disk, or the names in a folder: a rename is only safe once its folder is.

    Args:
        path: The file or folder.
    """
    descriptor = os.open(path, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def synchronize_all(folder: Path) -> None:
    """Waits until all that is in a folder is on the disk.

    Args:
        folder: The folder.
    """
    for root, _, names in os.walk(folder):
        for name in names:
            synchronize(Path(root, name))
        synchronize(Path(root))


@contextlib.contextmanager
def workplace(folder: Path, name: str) -> Iterator[Path]:
    """Gives a hidden folder to write in; it is gone when the block ends.

    Args:
        folder: Where to make it, on the file system of what it is for.
        name: What it is for, a part of its name.

    Example:

    >>> with workplace(Path("runs"), "model") as place:
    ...     (place / "config.json").write_text("{}")
    ...     os.replace(place / "config.json", "runs/config.json")
    """
    while True:
        place = Path(tempfile.mkdtemp(prefix=f".{name}.", suffix=INCOMPLETE, dir=folder))
        try:
            descriptor = os.open(place, os.O_RDONLY)
        except FileNotFoundError:
            continue  # another process took it for abandoned before it was locked
        with contextlib.suppress(OSError):  # no locks here: its age protects it
            if not try_lock(descriptor):
                os.close(descriptor)
                continue
        if os.path.exists(place):
            break
        os.close(descriptor)
    try:
        yield place
    finally:
        if not (place / _SET_ASIDE).exists():  # else it could not be put back: `recover` will
            shutil.rmtree(place, ignore_errors=True)
        os.close(descriptor)


@contextlib.contextmanager
def atomic_write(path: Path) -> Iterator[Path]:
    """Gives a temporary path; what was written there takes the place of `path` if the block succeeds.

    A file replaces an earlier one in one step. A folder must not exist before.

    Args:
        path: file or folder that shall come into being.

    Raises:
        OSError: with a message that says what is unharmed, if writing fails.

    Example:
        >>> with atomic_write(Path("weights.safetensors")) as temporary:
        ...     write_bytes(temporary, [content])
    """
    path = _absolute(path)
    path.parent.mkdir(parents=True, exist_ok=True)
    remove_incomplete(path.parent, path.name)
    try:
        with workplace(path.parent, path.name) as place:
            temporary = place / path.name
            yield temporary
            if temporary.is_dir():
                synchronize(temporary)
                if path.exists():
                    raise FileExistsError(f"{path} exists already: does another process write to the same folder?")
            os.replace(temporary, path)
            synchronize(path.parent)
    except OSError as error:
        if error.errno is None:
            raise
        raise OSError(
            error.errno, f"Could not write {path} ({error.strerror}). What was saved before is unharmed."
        ) from error


def remove(path: Path) -> None:
    """Removes a file or folder that may be absent. A folder gets another name first, so that no half is ever found.

    Args:
        path: The file or folder.
    """
    if path.is_dir():
        if not path.name.endswith(INCOMPLETE):
            path = path.rename(path.with_name(f".{path.name}.{os.getpid()}{INCOMPLETE}"))
        shutil.rmtree(path, ignore_errors=True)
    else:
        path.unlink(missing_ok=True)


def remove_incomplete(folder: Path, name: str | None = None) -> None:
    """Removes what killed processes left half written in a folder, and nothing that another process is writing.

    Args:
        folder: The folder.
        name: What they wrote; None for anything.
    """
    for place in _places(folder, name):
        with abandoned(place) as is_free:
            if is_free:
                _put_back(place)
                remove(place)


def _put_back(place: Path) -> None:
    """Gives what was set aside for a folder that never came its name again."""
    directory = place.with_name(place.name[1:].rsplit(".", 2)[0])
    if (place / _SET_ASIDE).is_dir() and not directory.exists():
        with contextlib.suppress(OSError):  # another process was faster
            os.rename(place / _SET_ASIDE, directory)


def _places(folder: Path, name: str | None) -> list[Path]:
    start = "." if name is None else f".{name}."
    try:
        names = os.listdir(folder)
    except FileNotFoundError:
        return []
    return [folder / entry for entry in sorted(names) if entry.startswith(start) and entry.endswith(INCOMPLETE)]


def write_text_atomically(path: str | os.PathLike, text: str) -> None:
    """Writes a text file completely or not at all.

    Args:
        path: file to write; its folder is made if it does not exist.
        text: new content, written as UTF-8 with line ends as they are.

    Raises:
        OSError: if the disk is full or the file cannot be written; an earlier file of that name is unharmed.

    Example:
        >>> write_text_atomically("config.yaml", "seed: 1\\n")
    """
    with atomic_write(Path(path)) as temporary:
        write_bytes(temporary, [text.encode("utf-8")])


@contextlib.contextmanager
def replace_folder(directory: str | os.PathLike, may_replace: Callable[[Path], bool], what: str) -> Iterator[Path]:
    """Gives a new folder that takes the place of `directory` when the block ends without an error.

    Whatever stops the writing (an error, a full disk, a kill), what was there before stays good. In the worst case, a
    kill between the two renames, `recover` puts it back. Of several writers the last one wins.

    The working directory and mounted directories cannot be renamed: their files are replaced one by one, and a kill
    while that is done leaves some of both.

    Args:
        directory: What is to be written.
        may_replace: Whether an existing directory that is not empty is one of those that this replaces.
        what: What such a directory is called in the error.

    Raises:
        FileExistsError: If the directory exists, is not empty and may not be replaced.

    Example:

    >>> with replace_folder("runs/model", lambda old: (old / "config.json").exists(), "saved model") as folder:
    ...     (folder / "config.json").write_text("{}")
    """
    directory = _absolute(directory)
    recover(directory)
    is_free = not directory.exists() or (directory.is_dir() and not any(directory.iterdir()))
    if not is_free and not may_replace(directory):
        raise FileExistsError(f"{directory} exists and is no {what}: it will not be overwritten.")
    stays = directory.is_dir() and (os.path.ismount(directory) or _is_working_directory(directory))
    home = directory if stays else directory.parent
    home.mkdir(parents=True, exist_ok=True)
    remove_incomplete(home, directory.name)
    with workplace(home, directory.name) as place:
        new = place / "new"
        new.mkdir()
        yield new
        synchronize_all(new)
        if stays:
            _refill(new, directory, place)
        else:
            _exchange(new, directory, place)
            synchronize(home)


def _absolute(path: str | os.PathLike) -> Path:
    # "." and ".." have no name of their own; links stay as they are
    return Path(os.path.abspath(path))


def _is_working_directory(directory: Path) -> bool:
    here, directory = Path.cwd(), directory.resolve()
    return directory == here or directory in here.parents


def _exchange(new: Path, directory: Path, place: Path) -> None:
    old = place / _SET_ASIDE
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


def _refill(new: Path, directory: Path, place: Path) -> None:
    names = set(os.listdir(new))
    old = place / "replaced"
    old.mkdir()
    for name in os.listdir(directory):
        # what others are writing here stays
        if not name.endswith(INCOMPLETE) and (name not in names or (directory / name).is_dir()):
            os.rename(directory / name, old / name)
    for name in sorted(names):
        os.replace(new / name, directory / name)
    synchronize(directory)
    shutil.rmtree(old, ignore_errors=True)


def recover(directory: str | os.PathLike) -> None:
    """Puts back what a kill in the middle of a replacement has set aside; waits while another process replaces it.

    Args:
        directory: What is about to be read or written.
    """
    directory = _absolute(directory)
    end = time.monotonic() + _SECONDS_OF_A_SWITCH
    while not directory.exists() and time.monotonic() < end:
        set_aside = [place for place in _places(directory.parent, directory.name) if (place / _SET_ASIDE).is_dir()]
        if not set_aside:
            return
        for place in set_aside:
            with abandoned(place) as is_free:
                if is_free:
                    _put_back(place)
                    remove(place)
                    break
        else:
            time.sleep(0.01)


def read_one_version(directory: str | os.PathLike, read: Callable[[], T]) -> T:
    """Returns what is read from a folder that `replace_folder` may replace meanwhile: all of one version.

    Args:
        directory: The folder.
        read: Reads it.

    Raises:
        Exception: What `read` raises while the folder stays the same.
    """
    directory = _absolute(directory)
    for _ in range(20):
        before = _identity(directory)
        try:
            result = read()
        except Exception:
            recover(directory)
            if _identity(directory) == before:
                raise
        else:
            if _identity(directory) == before:
                return result
    raise ValueError(f"{directory} was replaced each time that it was read.")


def _identity(directory: Path) -> tuple[int, ...] | None:
    """What tells a folder from those that were at its place before."""
    try:
        status = os.stat(directory)
    except OSError:
        return None
    return status.st_dev, status.st_ino, status.st_mtime_ns
