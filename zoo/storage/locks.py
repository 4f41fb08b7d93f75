"""Locks on files and folders, which end with the process that holds them, however it ends."""

import contextlib
import os
import time
from collections.abc import Iterator
from pathlib import Path

try:
    import fcntl
except ImportError:  # Windows
    fcntl = None

# where a file system has no locks, what nobody has touched for so long is nobody's
UNTOUCHED_SECONDS = 24 * 3600


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
def abandoned(path: Path) -> Iterator[bool]:
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
