"""What a command writes at its end, checked at its beginning."""

from __future__ import annotations

import os
from pathlib import Path

import zoo
from recipes.common.errors import ConfigError, errors_of, shown


def check_place(path: str | os.PathLike[str], key: str, *, saved_model: bool = False, otherwise: str = "") -> None:
    """Checks a path by `zoo.storage.check_path`, before the work whose result it is to hold.

    Args:
        path, saved_model: See there.
        key: The key that names it.
        otherwise: What else one can do if no SavedModel can be loaded from there.

    Raises:
        ConfigError: If nothing can be written there, or read again.

    Example:

    >>> check_place("models/dates", "output", saved_model=True)
    """
    for needed, advice in ((False, ""), (saved_model, otherwise)):
        try:
            zoo.storage.check_path(path, key, saved_model=needed)
        except ValueError as error:
            raise ConfigError(str(error).removesuffix(".") + advice) from error


def check_output_file(path: str, suffix: str = "") -> None:
    """Checks that a file can be written, before the work whose result it is to hold.

    Args:
        path: The file. Its folder is made when it is written.
        suffix: How its name must end; empty for any end.

    Raises:
        ConfigError: If it has another end, is a folder, or its folder cannot be looked at or written to.

    Example:

    >>> check_output_file("runs/page.html", ".html")
    """
    file = Path(path)
    if not file.name.endswith(suffix):
        raise ConfigError(f"output must end with {suffix}, got {shown(path, 200)}")
    check_place(file, "output")
    with errors_of("output"):  # a name that is too long, a folder that may not be looked into
        is_folder = file.is_dir()
        folder = next(parent for parent in Path(os.path.abspath(file)).parents if parent.exists())
    if is_folder:
        raise ConfigError(f"output must be a file, got {shown(path, 200)}, which is a folder")
    if not folder.is_dir() or not os.access(folder, os.W_OK | os.X_OK):
        what = "not writable" if folder.is_dir() else "not a folder"
        raise ConfigError(
            f"output must be in a folder that can be written to, got {shown(path, 200)}: {folder} is {what}"
        )
