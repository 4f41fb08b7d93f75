"""Folders of models that servers poll: `NAME/VERSION/saved_model.pb`, where the version is a number."""

import os
import re
from pathlib import Path

# as TensorFlow Serving reads the names of folders; what has another name is no version
_NUMBER = re.compile(r"[0-9]{1,18}")


def versions(directory: str | os.PathLike[str]) -> dict[int, Path]:
    """Returns the versions of a model by their numbers, in ascending order.

    Args:
        directory: The folder of the model. If it does not exist, there are no versions.

    Example:

    >>> versions("models/dates")
    {1: PosixPath('models/dates/1'), 2: PosixPath('models/dates/2')}
    """
    directory = Path(directory)
    if not directory.is_dir():
        return {}
    found = (path for path in directory.iterdir() if _NUMBER.fullmatch(path.name) and path.is_dir())
    return {int(path.name): path for path in sorted(found, key=lambda path: int(path.name))}


def new_version(directory: str | os.PathLike[str], version: int | None = None) -> Path:
    """Returns the folder of a version that does not exist yet, for `export`.

    A server loads a version as soon as its folder has this name. `export` renames the folder when it is complete.

    Args:
        directory: The folder of the model. Its name is that of the model.
        version: Number of the version, at least 1. None for one more than the newest.

    Raises:
        ValueError: If the number is out of range.
        FileExistsError: If the version exists, because a server would not read it again.

    Example:

    >>> model.export(zoo.export.new_version("models/dates"))
    """
    known = versions(directory)
    if version is None:
        version = max(known, default=0) + 1
    if isinstance(version, bool) or not isinstance(version, int) or not 1 <= version < 10**18:
        raise ValueError(f"version must be an integer from 1 to 10**18 - 1, got {version!r}.")
    if version in known:
        raise FileExistsError(
            f"{known[version]} exists, and servers do not read a version again: leave version out for "
            f"{max(known) + 1}, or remove it."
        )
    return Path(directory) / str(version)


def newest_version(directory: str | os.PathLike[str]) -> Path:
    """Returns the folder of the newest version of a model.

    Args:
        directory: The folder of the model.

    Raises:
        FileNotFoundError: If it has no version.

    Example:

    >>> served = tf.saved_model.load(zoo.export.newest_version("models/dates"))
    """
    known = versions(directory)
    if not known:
        raise FileNotFoundError(
            f"{os.fspath(directory)} holds no version of a model, a folder with a number as its name."
        )
    return known[max(known)]
