"""Files that another file names: plain names in its own folder, and for what we wrote the size and SHA-256."""

import contextlib
import dataclasses
import hashlib
import os
from pathlib import Path
from typing import BinaryIO

from zoo.storage.errors import quote, quote_key
from zoo.storage.files import try_lock


@dataclasses.dataclass(frozen=True)
class StoredFile:
    """A file that a configuration names.

    Args:
        file: Its path in the folder of the configuration.
        bytes: Its size.
        sha256: Its SHA-256.
    """

    file: str
    bytes: int
    sha256: str

    @classmethod
    def of(cls, folder: Path, name: str) -> "StoredFile":
        """Returns the description of a file.

        Args:
            folder: The folder.
            name: Path of the file in it.
        """
        with open(folder / name, "rb") as file:
            return cls(name, os.fstat(file.fileno()).st_size, hashlib.file_digest(file, "sha256").hexdigest())

    def open(self, folder: Path, source: str) -> BinaryIO:
        """Opens the file, with a lock that keeps writers from removing it, if it is the one that was saved.

        Args:
            folder: The folder.
            source: Name of the configuration, for errors.

        Raises:
            FileNotFoundError: If it is missing or no ordinary file.
            ValueError: If it is another one.
        """
        path = folder / self.file
        if not path.is_file():  # a pipe would be waited for
            raise FileNotFoundError(f"{path}, named in {source}, is missing.")
        file = open(path, "rb")
        try:
            with contextlib.suppress(OSError):
                try_lock(file.fileno(), shared=True)
            size = os.fstat(file.fileno()).st_size
            # the size first: it is known at once
            digest = hashlib.file_digest(file, "sha256").hexdigest() if size == self.bytes else None
            if digest != self.sha256:
                raise ValueError(
                    f"{path} is damaged: it is not the file that was saved. It has {size} bytes"
                    + (f" with SHA-256 {digest}" if digest else "")
                    + f"; bytes and sha256 of {quote_key(self.file)} in {source} are {self.bytes} and "
                    + f"{quote_key(self.sha256)}."
                )
            file.seek(0)
        except BaseException:
            file.close()
            raise
        return file


def file_inside(directory: Path, name: str, key: str) -> Path:
    """Returns the path of a file that another file names.

    Args:
        directory: The folder of both.
        name: The name in the other file.
        key: File and key of the name, for the error message.

    Raises:
        ValueError: If it is not a plain name, or there is no such file.
    """
    if not is_plain(name) or not (directory / name).is_file():
        raise ValueError(f"{key} must be the name of a file in {directory}, got {quote(name)}.")
    return directory / name


def folder_inside(directory: Path, name: str, key: str) -> Path:
    """Returns the path of a folder that a file names.

    Args:
        directory: The parent folder.
        name: The name in the file.
        key: File and key of the name, for the error message.

    Raises:
        ValueError: If it is not a plain name, there is no such folder, or it is a link to another place.
    """
    path = directory / name if is_plain(name) else None
    # files may be links, those of the hub's cache are; folders there never are
    if path is None or path.is_symlink() or not path.is_dir():
        raise ValueError(f"{key} must be the name of a folder in {directory}, got {quote(name)}.")
    return path


def is_plain(name: str) -> bool:
    """Whether a name is that of a file in the same folder, on every operating system.

    Args:
        name: The name.
    """
    return name not in ("", ".", "..") and not set(name) & set("/\\\0") and len(name) <= 255
