"""Files and directories that are written whole or not at all."""

import contextlib
import os
import shutil
import tempfile
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path


def _synchronize_folder(folder: Path) -> None:
    """Makes the names in a folder durable: a rename is only safe on the disk once its folder is."""
    descriptor = os.open(folder, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


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


@contextlib.contextmanager
def atomic_write(path: Path) -> Iterator[Path]:
    """Gives a temporary path beside `path`; what was written there takes the place of `path` if the block succeeds.

    A file replaces an earlier one in one step. A folder must not exist before.

    Args:
        path: file or folder that shall come into being.

    Raises:
        OSError: with a message that says what is unharmed, if writing fails.

    Example:
        >>> with atomic_write(Path("weights.safetensors")) as temporary:
        ...     write_bytes(temporary, [content])
    """
    path.parent.mkdir(parents=True, exist_ok=True)
    temporary = path.with_name(f".{path.name}.{os.getpid()}.incomplete")
    try:
        yield temporary
        if temporary.is_dir():
            _synchronize_folder(temporary)
            if path.exists():
                raise FileExistsError(f"{path} exists already: does another process write to the same folder?")
        os.replace(temporary, path)
        _synchronize_folder(path.parent)
    except BaseException as error:
        remove(temporary)
        if isinstance(error, OSError) and error.errno is not None:
            raise OSError(
                error.errno, f"Could not write {path} ({error.strerror}). What was saved before is unharmed."
            ) from error
        raise


def remove(path: Path) -> None:
    """Removes a file or folder that may be absent. A folder gets another name first, so that no half is ever found."""
    if path.is_dir():
        if not path.name.endswith(".incomplete"):
            path = path.rename(path.with_name(f".{path.name}.incomplete"))
        shutil.rmtree(path, ignore_errors=True)
    else:
        path.unlink(missing_ok=True)


def remove_incomplete(folder: Path) -> None:
    """Removes what killed processes left half written in a folder."""
    for path in folder.glob(".*.incomplete"):
        remove(path)


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
    """Yields a new directory beside `directory` that takes its place when the block ends without an error.

    Whatever stops the writing (an error, a full disk, a kill), what was there before stays good. In the worst case, a
    kill between the two renames, `recover` puts it back.

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
    directory = Path(directory)
    recover(directory)
    is_free = not directory.exists() or (directory.is_dir() and not any(directory.iterdir()))
    if not is_free and not may_replace(directory):
        raise FileExistsError(f"{directory} exists and is no {what}: it will not be overwritten.")
    directory.parent.mkdir(parents=True, exist_ok=True)
    temporary = Path(tempfile.mkdtemp(prefix=f".{directory.name}.", dir=directory.parent))
    try:
        yield temporary
        temporary.chmod(0o755)  # mkdtemp makes directories that only their owner can read
        _exchange(temporary, directory)
    except BaseException:
        shutil.rmtree(temporary, ignore_errors=True)
        raise


def recover(directory: str | os.PathLike) -> None:
    """Puts back what a kill in the middle of a replacement has left beside its place; else does nothing.

    Args:
        directory: What is about to be read or written.
    """
    directory = Path(directory)
    old = _set_aside(directory)
    if not directory.exists() and old.is_dir():
        os.rename(old, directory)


def _set_aside(directory: Path) -> Path:
    return directory.with_name(f".{directory.name}.old")


def _exchange(temporary: Path, directory: Path) -> None:
    if not directory.exists():
        os.rename(temporary, directory)
        return
    old = _set_aside(directory)
    shutil.rmtree(old, ignore_errors=True)  # of a replacement that was killed after it was done
    os.rename(directory, old)
    try:
        os.rename(temporary, directory)
    except BaseException:
        os.rename(old, directory)
        raise
    shutil.rmtree(old, ignore_errors=True)
