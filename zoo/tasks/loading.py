"""Making a task from a named architecture, a saved model, or a model of the Transformers library."""

import contextlib
import inspect
import os
import typing
import warnings
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import keras

from zoo.backbones.backbone import Backbone
from zoo.config import ModelConfig, config_from_dict, require_weights
from zoo.huggingface import is_huggingface
from zoo.huggingface import load_task as load_huggingface_task
from zoo.presets.registry import preset_config
from zoo.storage import (
    H5Weights,
    Preset,
    PresetDescription,
    fetch,
    naming,
    open_preset,
    read_one_version,
    recover,
    require_type,
    write_preset,
)
from zoo.tasks.registry import registered_tasks
from zoo.tokenizers import Tokenizer, load_huggingface

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
    if is_huggingface(preset):
        return read_one_version(
            preset, lambda: _from_huggingface(task_class, Path(preset), load_weights, tokenizer, choices)
        )
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
    if tokenizer is None:
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
        return _from_open_preset(task_class, preset, load_weights, given)


def _from_open_preset(task_class: type, preset: Preset, load_weights: bool, given: dict[str, Any]) -> Any:
    description, directory = preset.description, preset.path.parent
    kind = description.task
    saved_class = task_class if kind == task_class.__name__ else registered_tasks().get(kind)
    if saved_class is None:
        raise ValueError(
            f"{preset.path}: task must be {task_class.__name__!r} or one of {sorted(registered_tasks())}, got {kind!r}."
        )
    saved = dict(description.options)
    mode = saved.pop(QUANTIZATION, None)
    _check_options(saved_class, saved, mode, preset)
    with naming(preset.path):
        config = config_from_dict(description.backbone)
    # a packed number of "int4" is two weights
    require_weights(config, preset.weights.elements * (2 if mode else 1), f"{preset.path}: backbone")
    _require_donor(kind, task_class, config, directory)
    backbone = _backbone(config, description, preset.path)
    tokenizer = None if preset.tokenizer is None else Tokenizer.from_stored(preset.tokenizer)
    weights = preset.weights if load_weights else None
    if kind == task_class.__name__ and given.get("labels", saved.get("labels")) == saved.get("labels"):
        with _naming_options(preset):
            task = task_class(backbone, tokenizer, **{**saved, **given})
        return _restored(task, mode, weights)
    if mode is not None:
        raise ValueError(
            f"{directory} holds {mode} weights, which cannot be trained further as a {task_class.__name__}."
        )
    with _naming_options(preset):
        donor = saved_class(backbone, tokenizer, **saved)
    _restored(donor, None, weights)
    if load_weights:
        warnings.warn(f"{directory} has no weights for the head of this task: it starts untrained.", stacklevel=4)
    return task_class(backbone, tokenizer, **{**_shared(saved, task_class, kind), **given})


def _check_options(saved_class: type, saved: dict[str, Any], mode: Any, preset: Preset) -> None:
    """Checks that a saved model brings options that its task declares, of their types."""
    require_type(mode, str | None, f"{preset.path}: options.{QUANTIZATION}")
    allowed = _parameters(saved_class)
    for name, value in saved.items():
        if name not in allowed:
            known = f"among {sorted(allowed)}, got {name[:100]!r}"
            raise ValueError(f"{preset.path}: options of a {saved_class.__name__} must be {known}.")
        require_type(value, allowed[name], f"{preset.path}: options.{name}")
    labels = saved.get("labels")
    count = labels if isinstance(labels, int) else len(labels or ())
    if count > preset.weights.elements:
        raise ValueError(
            f"{preset.path}: options.labels must be at most as many as {preset.weights.path} holds numbers, "
            f"{preset.weights.elements}, got {count}."
        )


@contextlib.contextmanager
def _naming_options(preset: Preset) -> Iterator[None]:
    """Errors of a task's constructor name the file that its arguments are from."""
    try:
        with naming(preset.path):
            yield
    except (TypeError, AttributeError, KeyError, IndexError, ArithmeticError) as error:
        raise ValueError(f"{preset.path}: options do not fit the task ({type(error).__name__}: {error}).") from error


def _backbone(config: ModelConfig, description: PresetDescription, path: Path) -> Backbone:
    """The backbone of a saved model, with initial weights."""
    with naming(path):
        backbone = Backbone.from_config(config)
    if backbone.parameter_count() != description.parameter_count:
        raise ValueError(
            f"{path} describes a backbone of {backbone.parameter_count()} parameters, its "
            f"weights are those of one of {description.parameter_count}: the file was changed."
        )
    return backbone


def _restored(task: Any, mode: str | None, weights: H5Weights | None) -> Any:
    """The task with its weights, quantized first where they are."""
    if mode is not None:
        task.quantize(mode)
    if weights is not None:
        weights.load_into(task)
    return task


def _require_donor(kind: str, task_class: type, config: ModelConfig, directory: Path) -> None:
    """Checks that a task can take over the backbone of another."""
    if kind != task_class.__name__ and config.architecture not in task_class.architectures:
        raise ValueError(f"{directory} holds a {kind}, not a {task_class.__name__}.")


def _shared(saved: dict[str, Any], task_class: type, kind: str) -> dict[str, Any]:
    """Options of another task that hold for this one too: all where only the labels differ, else those of the texts."""
    if kind == task_class.__name__:
        return saved
    names = ("sequence_length", "truncate", "pair_separators")
    return {name: saved[name] for name in names if name in saved and name in _parameters(task_class)}


def _parameters(task_class: type) -> dict[str, Any]:
    """Arguments of a task and of the preprocessor that it makes: their names and types."""
    found = {}
    for made in (task_class, task_class.preprocessor_class):
        for kind in made.__mro__:
            # those that `**options` takes are named further up
            if issubclass(kind, keras.Model) and kind.__module__.startswith("keras."):
                break
            parameters = inspect.signature(kind.__init__).parameters.values()
            hints = typing.get_type_hints(kind.__init__)
            names = [parameter.name for parameter in parameters if parameter.kind is parameter.KEYWORD_ONLY]
            found = {name: hints.get(name, Any) for name in names} | found
    return found


def _task_arguments(task_class: type, choices: dict[str, Any]) -> dict[str, Any]:
    parameters = _parameters(task_class)
    return {name: value for name, value in choices.items() if name in parameters}
