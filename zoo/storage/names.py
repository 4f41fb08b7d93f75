"""Names that a file gives to other files: plain ones in its own folder, whatever the file says."""

from pathlib import Path

from zoo.storage.errors import quote


def file_inside(directory: Path, name: str, key: str) -> Path:
    """Returns the path of a file that another file names.

    Args:
        directory: The folder of both.
        name: What the other file calls it.
        key: File and key of the name, for the error.

    Raises:
        ValueError: If it is no plain name, or there is no such file.
    """
    if not _is_plain(name) or not (directory / name).is_file():
        raise ValueError(f"{key} must be the name of a file in {directory}, got {quote(name)}.")
    return directory / name


def folder_inside(directory: Path, name: str, key: str) -> Path:
    """Returns the path of a folder that a file names.

    Args:
        directory: The folder that it is in.
        name: What the file calls it.
        key: File and key of the name, for the error.

    Raises:
        ValueError: If it is no plain name, there is no such folder, or it is a link to elsewhere.
    """
    path = directory / name if _is_plain(name) else None
    # files may be links, those of the hub's cache are; folders there never are
    if path is None or path.is_symlink() or not path.is_dir():
        raise ValueError(f"{key} must be the name of a folder in {directory}, got {quote(name)}.")
    return path


def _is_plain(name: str) -> bool:
    return name not in ("", ".", "..") and not set(name) & set("/\\\0") and len(name) <= 255
