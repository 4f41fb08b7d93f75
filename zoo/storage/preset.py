"""A preset directory: the configuration, the weights and the tokenizer of a trained task.

This module knows the files, not what is made of them: a task hands over the functions that write its parts.

`config.json` names the other files with their SHA-256. A save writes new files next to the old ones and then replaces
`config.json`, one rename: a reader sees the one version or the other, and a kill leaves the one or the other.
"""

import contextlib
import dataclasses
import json
import os
import secrets
import time
from collections.abc import Callable, Iterator
from pathlib import Path

from zoo.storage.files import locked, locked_if_free, remove_incomplete, synchronize_all, temporary_folder
from zoo.storage.h5 import H5Weights, open_h5
from zoo.storage.preset_format import (
    CONFIG_FILE,
    FORMAT_VERSION,
    TOKENIZER_FOLDER,
    WEIGHTS_FILE,
    PresetDescription,
    PresetFile,
    preset_content,
    read_preset_file,
)
from zoo.storage.stored_file import StoredFile
from zoo.storage.tokenizer import CONFIG_FILE as TOKENIZER_FILE
from zoo.storage.tokenizer import TokenizerFiles, read_tokenizer, remove_tokenizer

_SECONDS_OF_A_CHANGE = 30
# SHA-256 of weights that this process has written
_OWN_WEIGHTS: set[str] = set()


@dataclasses.dataclass(frozen=True)
class Preset:
    """A preset directory that is open for reading.

    Args:
        path: Its `config.json`.
        description: The content of `config.json`.
        weights: The weights; None if they were not asked for.
        tokenizer: The files of the tokenizer; None if the task has no tokenizer.
    """

    path: Path
    description: PresetDescription
    weights: H5Weights | None
    tokenizer: TokenizerFiles | None


def write_preset(
    directory: str | os.PathLike[str],
    description: PresetDescription,
    save_weights: Callable[[Path], None],
    save_tokenizer: Callable[[Path], None] | None = None,
) -> None:
    """Writes a preset directory, whole or not at all.

    The directory holds `config.json`, `model.weights.h5` and, if the task has a tokenizer, `tokenizer/`. If a saved
    model is replaced, the names of the new parts have a number, because the old names are in use. Other files in the
    directory are kept. Readers and other writers are not disturbed, and the last writer wins.

    Args:
        directory: The directory to write. A saved model in it is replaced.
        description: The content of `config.json`.
        save_weights: Writes the weights to a file whose name ends in `.weights.h5`.
        save_tokenizer: Writes the tokenizer to a folder.

    Raises:
        FileExistsError: If there is a file of this name, or a directory whose `config.json` is not that of a saved
            model.
        OSError: If something cannot be written. The previous model is intact.
    """
    directory = Path(os.path.abspath(directory))
    _require_free(directory)
    is_new = not directory.exists()
    directory.mkdir(parents=True, exist_ok=True)
    try:
        remove_incomplete(directory)
        with temporary_folder(directory, "preset") as place:
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
    old = read_preset_file(directory)[0] if (directory / CONFIG_FILE).exists() else None
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
            weights=StoredFile.of(directory, moved[WEIGHTS_FILE]),
            tokenizer=StoredFile.of(directory, f"{moved[TOKENIZER_FOLDER]}/{TOKENIZER_FILE}")
            if TOKENIZER_FOLDER in moved
            else None,
            replaced=replaced,
        )
        values = {"format_version": FORMAT_VERSION, **dataclasses.asdict(new)}
        # what is not finite would not be read again
        (place / CONFIG_FILE).write_text(json.dumps(values, indent=2, allow_nan=False) + "\n", encoding="utf-8")
        synchronize_all(place)
        os.replace(place / CONFIG_FILE, directory / CONFIG_FILE)
        _OWN_WEIGHTS.add(new.weights.sha256)
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
    """Removes a part that is not being read. One that is stays: the next save tries again."""
    if path.is_symlink() or not path.is_dir():
        with locked_if_free(path) as is_free:
            if is_free:
                path.unlink(missing_ok=True)
    else:
        remove_tokenizer(path)  # it is in memory once it is open


def _require_free(directory: Path) -> None:
    is_taken = directory.exists() and not directory.is_dir()
    if (directory / CONFIG_FILE).exists():
        # the configuration of another library has the same file name
        try:
            read_preset_file(directory)
        except ValueError:
            is_taken = True
    if is_taken:
        raise FileExistsError(f"{directory} exists and is no saved model: it will not be overwritten.")


@contextlib.contextmanager
def open_preset(directory: str | os.PathLike[str], weights: bool = True) -> Iterator[Preset]:
    """A context with one version of a preset directory, which is kept until the block ends.

    Args:
        directory: The directory.
        weights: Whether to open the weights too.

    Raises:
        ValueError: If the directory is not a saved model, or a file is not the one that was saved.
        FileNotFoundError: If a file is missing.

    Example:

    >>> with open_preset("runs/model") as preset:
    ...     print(preset.description.task)
    TextClassifier
    """
    directory = Path(directory)
    end = time.monotonic() + _SECONDS_OF_A_CHANGE
    with contextlib.ExitStack() as stack:
        while True:
            config, content = read_preset_file(directory)
            try:
                file = stack.enter_context(config.weights.open(directory, CONFIG_FILE)) if weights else None
                tokenizer = None
                if config.tokenizer is not None:
                    config.tokenizer.open(directory, CONFIG_FILE).close()
                    tokenizer = read_tokenizer((directory / config.tokenizer.file).parent)
                    if tokenizer.sha256 != config.tokenizer.sha256:
                        raise ValueError(f"{tokenizer.path} is not the file that was saved.")
                if file is None or os.fstat(file.fileno()).st_nlink:
                    break
            except (OSError, ValueError):
                stack.close()
                # another process has replaced it meanwhile
                if time.monotonic() > end or preset_content(directory) == content:
                    raise
            stack.close()
        stored = None
        if weights:
            stored = open_h5(directory / config.weights.file, is_own=config.weights.sha256 in _OWN_WEIGHTS)
        yield Preset(directory / CONFIG_FILE, config, stored, tokenizer)
