"""A trained model as a directory: configuration, weights, tokenizer."""

import json
import os
from pathlib import Path
from typing import Any

from zoo.backbones.backbone import Backbone
from zoo.config import config_from_dict
from zoo.files import recover, written_whole

FORMAT_VERSION = 1
CONFIG_FILE = "config.json"
WEIGHTS_FILE = "model.weights.h5"
TOKENIZER_FOLDER = "tokenizer"


def save_task_parts(task: Any, directory: str | os.PathLike) -> None:
    """Writes a task to a directory, whole or not at all.

    The directory holds `config.json`, `model.weights.h5` and, where the task has a tokenizer, `tokenizer/`. It is
    written beside its place and renamed, so that an interrupted save leaves what was there before.

    Args:
        task: The task.
        directory: Where to; replaced if it holds a saved model, an error if it holds something else.

    Raises:
        FileExistsError: If the directory exists and is not a saved model.
    """
    with written_whole(directory, _is_saved_model, "saved model") as folder:
        description = {
            "format_version": FORMAT_VERSION,
            "task": type(task).__name__,
            "backbone": task.backbone.config.to_dict(),
            "options": task.saved_options(),
            "parameter_count": task.backbone_parameters,
        }
        (folder / CONFIG_FILE).write_text(json.dumps(description, indent=2) + "\n", encoding="utf-8")
        _save_weights(task, folder / WEIGHTS_FILE)
        if task.tokenizer is not None:
            task.tokenizer.save(folder / TOKENIZER_FOLDER)


def _save_weights(task: Any, path: Path) -> None:
    # Keras would write the optimizer's moments, too: twice the weights again
    optimizer = vars(task).pop("optimizer", None)
    try:
        task.save_weights(path)
    finally:
        if optimizer is not None:
            task.optimizer = optimizer


def read_description(directory: str | os.PathLike) -> dict[str, Any]:
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
        description = json.loads(path.read_text(encoding="utf-8"))
    except (json.JSONDecodeError, UnicodeDecodeError) as error:
        raise ValueError(f"{path} is not valid JSON: {error}") from error
    version = description.get("format_version") if isinstance(description, dict) else None
    if version != FORMAT_VERSION:
        raise ValueError(f"{path} has format_version {version!r}; this version of the library reads {FORMAT_VERSION}.")
    missing = {"task", "backbone", "options", "parameter_count"} - set(description)
    if missing:
        raise ValueError(f"{path} lacks {sorted(missing)}.")
    return description


def _is_saved_model(directory: Path) -> bool:
    # the configuration of another library has the same file name
    try:
        read_description(directory)
    except ValueError:
        return False
    return True


def load_task_parts(directory: str | os.PathLike) -> tuple[dict[str, Any], Backbone, Any]:
    """Returns the description, the backbone (initial weights) and the tokenizer of a saved model.

    Args:
        directory: What `save_task_parts` wrote.

    Returns:
        The description, the backbone and the tokenizer, None where there is none.

    Raises:
        ValueError: If the directory is no saved model, or its configuration is not the one that was saved.
    """
    description = read_description(directory)
    backbone = Backbone.from_config(config_from_dict(description["backbone"]))
    if backbone.parameter_count() != description["parameter_count"]:
        raise ValueError(
            f"{Path(directory) / CONFIG_FILE} describes a backbone of {backbone.parameter_count()} parameters, its "
            f"weights are those of one of {description['parameter_count']}: the file was changed."
        )
    tokenizer = None
    if (Path(directory) / TOKENIZER_FOLDER).is_dir():
        from zoo.tokenizers import Tokenizer

        tokenizer = Tokenizer.load(Path(directory) / TOKENIZER_FOLDER)
    return description, backbone, tokenizer
