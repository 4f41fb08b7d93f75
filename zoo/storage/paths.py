"""Paths that the layers below can read and write, checked before the work whose results they are to hold."""

import os
from pathlib import Path

# what a hidden folder adds to the name that is written, see `zoo.storage.files`
_MOST_NAME_BYTES = 255 - len("..xxxxxxxx.incomplete")
_MOST_PATH_BYTES = os.pathconf("/", "PC_PATH_MAX") if hasattr(os, "pathconf") else 4096
# files in it, the deepest being parts of the weights of an export that is being written
_ROOM_BYTES = 256
# of a pattern of file names, which TensorFlow makes of the path of a SavedModel; others stand for themselves, too
_PATTERN = ("[", "\\")


def check_path(path: str | os.PathLike[str], name: str, *, saved_model: bool = False) -> None:
    """Raises an error for a path at which a file or folder cannot be written as a whole, or not be read again.

    Args:
        path: The path. It need not exist.
        name: The argument, for the error.
        saved_model: Whether TensorFlow is to load a SavedModel from there. It takes the path for a pattern.

    Raises:
        ValueError: If it is too long, or has a `[` or a backslash for a SavedModel.

    Example:

    >>> check_path("runs/dates", "run_folder", saved_model=True)
    """
    whole = Path(os.path.abspath(path))
    size, length = len(os.fsencode(whole.name)), len(os.fsencode(whole))
    if size > _MOST_NAME_BYTES:
        raise ValueError(f"{name} must end with a name of at most {_MOST_NAME_BYTES} bytes, got one of {size} bytes.")
    # the export of a run has its name once more
    most = _MOST_PATH_BYTES - _ROOM_BYTES - size
    if length > most:
        raise ValueError(f"{name} must be a path of at most {most} bytes from the root on, got one of {length} bytes.")
    if saved_model and any(character in part for part in whole.parts[1:] for character in _PATTERN):
        raise ValueError(
            f"{name} must have neither '[' nor a backslash, from the root on: TensorFlow cannot load a SavedModel from "
            f"there, got {str(whole)!r}. Choose another path."
        )
