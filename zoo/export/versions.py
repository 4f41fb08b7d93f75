"""Folders of models as servers poll them: `NAME/VERSION/saved_model.pb`, with versions that are numbers."""

import os
import re
from pathlib import Path

# as TensorFlow Serving reads the names of folders; what has another name is no version
_NUMBER = re.compile(r"[0-9]{1,18}")


def versions(directory: str | os.PathLike) -> dict[int, Path]:
    """Returns the versions of a model by their numbers, in ascending order.

    Args:
        directory: The folder of the model; there are no versions where it does not exist.

    Example:

    >>> versions("models/dates")
    {1: PosixPath('models/dates/1'), 2: PosixPath('models/dates/2')}
    """
    directory = Path(directory)
    if not directory.is_dir():
        return {}
    found = (path for path in directory.iterdir() if _NUMBER.fullmatch(path.name) and path.is_dir())
    return {int(path.name): path for path in sorted(found, key=lambda path: int(path.name))}


def new_version(directory: str | os.PathLike, version: int | None = None) -> Path:
    """Returns the folder of a version that does not exist yet, for `export`.

    A server takes the version up as soon as its folder has this name, which `export` gives it when it is whole.

    Args:
        directory: The folder of the model; its name is that of the model.
        version: Number of the version, at least 1. Default one more than the newest.

    Raises:
        ValueError: If the number is out of range.
        FileExistsError: If there is such a version: a server would not read it again.

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


def newest_version(directory: str | os.PathLike) -> Path:
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
