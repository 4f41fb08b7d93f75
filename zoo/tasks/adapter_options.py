"""Options of a task that the two files of an adapter cannot hold, in a file of this project beside them."""

import dataclasses
import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from zoo.config import replaceable
from zoo.huggingface.adapter_config import WEIGHTS_FILE
from zoo.huggingface.adapter_head import outputs_of_head
from zoo.preprocessing.labels import Labels
from zoo.storage import open_tensor_file, read_json, to_dataclass
from zoo.storage.user_warnings import warn_user
from zoo.tasks.registry import SavedOptions, default_of, naming_options, read_saved_options
from zoo.tasks.saving import task_options

OPTIONS_FILE = "task_options.json"


@dataclasses.dataclass(frozen=True)
class AdapterOptions:
    """The task whose updates an adapter holds.

    Args:
        task: Name of the task.
        options: Its arguments besides backbone and tokenizer, and the class of its preprocessor if it is another one.
        max_length: Longest sequence of its backbone. None if that is the size of a table of weights.
        chat_format: Chat format of its tokenizer. None if it has none.
    """

    task: str
    options: dict[str, Any]
    max_length: int | None = None
    chat_format: dict[str, Any] | None = None

    def replaced(self) -> dict[str, Any]:
        """Returns the choices of the backbone that may differ from those in the files of its model."""
        return {} if self.max_length is None else {"max_length": self.max_length}


def write_adapter_options(task: Any, directory: Path) -> None:
    """Writes the options of the task of an adapter.

    Args:
        task: The task.
        directory: The folder of an adapter.
    """
    config = task.backbone.config
    chat_format = getattr(task.tokenizer, "chat_format", None)
    values = AdapterOptions(
        type(task).__name__,
        task_options(task),
        config.max_length if "max_length" in replaceable(config) else None,
        None if chat_format is None else chat_format.to_dict(),
    )
    text = json.dumps(dataclasses.asdict(values), indent=2, sort_keys=True) + "\n"
    (directory / OPTIONS_FILE).write_text(text, encoding="utf-8")


def read_adapter_options(directory: Path) -> AdapterOptions | None:
    """Returns the options of the task of an adapter. None if the folder has none.

    Args:
        directory: The folder of the adapter.

    Raises:
        ValueError: If the file is damaged.
    """
    path = directory / OPTIONS_FILE
    return to_dataclass(AdapterOptions, read_json(path), str(path)) if path.is_file() else None


def saved_options_of(described: AdapterOptions, kind: type, directory: Path) -> SavedOptions:
    """Returns the arguments of the task of an adapter, checked.

    Args:
        described: The content of its file.
        kind: The class of the task to make.
        directory: The folder of the adapter.

    Raises:
        ValueError: If there is no such task or argument, one has another type, or there are more labels than outputs.
    """
    path = directory / OPTIONS_FILE
    saved = read_saved_options(described.task, described.options, kind, str(path))
    labels = saved.options.get("labels")
    if labels is not None:
        count = labels if isinstance(labels, int) else len(labels)
        with open_tensor_file(directory / WEIGHTS_FILE) as tensors:
            outputs = outputs_of_head(tensors, described.task)
        if count != outputs:
            raise ValueError(
                f"{path}: options.labels must be as many as the head in {WEIGHTS_FILE} has outputs, "
                f"{'none' if outputs is None else outputs}, got {count}."
            )
    return saved


def options_for_head(task: Any, directory: Path) -> dict[str, Any]:
    """Returns the options that belong to the head of an adapter: the fitted values, and the names of its labels.

    Args:
        task: The task that is to be given the head. Those of its options that the head needs otherwise are an error,
            or named in a warning where it also acts with them.
        directory: The folder of the adapter.

    Raises:
        ValueError: If the file is damaged, the task cannot have an option, or the head is one of another `problem`.
    """
    kind = type(task)
    options = {name: default_of(kind, name) for name in kind.fitted_options}
    described = read_adapter_options(directory)
    if described is None or described.task != kind.__name__:
        return options
    path, saved = directory / OPTIONS_FILE, saved_options_of(described, kind, directory).options
    present = task.options()
    if "problem" in saved and saved["problem"] != present["problem"]:
        raise ValueError(
            f"problem must be {saved['problem']!r} for the head in {path}, got {present['problem']!r}: make the task "
            "with that, or use head=False."
        )
    names = set(task.own_options()) - set(kind.fitted_options) - {"generation"}
    others = [
        f"{name}={saved[name]!r} (here {present[name]!r})"
        for name in sorted(names)
        if "dropout" not in name and saved.get(name, present[name]) != present[name]
    ]
    if others:
        warn_user(f"{path} is of a {kind.__name__} with {', '.join(others)}.")
    with naming_options(path):
        fitted = {name: task.checked_fitted(name, saved[name]) for name in kind.fitted_options if name in saved}
        named = {"labels": Labels(saved["labels"]).option} if "labels" in saved else {}
    return options | fitted | named


def take_options(task: Any, options: Mapping[str, Any]) -> None:
    """Sets the options of a task that belong to its head.

    Args:
        task: The task.
        options: What `options_for_head` returned.
    """
    labels = options.get("labels")
    # names of an adapter, where it has some, are those of the outputs
    if labels is not None and Labels(labels).names is not None:
        task.preprocessor = task.preprocessor.replace(labels=labels)
    for name in type(task).fitted_options:
        setattr(task, name, options[name])
