"""Folders of a user to which nobody else may write, for caches of what is run."""

import os
import stat
from pathlib import Path


def why_not_private(folder: Path) -> str | None:
    """Returns why others may put something into a folder, and what to do; None if they may not, or it does not exist.

    Args:
        folder: The folder.

    Example:

    >>> why_not_private(Path("/tmp"))
    'belongs to the user 0: choose another folder'
    """
    if not folder.exists() or not hasattr(os, "getuid"):  # Windows has no such modes
        return None
    status = folder.stat()
    if status.st_uid != os.getuid():
        return f"belongs to the user {status.st_uid}: choose another folder"
    if status.st_mode & 0o022:
        return f"has the mode {stat.S_IMODE(status.st_mode):o}: `chmod go-w` makes it so if all in it is yours"
    return None
