"""A preset directory: the configuration, the weights and the tokenizer of a trained task.

This module knows the files, not what is made of them: a task hands over the functions that write its parts.
"""

import contextlib
import dataclasses
import json
import os
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

from zoo.storage.files import recover, replace_folder

FORMAT_VERSION = 1
CONFIG_FILE = "config.json"
WEIGHTS_FILE = "model.weights.h5"
TOKENIZER_FOLDER = "tokenizer"


@dataclasses.dataclass(frozen=True)
class PresetDescription:
    """What `config.json` of a preset directory says.

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
class Preset:
    """A preset directory that is open for reading.

    Args:
        description: What its `config.json` says.
        weights: The file of the weights.
        tokenizer: The folder of the tokenizer; None where the task has none.
    """

    description: PresetDescription
    weights: Path
    tokenizer: Path | None


def write_preset(
    directory: str | os.PathLike,
    description: PresetDescription,
    save_weights: Callable[[Path], None],
    save_tokenizer: Callable[[Path], None] | None = None,
) -> None:
    """Writes a preset directory, whole or not at all.

    The directory holds `config.json`, `model.weights.h5` and, where the task has a tokenizer, `tokenizer/`. An
    interrupted save leaves what was there before.

    Args:
        directory: Where to; replaced if it holds a saved model, an error if it holds something else.
        description: What `config.json` says.
        save_weights: Writes the weights to a file, whose name ends in `.weights.h5`.
        save_tokenizer: Writes the tokenizer to a folder.

    Raises:
        FileExistsError: If the directory exists and is not a saved model.
    """
    with replace_folder(directory, _is_preset, "saved model") as folder:
        values = {"format_version": FORMAT_VERSION, **dataclasses.asdict(description)}
        (folder / CONFIG_FILE).write_text(json.dumps(values, indent=2) + "\n", encoding="utf-8")
        save_weights(folder / WEIGHTS_FILE)
        if save_tokenizer is not None:
            save_tokenizer(folder / TOKENIZER_FOLDER)


@contextlib.contextmanager
def open_preset(directory: str | os.PathLike) -> Iterator[Preset]:
    """Opens what `write_preset` wrote.

    Args:
        directory: The directory.

    Raises:
        ValueError: If the directory is no saved model.

    Example:

    >>> with open_preset("runs/model") as preset:
    ...     print(preset.description.task)
    TextClassifier
    """
    directory = Path(directory)
    description = read_description(directory)
    tokenizer = directory / TOKENIZER_FOLDER
    yield Preset(description, directory / WEIGHTS_FILE, tokenizer if tokenizer.is_dir() else None)


def read_description(directory: str | os.PathLike) -> PresetDescription:
    """Returns the checked content of `config.json` of a saved model.

    Args:
        directory: The directory.

    Raises:
        ValueError: If the file is missing, is not JSON, or is of another format version.
    """
    recover(directory)
    path = Path(directory) / CONFIG_FILE
    if not path.is_file():
        raise ValueError(f"{directory} is no saved model: it has no {CONFIG_FILE}.")
    try:
        values = json.loads(path.read_text(encoding="utf-8"))
    except (json.JSONDecodeError, UnicodeDecodeError) as error:
        raise ValueError(f"{path} is not valid JSON: {error}") from error
    version = values.get("format_version") if isinstance(values, dict) else None
    if version != FORMAT_VERSION:
        raise ValueError(f"{path} has format_version {version!r}; this version of the library reads {FORMAT_VERSION}.")
    names = [field.name for field in dataclasses.fields(PresetDescription)]
    missing = set(names) - set(values)
    if missing:
        raise ValueError(f"{path} lacks {sorted(missing)}.")
    return PresetDescription(**{name: values[name] for name in names})


def _is_preset(directory: Path) -> bool:
    # the configuration of another library has the same file name
    try:
        read_description(directory)
    except ValueError:
        return False
    return True
