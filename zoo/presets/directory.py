"""A trained model as a directory: configuration, weights, tokenizer."""

import json
import os
import shutil
import tempfile
from pathlib import Path
from typing import Any

from zoo.backbones.backbone import Backbone
from zoo.config import TransformerConfig

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
    directory = Path(directory)
    if directory.exists() and any(directory.iterdir()) and not (directory / CONFIG_FILE).exists():
        raise FileExistsError(f"{directory} exists and is no saved model: it will not be overwritten.")
    directory.parent.mkdir(parents=True, exist_ok=True)
    temporary = Path(tempfile.mkdtemp(prefix=f".{directory.name}.", dir=directory.parent))
    try:
        description = {
            "format_version": FORMAT_VERSION,
            "task": type(task).__name__,
            "backbone": task.backbone.config.to_dict(),
            "options": task.options(),
        }
        (temporary / CONFIG_FILE).write_text(json.dumps(description, indent=2) + "\n", encoding="utf-8")
        task.save_weights(temporary / WEIGHTS_FILE)
        if task.tokenizer is not None:
            task.tokenizer.save(temporary / TOKENIZER_FOLDER)
        temporary.chmod(0o755)
        old = None
        if directory.exists():
            old = temporary.with_name(temporary.name + ".old")
            os.rename(directory, old)
        os.rename(temporary, directory)
        if old is not None:
            shutil.rmtree(old)
    except BaseException:
        shutil.rmtree(temporary, ignore_errors=True)
        raise


def read_description(directory: str | os.PathLike) -> dict[str, Any]:
    """Returns the checked content of `config.json` of a saved model.

    Args:
        directory: The directory.

    Raises:
        ValueError: If the file is missing, is not JSON, or is of another format version.
    """
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
    missing = {"task", "backbone", "options"} - set(description)
    if missing:
        raise ValueError(f"{path} lacks {sorted(missing)}.")
    return description


def load_task_parts(directory: str | os.PathLike) -> tuple[dict[str, Any], Backbone, Any]:
    """Returns the description, the backbone (initial weights) and the tokenizer of a saved model.

    Args:
        directory: What `save_task_parts` wrote.

    Returns:
        The description, the backbone and the tokenizer, None where there is none.
    """
    description = read_description(directory)
    backbone = Backbone.from_config(TransformerConfig.from_dict(description["backbone"]))
    tokenizer = None
    if (Path(directory) / TOKENIZER_FOLDER).is_dir():
        from zoo.tokenizers import Tokenizer

        tokenizer = Tokenizer.load(Path(directory) / TOKENIZER_FOLDER)
    return description, backbone, tokenizer
