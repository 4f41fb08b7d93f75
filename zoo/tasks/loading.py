"""Making a task from a named architecture, a saved model, or a model of the Transformers library."""

import contextlib
import inspect
import os
import warnings
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import keras

from zoo.backbones.backbone import Backbone
from zoo.config import config_from_dict
from zoo.presets.registry import preset_config
from zoo.storage import Preset, PresetDescription, fetch, open_preset, recover, write_preset
from zoo.tokenizers import Tokenizer

# Key of a saved model's options with the mode of its quantized weights.
QUANTIZATION = "quantization"


def save_task(task: Any, directory: str | os.PathLike) -> None:
    """Writes a task as a preset directory, see `Task.save_to_preset`.

    Args:
        task: The task.
        directory: Where to; replaced if it holds a saved model, an error if it holds something else.
    """
    description = PresetDescription(
        task=type(task).__name__,
        backbone=task.backbone.config.to_dict(),
        options=task.saved_options(),
        parameter_count=task.backbone_parameters,
    )
    tokenizer = task.tokenizer
    write_preset(
        directory, description, lambda path: _save_weights(task, path), None if tokenizer is None else tokenizer.save
    )


def _save_weights(task: Any, path: Path) -> None:
    # Keras would write the optimizer's moments, too: twice the weights again
    optimizer = vars(task).pop("optimizer", None)
    try:
        task.save_weights(path)
    finally:
        if optimizer is not None:
            task.optimizer = optimizer


@contextlib.contextmanager
def default_policy(dtype: Any) -> Iterator[None]:
    """Layers made inside have this dtype policy unless they are given another; None changes nothing.

    Args:
        dtype: Name of a policy, or a policy.
    """
    before = keras.config.dtype_policy()
    keras.config.set_dtype_policy(before if dtype is None else dtype)
    try:
        yield
    finally:
        keras.config.set_dtype_policy(before)


def load_task(
    task_class: type, preset: str | os.PathLike, load_weights: bool, tokenizer: Any, choices: dict[str, Any]
) -> Any:
    """Returns a task, see `Task.from_preset`.

    Args:
        task_class: The class of the task.
        preset: A directory, a name, or `hf://owner/name`.
        load_weights: Whether to load the weights.
        tokenizer: The tokenizer, where the preset brings none.
        choices: Arguments of the task, and replaced choices of the configuration.
    """
    name = os.fspath(preset)
    if name.startswith("hf://"):
        return _from_huggingface(task_class, fetch(name), load_weights, tokenizer, choices)
    recover(preset)
    if not Path(preset).is_dir():
        return _from_name(task_class, name, load_weights, tokenizer, choices)
    from zoo.huggingface import is_huggingface

    if is_huggingface(preset):
        return _from_huggingface(task_class, Path(preset), load_weights, tokenizer, choices)
    return _from_saved_model(task_class, preset, load_weights, tokenizer, choices)


def _from_name(task_class: type, name: str, load_weights: bool, tokenizer: Any, choices: dict[str, Any]) -> Any:
    given = _task_arguments(task_class, choices)
    config = preset_config(name, **{key: value for key, value in choices.items() if key not in given})
    if load_weights:
        raise ValueError(
            f"The preset {name!r} names an architecture and has no weights: pass load_weights=False for random ones, "
            "or the directory of a saved model."
        )
    return task_class(Backbone.from_config(config), tokenizer, **given)


def _from_huggingface(
    task_class: type, directory: Path, load_weights: bool, tokenizer: Any, choices: dict[str, Any]
) -> Any:
    from zoo.huggingface.tasks import load_task as load_huggingface_task

    if tokenizer is None:
        from zoo.tokenizers import load_huggingface

        tokenizer = load_huggingface(directory)
    return load_huggingface_task(task_class, directory, load_weights=load_weights, tokenizer=tokenizer, **choices)


def _from_saved_model(
    task_class: type, directory: str | os.PathLike, load_weights: bool, tokenizer: Any, choices: dict[str, Any]
) -> Any:
    given = _task_arguments(task_class, choices)
    if set(choices) - set(given) or tokenizer is not None:
        others = sorted(set(choices) - set(given)) + ["tokenizer"] * (tokenizer is not None)
        raise ValueError(f"A saved model ({directory}) brings its own configuration and tokenizer; got {others} too.")
    with open_preset(directory) as preset:
        return _from_open_preset(task_class, preset, directory, load_weights, given)


def _from_open_preset(
    task_class: type, preset: Preset, directory: str | os.PathLike, load_weights: bool, given: dict[str, Any]
) -> Any:
    backbone = _backbone(preset.description, directory)
    tokenizer = None if preset.tokenizer is None else Tokenizer.load(preset.tokenizer)
    saved = dict(preset.description.options)
    mode = saved.pop(QUANTIZATION, None)
    weights = preset.weights if load_weights else None
    kind = preset.description.task
    if kind == task_class.__name__ and given.get("labels", saved.get("labels")) == saved.get("labels"):
        return _restored(task_class(backbone, tokenizer, **{**saved, **given}), mode, weights)
    donor_class = _donor(kind, task_class, backbone, directory)
    if mode is not None:
        raise ValueError(
            f"{directory} holds {mode} weights, which cannot be trained further as a {task_class.__name__}."
        )
    _restored(donor_class(backbone, tokenizer, **saved), None, weights)
    if load_weights:
        warnings.warn(f"{directory} has no weights for the head of this task: it starts untrained.", stacklevel=4)
    return task_class(backbone, tokenizer, **{**_shared(saved, task_class, kind), **given})


def _backbone(description: PresetDescription, directory: str | os.PathLike) -> Backbone:
    """The backbone of a saved model, with initial weights."""
    backbone = Backbone.from_config(config_from_dict(description.backbone))
    if backbone.parameter_count() != description.parameter_count:
        raise ValueError(
            f"{Path(directory) / 'config.json'} describes a backbone of {backbone.parameter_count()} parameters, its "
            f"weights are those of one of {description.parameter_count}: the file was changed."
        )
    return backbone


def _restored(task: Any, mode: str | None, weights: Path | None) -> Any:
    """The task with its weights, quantized first where they are."""
    if mode is not None:
        task.quantize(mode)
    if weights is not None:
        task.load_weights(weights)
    return task


def _donor(kind: str, task_class: type, backbone: Backbone, directory: str | os.PathLike) -> type:
    """The class of a saved task whose backbone another task takes over."""
    import zoo.tasks

    donor = getattr(zoo.tasks, kind, None)
    architecture = getattr(backbone.config, "architecture", None)
    if donor is None or architecture not in getattr(task_class, "architectures", ()):
        raise ValueError(f"{directory} holds a {kind}, not a {task_class.__name__}.")
    return donor


def _shared(saved: dict[str, Any], task_class: type, kind: str) -> dict[str, Any]:
    """Options of another task that hold for this one too: all where only the labels differ, else those of the texts."""
    if kind == task_class.__name__:
        return saved
    names = ("sequence_length", "truncate", "pair_separators")
    return {name: saved[name] for name in names if name in saved and name in _parameters(task_class)}


def _parameters(task_class: type) -> set[str]:
    kinds = (inspect.Parameter.POSITIONAL_OR_KEYWORD, inspect.Parameter.KEYWORD_ONLY)
    parameters = inspect.signature(task_class.__init__).parameters
    return {name for name, parameter in parameters.items() if parameter.kind in kinds} - {
        "self",
        "backbone",
        "tokenizer",
    }


def _task_arguments(task_class: type, choices: dict[str, Any]) -> dict[str, Any]:
    return {name: value for name, value in choices.items() if name in _parameters(task_class)}
