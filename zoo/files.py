"""Directories that are written whole or not at all."""

import contextlib
import os
import shutil
import tempfile
from collections.abc import Callable, Iterator
from pathlib import Path


@contextlib.contextmanager
def written_whole(directory: str | os.PathLike, may_replace: Callable[[Path], bool], what: str) -> Iterator[Path]:
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

    >>> with written_whole("runs/model", lambda old: (old / "config.json").exists(), "saved model") as folder:
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
