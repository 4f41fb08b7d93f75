"""A preset directory: the configuration, the weights and the tokenizer of a trained task.

This module knows the files, not what is made of them: a task hands over the functions that write its parts.

`config.json` names the other files with their SHA-256. A save writes new files next to the old ones and then replaces
`config.json`, one rename: a reader sees the one version or the other, and a kill leaves the one or the other.
"""

import contextlib
import dataclasses
import hashlib
import json
import os
import re
import secrets
import shutil
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, BinaryIO

from zoo.storage.errors import quote
from zoo.storage.files import remove_incomplete, synchronize_all, workplace
from zoo.storage.h5 import H5Weights, open_h5
from zoo.storage.json_files import parse_json, read_bytes
from zoo.storage.locks import abandoned, locked, try_lock
from zoo.storage.tokenizer import CONFIG_FILE as TOKENIZER_FILE
from zoo.storage.tokenizer import TokenizerFiles, read_tokenizer
from zoo.storage.typed import to_dataclass

FORMAT_VERSION = 2
CONFIG_FILE = "config.json"
WEIGHTS_FILE = "model.weights.h5"
TOKENIZER_FOLDER = "tokenizer"

_MOST_CONFIG_BYTES = 2**24
# names of the parts of this module: those above, or with a number where these are taken
_PART = re.compile(r"model(-[0-9a-f]{8})?\.weights\.h5|tokenizer(-[0-9a-f]{8})?")
_SECONDS_OF_A_CHANGE = 30


@dataclasses.dataclass(frozen=True)
class PresetDescription:
    """What a task says about itself in `config.json` of a preset directory.

    Args:
        task: Name of the task.
        backbone: Configuration of the backbone, see `zoo.config.config_from_dict`.
        options: Arguments of the task besides backbone and tokenizer.
        parameter_count: Number of weights of the backbone.
    """

    task: str
    backbone: dict[str, Any]
    options: dict[str, Any]
    parameter_count: int


@dataclasses.dataclass(frozen=True)
class StoredFile:
    """A file of a preset directory.

    Args:
        file: Its path in the directory.
        bytes: Its size.
        sha256: Its SHA-256.
    """

    file: str
    bytes: int
    sha256: str


@dataclasses.dataclass(frozen=True)
class PresetFile(PresetDescription):
    """All of `config.json` of a preset directory.

    Args:
        weights: The file of the weights.
        tokenizer: The `tokenizer.json`; None where the task has none.
        replaced: Files and folders of the version before. They are removed as soon as nobody reads them.
        format_version: Version of this format.
    """

    weights: StoredFile
    tokenizer: StoredFile | None = None
    replaced: tuple[str, ...] = ()
    format_version: int = FORMAT_VERSION

    def parts(self) -> tuple[str, ...]:
        """Returns the names of what is in the directory besides `config.json`."""
        files = (self.weights, *((self.tokenizer,) if self.tokenizer else ()))
        return tuple(file.file.split("/")[0] for file in files)


@dataclasses.dataclass(frozen=True)
class Preset:
    """A preset directory that is open for reading.

    Args:
        path: Its `config.json`.
        description: What that says.
        weights: The weights.
        tokenizer: The files of the tokenizer; None where the task has none.
    """

    path: Path
    description: PresetDescription
    weights: H5Weights
    tokenizer: TokenizerFiles | None


def write_preset(
    directory: str | os.PathLike,
    description: PresetDescription,
    save_weights: Callable[[Path], None],
    save_tokenizer: Callable[[Path], None] | None = None,
) -> None:
    """Writes a preset directory, whole or not at all.

    The directory holds `config.json`, `model.weights.h5` and, where the task has a tokenizer, `tokenizer/`. Where a
    saved model is replaced, the names of its parts are taken: those of the new one then have a number. Other files in
    the directory are left alone. Readers and other writers are not disturbed; the last writer wins.

    Args:
        directory: Where to. A saved model in it is replaced.
        description: What `config.json` says.
        save_weights: Writes the weights to a file, whose name ends in `.weights.h5`.
        save_tokenizer: Writes the tokenizer to a folder.

    Raises:
        FileExistsError: If there is a file of this name, or a directory with a `config.json` that is not of a saved
            model.
        OSError: If something cannot be written; what was saved before is unharmed.
    """
    directory = Path(os.path.abspath(directory))
    _require_free(directory)
    is_new = not directory.exists()
    directory.mkdir(parents=True, exist_ok=True)
    try:
        remove_incomplete(directory)
        with workplace(directory, "preset") as place:
            save_weights(place / WEIGHTS_FILE)
            if save_tokenizer is not None:
                save_tokenizer(place / TOKENIZER_FOLDER)
            synchronize_all(place)
            with locked(directory):
                _require_free(directory)
                _switch(directory, place, description)
    except BaseException:
        if is_new:
            with contextlib.suppress(OSError):  # another writer has put something there
                directory.rmdir()
        raise


def _switch(directory: Path, place: Path, description: PresetDescription) -> None:
    old = _read_config(directory)[0] if (directory / CONFIG_FILE).exists() else None
    moved = {}
    try:
        for part in (WEIGHTS_FILE, TOKENIZER_FOLDER):
            if (place / part).exists():
                name = _free_name(directory, part)
                os.rename(place / part, directory / name)
                moved[part] = name
        before = () if old is None else dict.fromkeys((*old.replaced, *old.parts()))
        replaced = tuple(name for name in before if name not in moved.values())
        new = PresetFile(
            **{field.name: getattr(description, field.name) for field in dataclasses.fields(description)},
            weights=_stored(directory, moved[WEIGHTS_FILE]),
            tokenizer=_stored(directory, f"{moved[TOKENIZER_FOLDER]}/{TOKENIZER_FILE}")
            if TOKENIZER_FOLDER in moved
            else None,
            replaced=replaced,
        )
        values = {"format_version": FORMAT_VERSION, **dataclasses.asdict(new)}
        (place / CONFIG_FILE).write_text(json.dumps(values, indent=2) + "\n", encoding="utf-8")
        synchronize_all(place)
        os.replace(place / CONFIG_FILE, directory / CONFIG_FILE)
    except BaseException:
        for name in moved.values():
            _remove_part(directory / name)
        raise
    for name in replaced:
        _remove_part(directory / name)


def _free_name(directory: Path, part: str) -> str:
    if not os.path.lexists(directory / part):
        return part
    stem, dot, ending = part.partition(".")
    return f"{stem}-{secrets.token_hex(4)}{dot}{ending}"


def _remove_part(path: Path) -> None:
    """Removes a part that nobody reads. One that is being read is left: the next save tries again."""
    if path.is_symlink() or not path.is_dir():
        with abandoned(path) as is_free:
            if is_free:
                path.unlink(missing_ok=True)
    else:
        shutil.rmtree(path, ignore_errors=True)  # a tokenizer is in memory once it is open


def _stored(directory: Path, name: str) -> StoredFile:
    with open(directory / name, "rb") as file:
        return StoredFile(name, os.fstat(file.fileno()).st_size, hashlib.file_digest(file, "sha256").hexdigest())


def _require_free(directory: Path) -> None:
    is_taken = directory.exists() and not directory.is_dir()
    if (directory / CONFIG_FILE).exists():
        # the configuration of another library has the same file name
        try:
            _read_config(directory)
        except ValueError:
            is_taken = True
    if is_taken:
        raise FileExistsError(f"{directory} exists and is no saved model: it will not be overwritten.")


@contextlib.contextmanager
def open_preset(directory: str | os.PathLike) -> Iterator[Preset]:
    """Opens what `write_preset` wrote: one version, which stays there until the block ends.

    Args:
        directory: The directory.

    Raises:
        ValueError: If the directory is no saved model, or a file is not the one that was saved.

    Example:

    >>> with open_preset("runs/model") as preset:
    ...     print(preset.description.task)
    TextClassifier
    """
    directory = Path(directory)
    end = time.monotonic() + _SECONDS_OF_A_CHANGE
    with contextlib.ExitStack() as stack:
        while True:
            config, content = _read_config(directory)
            try:
                file = stack.enter_context(_open_stored(directory, config.weights))
                tokenizer = None
                if config.tokenizer is not None:
                    _open_stored(directory, config.tokenizer).close()
                    tokenizer = read_tokenizer((directory / config.tokenizer.file).parent)
                    if tokenizer.sha256 != config.tokenizer.sha256:
                        raise ValueError(f"{tokenizer.path} is not the file that was saved.")
                if os.fstat(file.fileno()).st_nlink:
                    break
            except (OSError, ValueError):
                stack.close()
                # another process has replaced it meanwhile
                if time.monotonic() > end or _content(directory) == content:
                    raise
            stack.close()
        yield Preset(directory / CONFIG_FILE, config, open_h5(directory / config.weights.file), tokenizer)


def _open_stored(directory: Path, stored: StoredFile) -> BinaryIO:
    """Opens a file, with a lock that keeps writers from removing it, and checks that it is the one that was saved."""
    path = directory / stored.file
    try:
        file = open(path, "rb")
    except OSError as error:
        raise ValueError(f"{path}, named in {CONFIG_FILE}, is missing: {error.strerror}.") from error
    try:
        with contextlib.suppress(OSError):
            try_lock(file.fileno(), shared=True)
        size = os.fstat(file.fileno()).st_size
        # the size first: it is known at once
        digest = hashlib.file_digest(file, "sha256").hexdigest() if size == stored.bytes else None
        if digest != stored.sha256:
            raise ValueError(
                f"{path} is damaged: it is not the file that was saved. It has {size} bytes"
                + (f" with SHA-256 {digest}" if digest else "")
                + f"; bytes and sha256 of {stored.file} in {CONFIG_FILE} are {stored.bytes} and "
                + f"{quote(stored.sha256, most=64, plain=True)}."
            )
    except BaseException:
        file.close()
        raise
    return file


def read_description(directory: str | os.PathLike) -> PresetDescription:
    """Returns the checked content of `config.json` of a saved model.

    Args:
        directory: The directory.

    Raises:
        ValueError: If the file is missing, is not JSON, is of another format version, or a value is not of its type.
    """
    return _read_config(Path(directory))[0]


def _content(directory: Path) -> bytes:
    path = directory / CONFIG_FILE
    if not path.is_file():
        raise ValueError(f"{directory} is no saved model: it has no {CONFIG_FILE}.")
    return read_bytes(path, _MOST_CONFIG_BYTES)


def _read_config(directory: Path) -> tuple[PresetFile, bytes]:
    path, content = directory / CONFIG_FILE, _content(directory)
    values = parse_json(content, str(path))
    version = values.get("format_version") if isinstance(values, dict) else None
    if version != FORMAT_VERSION:
        raise ValueError(
            f"{path} has format_version {quote(version)}; this version of the library reads {FORMAT_VERSION}."
        )
    config = to_dataclass(PresetFile, values, str(path))
    names = {"weights.file": config.weights.file.split("/")}
    if config.tokenizer is not None:
        names["tokenizer.file"] = config.tokenizer.file.split("/")
    # a downloaded model must not point outside its directory, nor have other files removed
    for key, (name, *rest) in (*names.items(), *((f"replaced[{i}]", [n]) for i, n in enumerate(config.replaced))):
        shown = quote("/".join([name, *rest]))
        if not _PART.fullmatch(name) or rest != [TOKENIZER_FILE] * (key == "tokenizer.file"):
            raise ValueError(f"{path}: {key} must be the name of a part, such as {WEIGHTS_FILE!r}, got {shown}.")
        if (directory / name).is_symlink() and (directory / name).is_dir():
            raise ValueError(f"{path}: {key} must be in this directory, {quote(name)} is a link.")
    return config, content
