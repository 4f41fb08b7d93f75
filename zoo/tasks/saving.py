"""Saving of a task: weights, tokenizer, options; and uploads of what was saved to the hub."""

import os
import tempfile
import threading
import uuid
import weakref
from pathlib import Path
from typing import Any

import keras

from zoo.huggingface import read_config
from zoo.huggingface import save_task as save_huggingface_task
from zoo.huggingface.adapter_config import read_adapter_config
from zoo.huggingface.card import CARD_FILE, adapter_card, model_card
from zoo.preprocessing import Preprocessor
from zoo.preprocessing.rows import shorten
from zoo.storage import PresetDescription, open_preset, push, require_type, write_preset
from zoo.storage.hub import PREFIX, require_address

# Keys of a saved model's options: the mode of its quantized weights and whether its head has such too, its low-rank
# updates, the class of a preprocessor of one's own.
QUANTIZATION, QUANTIZED_HEAD, ADAPTERS, PREPROCESSOR = "quantization", "quantized_head", "adapters", "preprocessor"
# the tokenizers of tasks that have been saved or copied in this process, by a key, as long as they are used
_TOKENIZERS: weakref.WeakValueDictionary[str, Any] = weakref.WeakValueDictionary()
_LOCK = threading.Lock()


@keras.saving.register_keras_serializable("keras_transformer_zoo")
class SavedPreprocessor:
    """A preprocessor in the configuration of a task, without the content of its tokenizer.

    A `.keras` file holds the files of the tokenizer as they are, see `Task.save_assets`: no configuration, and no error
    that shows one, has megabytes of text. A copy in the same process gets the tokenizer itself, by a key.

    Args:
        preprocessor: The preprocessor.
    """

    def __init__(self, preprocessor: Preprocessor) -> None:
        self.preprocessor = preprocessor

    def get_config(self) -> dict[str, Any]:
        tokenizer, key = self.preprocessor.tokenizer, None
        if tokenizer is not None:
            with _LOCK:
                key = next((key for key, known in _TOKENIZERS.items() if known is tokenizer), None) or uuid.uuid4().hex
                _TOKENIZERS[key] = tokenizer
        kind = registered_name(type(self.preprocessor))
        return {"kind": kind, "options": self.preprocessor.options(), "tokenizer": key}

    @classmethod
    def from_config(cls, config: dict[str, Any]) -> "SavedPreprocessor":
        tokenizer = _TOKENIZERS.get(config["tokenizer"])
        return cls(registered_kind(config["kind"], "the file")(tokenizer, **config["options"]))


def registered_name(kind: type[Preprocessor]) -> str:
    """Returns the name under which a class of preprocessors is registered with Keras.

    Args:
        kind: The class.

    Raises:
        ValueError: If it is not registered, because the saved files could not be loaded.
    """
    name = keras.saving.get_registered_name(kind)
    if keras.saving.get_registered_object(name) is not kind:
        raise ValueError(
            f"The class of the preprocessor must be registered with keras.saving.register_keras_serializable to be "
            f"saved, got {kind.__name__}."
        )
    return name


def registered_kind(name: Any, where: str) -> type[Preprocessor]:
    """Returns the class of preprocessors that is registered with Keras under a name; nothing is imported for it.

    Args:
        name: The registered name.
        where: What names it, for the error.

    Raises:
        ValueError: If there is none of this name, or it is no preprocessor.
    """
    kind = keras.saving.get_registered_object(name) if isinstance(name, str) else None
    if not (isinstance(kind, type) and issubclass(kind, Preprocessor)):
        raise ValueError(
            f"{where} needs the preprocessor {shorten(name)}, which is not registered: import the module that "
            "registers it with keras.saving.register_keras_serializable."
        )
    return kind


def save_task(task: Any, directory: str | os.PathLike[str]) -> None:
    """Writes a task as a preset directory, see `Task.save_to_preset`.

    Args:
        task: The task.
        directory: The directory to write. A saved model that it holds is replaced. Other contents are an error.

    Raises:
        ValueError: If its backbone was quantized by another task.
    """
    task.adaptation.require_own("save_to_preset()")
    description = PresetDescription(
        task=type(task).__name__,
        backbone=task.backbone.config.to_dict(),
        options=_saved_options(task),
        parameter_count=task.backbone_parameters,
        origin=None if task.backbone.origin is None else task.backbone.origin.to_dict(),
    )
    tokenizer = task.tokenizer
    write_preset(
        directory, description, lambda path: _save_weights(task, path), None if tokenizer is None else tokenizer.save
    )


def task_options(task: Any) -> dict[str, Any]:
    """Returns the options of a task, and the registered name of its preprocessor's class where it is another.

    Args:
        task: The task.
    """
    options, kind = task.options(), type(task.preprocessor)
    if kind is not task.preprocessor_class:
        options[PREPROCESSOR] = registered_name(kind)
    return options


def _saved_options(task: Any) -> dict[str, Any]:
    """The options of a task, and what was done to its weights."""
    options = task_options(task)
    if task.adaptation.mode is not None:
        options[QUANTIZATION] = task.adaptation.mode
        if not task.adaptation.quantized_head:
            options[QUANTIZED_HEAD] = False
    if len(task.backbone.adapters):
        options[ADAPTERS] = task.backbone.adapters.config()
    return options


def read_adapters(values: Any, where: str) -> dict[str, dict[str, Any]]:
    """Returns the low-rank updates of a saved task, their types checked.

    Args:
        values: The content of the file.
        where: The file and key, for errors.

    Raises:
        ValueError: If a value is of another type. The message names it.
    """
    kinds = {"layers": dict[str, list[int | float]], "dropout": float, "active": bool, "trainable": bool}
    # files of earlier versions do not have these
    later = {"dora": bool, "weights": list[str]}
    require_type(values, dict[str, dict[str, Any]], where)
    for name, adapter in values.items():
        if kinds.keys() - adapter.keys() or adapter.keys() - kinds.keys() - later.keys():
            raise ValueError(f"{where}.{name} must have the keys {list(kinds)}, got {shorten(list(adapter))}.")
        for key, value in adapter.items():
            require_type(value, {**kinds, **later}[key], f"{where}.{name}.{key}")
        for path, of in adapter["layers"].items():
            if len(of) != 2:
                raise ValueError(f"{where}.{name}.layers.{path} must be rank and alpha, got {shorten(of)}.")
    return values


def _save_weights(task: Any, path: Path) -> None:
    # Keras would write the optimizer's moments, too: twice the weights again
    optimizer = vars(task).pop("optimizer", None)
    try:
        task.save_weights(path)
    finally:
        if optimizer is not None:
            task.optimizer = optimizer


FORMATS = ("huggingface", "preset", "adapter")


def push_task(
    task: Any,
    address: str,
    *,
    format: str,
    private: bool | None,
    license: str | None,
    base_model: str | None,
    dtype: str | None,
    message: str,
) -> str:
    """Pushes a task to a model repository of the hub, see `Task.push`.

    Args:
        task: The task.
        address: `owner/name`, or `owner/name@revision` for a branch.
        format: One of `FORMATS`.
        private, message: See `zoo.storage.push`.
        license, base_model, dtype: See `zoo.huggingface.save_task`.
    """
    if format not in FORMATS:
        raise ValueError(f"format must be one of {FORMATS}, got {format!r}.")
    if dtype is not None and format != "huggingface":
        raise ValueError(
            f"dtype must be None with format={format!r}, which has the weights as they are, got {dtype!r}."
        )
    address = require_address(address)
    name = address.removeprefix(PREFIX).partition("@")[0]
    with tempfile.TemporaryDirectory() as place:
        folder = Path(place) / "model"
        # what cannot be written, or not be read, never gets on its way
        if format == "huggingface":
            save_huggingface_task(task, folder, name=name, license=license, base_model=base_model, dtype=dtype)
            read_config(folder)
        elif format == "adapter":
            active = task.backbone.adapters.active
            if len(active) != 1:
                raise ValueError(f"format='adapter' needs one active adapter, got {list(active)}.")
            kind = task.save_adapter(folder, active[0], base_model=base_model)
            read_adapter_config(folder)
            card = adapter_card(task, name, model_type=kind, license=license, base_model=base_model)
            (folder / CARD_FILE).write_text(card, encoding="utf-8")
        else:
            save_task(task, folder)
            with open_preset(folder):
                pass
            card = model_card(task, name, license=license, base_model=base_model)
            (folder / CARD_FILE).write_text(card, encoding="utf-8")
        return push(folder, address, private=private, message=message)
