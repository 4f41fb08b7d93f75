"""Files of public repositories: found in a folder, or downloaded once and checked."""

from __future__ import annotations

import gzip
import hashlib
import os
import zlib
from pathlib import Path
from typing import NamedTuple

import pooch
import requests

from recipes.common.errors import DataError

DATA_FOLDER_VARIABLE = "ZOO_DATA"
CACHE_FOLDER_VARIABLE = "ZOO_CACHE"
SOURCE_URL = "https://raw.githubusercontent.com/{repository}/{commit}/{path}"
_TIMEOUT_SECONDS = 30


class RemoteFile(NamedTuple):
    """A file of a public repository at a fixed commit.

    `name` is its path below the data folder and the cache, `sha256` the checksum of its content.
    """

    name: str
    sha256: str
    repository: str
    commit: str
    path: str

    @property
    def url(self) -> str:
        """Where the file is downloaded from."""
        return SOURCE_URL.format(repository=self.repository, commit=self.commit, path=self.path)


def fetch(file: RemoteFile) -> Path:
    """A file of a data set on this machine, downloaded if need be.

    It is looked for below the folder that the environment variable ZOO_DATA names, as it is or compressed (its name
    with `.gz` at the end), then in the cache (ZOO_CACHE, by default the user's cache folder), then downloaded into the
    cache. The SHA-256 of its content is checked wherever it comes from.

    Args:
        file: The file.

    Returns:
        Its path.

    Raises:
        DataError: The file in ZOO_DATA or at the source is another one than it should be, or it cannot be downloaded;
            the message says where to put it.

    Example:

    >>> fetch(TATOEBA_EN_FR).name
    'fra-eng.zip'
    """
    data_folder = os.environ.get(DATA_FOLDER_VARIABLE)
    if data_folder:
        for path in (Path(data_folder, file.name), Path(data_folder, file.name + ".gz")):
            if not path.exists():
                continue
            sha256 = _sha256(path, compressed=path.name != Path(file.name).name)
            if sha256 != file.sha256:
                raise DataError(
                    f"{path} has the SHA-256 {sha256}, expected {file.sha256}: it is damaged or another version; "
                    f"replace it by {file.url} or remove it to have it downloaded"
                )
            return path
    return _download(file)


def _sha256(path: Path, compressed: bool) -> str:
    try:
        with gzip.open(path) if compressed else open(path, "rb") as stream:
            return hashlib.file_digest(stream, "sha256").hexdigest()
    except (EOFError, gzip.BadGzipFile, zlib.error) as error:
        raise DataError(f"{path}: the compressed file is damaged: {error}") from error


def _download(file: RemoteFile) -> Path:
    cache = Path(os.environ.get(CACHE_FOLDER_VARIABLE) or pooch.os_cache("keras_transformer_zoo"))
    path = cache / file.name
    if not path.exists():
        print(f"downloading {file.url}")
    by_hand = (
        f"put that file at {file.name} below a folder of your choice and name the folder in the environment variable "
        f"{DATA_FOLDER_VARIABLE}"
    )
    pooch.get_logger().setLevel("WARNING")
    try:
        pooch.retrieve(
            file.url,
            known_hash=f"sha256:{file.sha256}",
            fname=path.name,
            path=path.parent,
            downloader=pooch.HTTPDownloader(timeout=_TIMEOUT_SECONDS),
        )
    except requests.exceptions.RequestException as error:
        raise DataError(f"cannot download {file.url}: {error}\n{by_hand}") from error
    except OSError as error:
        raise DataError(f"cannot store {file.url} in {cache}: {error}\n{by_hand}") from error
    except ValueError as error:
        # pooch's word for a wrong checksum; it keeps nothing of the file.
        raise DataError(f"{file.url} is not the file that it was, or arrived damaged: {error}\n{by_hand}") from error
    return path
