"""Writing files so that a kill or a full disk leaves the previous content whole."""

from __future__ import annotations

import os
import tempfile
from pathlib import Path


def write_text_atomically(path: str | os.PathLike, text: str) -> None:
    """Write a text file completely or not at all.

    The text goes to a temporary file in the same folder, is flushed to the disk and then takes the place of `path`
    in one step. Whatever happens before that step, a reader sees the previous content.

    Args:
        path: File to write. Its folder must exist.
        text: New content, written as UTF-8 with line ends as they are.

    Raises:
        OSError: The disk is full, the folder is missing or may not be written to.

    Example:

    >>> write_text_atomically("config.yaml", "seed: 1\\n")
    """
    path = Path(path)
    descriptor, temporary = tempfile.mkstemp(prefix=f".{path.name}.", suffix=".tmp", dir=path.parent)
    try:
        with os.fdopen(descriptor, "w", encoding="utf-8", newline="") as stream:
            stream.write(text)
            stream.flush()
            os.fsync(stream.fileno())
        # mkstemp makes files that only the owner can read; a run folder is to be as readable as any other folder.
        os.chmod(temporary, 0o666 & ~_umask())
        os.replace(temporary, path)
    except BaseException:
        Path(temporary).unlink(missing_ok=True)
        raise


def _umask() -> int:
    """The process's umask, which can only be read by setting it."""
    mask = os.umask(0)
    os.umask(mask)
    return mask
