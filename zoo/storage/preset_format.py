"""What `config.json` of a preset directory says, and how it is checked when it is read."""

import dataclasses
import os
import re
from pathlib import Path
from typing import Any

from zoo.storage.errors import quote
from zoo.storage.json_files import MOST_BYTES, MOST_CONFIG_VALUES, parse_json, read_bytes
from zoo.storage.stored_file import StoredFile
from zoo.storage.tokenizer import CONFIG_FILE as TOKENIZER_FILE
from zoo.storage.typed import to_dataclass

FORMAT_VERSION = 2
CONFIG_FILE = "config.json"
WEIGHTS_FILE = "model.weights.h5"
TOKENIZER_FOLDER = "tokenizer"

# names of the parts of a preset: those above, or with a number where these are taken
_PART = re.compile(r"model(-[0-9a-f]{8})?\.weights\.h5|tokenizer(-[0-9a-f]{8})?")


@dataclasses.dataclass(frozen=True)
class PresetDescription:
    """The description of a task in `config.json` of a preset directory.

    Args:
        task: Name of the task.
        backbone: Configuration of the backbone, see `zoo.config.config_from_dict`.
        options: Arguments of the task besides backbone and tokenizer.
        parameter_count: Number of weights of the backbone.
        origin: What files of another library said of the backbone, see `zoo.backbones.origin`; None for nothing.
    """

    task: str
    backbone: dict[str, Any]
    options: dict[str, Any]
    parameter_count: int
    origin: dict[str, Any] | None = dataclasses.field(default=None, kw_only=True)


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


def read_description(directory: str | os.PathLike[str]) -> PresetDescription:
    """Returns the checked content of `config.json` of a saved model.

    Args:
        directory: The directory.

    Raises:
        ValueError: If the file is missing, is not JSON, has another format version, or a value has a wrong type.
    """
    return read_preset_file(Path(directory))[0]


def preset_content(directory: Path) -> bytes:
    """Returns the bytes of `config.json`.

    Args:
        directory: The preset directory.

    Raises:
        ValueError: If there is none, or it is too large.
    """
    path = directory / CONFIG_FILE
    if not path.is_file():
        raise ValueError(f"{directory} is no saved model: it has no {CONFIG_FILE}.")
    return read_bytes(path, MOST_BYTES)


def read_preset_file(directory: Path) -> tuple[PresetFile, bytes]:
    """Returns the checked content of `config.json`, and its bytes.

    Args:
        directory: The preset directory.

    Raises:
        ValueError: As for `read_description`.
    """
    path, content = directory / CONFIG_FILE, preset_content(directory)
    values = parse_json(content, str(path), MOST_CONFIG_VALUES)
    if not isinstance(values, dict):
        raise ValueError(f"{path} must be an object, got {quote(values)}.")
    version = values.get("format_version")
    if version is None:
        raise ValueError(
            f"{path} must have a format_version, as a saved model has, or a model_type, as one of the Transformers "
            "library has, got neither."
        )
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
            raise ValueError(f"{path}: {key} must be in this directory, got {quote(name)}, a link.")
    return config, content
