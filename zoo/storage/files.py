"""Files that are written whole or not at all, and the locks that tell what is still being written.

What is written comes into being in a hidden folder next to its place, `.NAME.xxxxxxxx.incomplete`, and is then renamed.
The writer holds a lock on that folder. So the next writer can tell what a killed process has left from what another one
is writing just now, and removes the former.
"""

import contextlib
import os
import re
import shutil
import tempfile
import time
from collections.abc import Iterable, Iterator
from pathlib import Path

from zoo.storage.processes import is_first_process

try:
    import fcntl
except ImportError:  # Windows
    fcntl = None

INCOMPLETE = ".incomplete"
# what a replaced folder is called in the temporary folder of the one that replaces it
SET_ASIDE = "old"
# where a file system has no locks, what nobody has touched for so long is nobody's
UNTOUCHED_SECONDS = 24 * 3600


def write_bytes(path: Path, blocks: Iterable[bytes]) -> None:
    """Writes the blocks to a file and waits until they are on the disk.

    Args:
        path: File to write.
        blocks: Contents, one after the other.

    Raises:
        OSError: If the disk is full or the file cannot be written.

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
def temporary_folder(folder: Path, name: str) -> Iterator[Path]:
    """Gives a hidden folder to write in; it is gone when the block ends.

    Args:
        folder: Where to make it, on the file system of what it is for.
        name: What it is for, a part of its name.

    Example:

    >>> with temporary_folder(Path("runs"), "model") as place:
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
        if not (place / SET_ASIDE).exists():  # else it could not be put back: `recover` will
            shutil.rmtree(place, ignore_errors=True)
        os.close(descriptor)


@contextlib.contextmanager
def atomic_write(path: Path) -> Iterator[Path]:
    """A context with a temporary path, which replaces `path` if the block succeeds.

    A file replaces an earlier one in one step. A folder must not exist before. If several processes train together,
    only the first one writes; what the others write is discarded.

    Args:
        path: File or folder to create.

    Raises:
        OSError: If writing fails. The message says what is intact.

    Example:

    >>> with atomic_write(Path("weights.safetensors")) as temporary:
    ...     write_bytes(temporary, [content])
    """
    path = absolute_path(path)
    if not is_first_process():
        with tempfile.TemporaryDirectory() as place:
            yield Path(place) / path.name
        return
    path.parent.mkdir(parents=True, exist_ok=True)
    remove_incomplete(path.parent, path.name)
    try:
        with temporary_folder(path.parent, path.name) as place:
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
    """Removes a file or folder that may be absent. A folder is renamed first, so that it is never found incomplete.

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
    """Removes incomplete files that killed processes left in a folder, but none that another process is writing.

    Args:
        folder: The folder.
        name: Name of the file or folder that they were writing; None for any.
    """
    for place in temporary_folders(folder, name):
        with locked_if_free(place) as is_free:
            if is_free:
                put_back(place)
                remove(place)


def put_back(place: Path) -> None:
    """Gives what was set aside for a folder that never came its name again.

    Args:
        place: The temporary folder of the writer of the new folder.
    """
    directory = place.with_name(place.name[1:].rsplit(".", 2)[0])
    if (place / SET_ASIDE).is_dir() and not directory.exists():
        with contextlib.suppress(OSError):  # another process was faster
            os.rename(place / SET_ASIDE, directory)


def temporary_folders(folder: Path, name: str | None) -> list[Path]:
    """Returns the temporary folders of writers in a folder.

    Args:
        folder: The folder.
        name: What they are for; None for anything.
    """
    what = ".+" if name is None else re.escape(name)
    # with the letters of `temporary_folder`, or the process that removes it
    pattern = re.compile(rf"\.{what}\.([a-z0-9_]{{8}}|[0-9]+){re.escape(INCOMPLETE)}", re.DOTALL)
    try:
        names = os.listdir(folder)
    except FileNotFoundError:
        return []
    return [folder / entry for entry in sorted(names) if pattern.fullmatch(entry) and (folder / entry).is_dir()]


def write_text_atomically(path: str | os.PathLike[str], text: str) -> None:
    """Writes a text file completely or not at all.

    Args:
        path: File to write. Its folder is created if it does not exist.
        text: New content, written as UTF-8 with unchanged line ends.

    Raises:
        OSError: If the disk is full or the file cannot be written. An earlier file of that name is intact.

    Example:

    >>> write_text_atomically("config.yaml", "seed: 1\\n")
    """
    with atomic_write(Path(path)) as temporary:
        write_bytes(temporary, [text.encode("utf-8")])


def absolute_path(path: str | os.PathLike[str]) -> Path:
    """Returns a path that has a name.

    Args:
        path: The path, perhaps `"."`.
    """
    # "." and ".." have no name of their own; links stay as they are
    return Path(os.path.abspath(path))


def try_lock(descriptor: int, shared: bool = False) -> bool:
    """Locks an open file or folder unless another process has; returns whether it is locked.

    Args:
        descriptor: The open file. The lock ends when it is closed, at the latest with the process.
        shared: Whether others may hold such a lock at the same time.

    Raises:
        OSError: If the file system has no locks.
    """
    if fcntl is None:
        raise OSError("This system has no locks on files.")
    try:
        fcntl.flock(descriptor, (fcntl.LOCK_SH if shared else fcntl.LOCK_EX) | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    return True


@contextlib.contextmanager
def locked(folder: Path) -> Iterator[None]:
    """Waits for its turn to change what is in a folder; does nothing where the file system has no locks.

    Args:
        folder: The folder. Others that use this function wait, too; nobody else is kept out.
    """
    descriptor = os.open(folder, os.O_RDONLY)
    try:
        if fcntl is not None:
            with contextlib.suppress(OSError):
                fcntl.flock(descriptor, fcntl.LOCK_EX)
        yield
    finally:
        os.close(descriptor)


@contextlib.contextmanager
def locked_if_free(path: Path) -> Iterator[bool]:
    """Whether nobody holds a lock on a file or folder; if so it is locked inside the block.

    Args:
        path: The file or folder. One that is gone is somebody else's.
    """
    try:
        descriptor = os.open(path, os.O_RDONLY)
    except OSError:
        yield False
        return
    try:
        try:
            is_free = try_lock(descriptor)
        except OSError:
            is_free = time.time() - os.fstat(descriptor).st_mtime > UNTOUCHED_SECONDS
        yield is_free
    finally:
        os.close(descriptor)
