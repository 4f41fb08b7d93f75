"""Making a task from a named architecture, a saved model, or a model of the Transformers library."""

import contextlib
import dataclasses
import inspect
import os
import typing
import warnings
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple

import keras

from zoo.backbones.backbone import Backbone
from zoo.config import ModelConfig, TransformerConfig, config_from_dict, require_weights
from zoo.huggingface import is_huggingface
from zoo.huggingface import load_task as load_huggingface_task
from zoo.huggingface.directory import head_layers
from zoo.keras_hub import is_keras_hub, load_backbone, read_tokenizer
from zoo.preprocessing.labels import have_same_outputs
from zoo.presets.registry import preset_config
from zoo.storage import (
    H5Weights,
    Preset,
    PresetDescription,
    fetch,
    naming,
    open_preset,
    quote,
    read_one_version,
    recover,
    require_type,
)
from zoo.tasks.saving import PREPROCESSOR, QUANTIZATION, registered_kind
from zoo.tokenizers import Tokenizer, load_huggingface

# the tasks that a saved model may name
_TASKS: dict[str, type] = {}
# options of another task that hold for any: those of the texts
_SHARED = ("sequence_length", "truncate", "pair_separators")


def register_tasks(*tasks: type) -> None:
    """Adds tasks to those that a saved model may name, by the names of their classes.

    Args:
        *tasks: Classes of tasks.

    Raises:
        ValueError: If the name of one is taken by another.
    """
    for task in tasks:
        if _TASKS.get(task.__name__, task) is not task:
            raise ValueError(f"A task named {task.__name__!r} is registered already.")
        _TASKS[task.__name__] = task


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
    if is_keras_hub(preset):
        return _from_keras_hub(task_class, Path(preset), load_weights, tokenizer, choices)
    return _from_saved_model(task_class, preset, load_weights, tokenizer, choices)


def _from_name(task_class: type, name: str, load_weights: bool, tokenizer: Any, choices: dict[str, Any]) -> Any:
    parameters = _parameters(task_class, task_class.preprocessor_class)
    given = {name: value for name, value in choices.items() if name in parameters}
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


def _from_keras_hub(
    task_class: type, directory: Path, load_weights: bool, tokenizer: Any, choices: dict[str, Any]
) -> Any:
    fields = {field.name for field in dataclasses.fields(TransformerConfig)}
    overrides = {key: value for key, value in choices.items() if key in fields}
    backbone = load_backbone(directory, load_weights=load_weights, **overrides)
    if backbone.config.architecture not in task_class.architectures:
        raise ValueError(
            f"{directory} holds a backbone of the kind {backbone.config.architecture!r}, of which there is "
            f"no {task_class.__name__}."
        )
    if tokenizer is None:
        tokenizer = read_tokenizer(directory)
    task = task_class(backbone, tokenizer, **{key: value for key, value in choices.items() if key not in fields})
    if load_weights and head_layers(task):
        warnings.warn(f"{directory}: heads of KerasHub are not read; that of this task starts untrained.", stacklevel=4)
    return task


def _from_saved_model(
    task_class: type, directory: str | os.PathLike, load_weights: bool, tokenizer: Any, choices: dict[str, Any]
) -> Any:
    with open_preset(directory) as preset:
        saved = _read_saved(task_class, preset)
        if saved.task is task_class:
            known = saved.parameters
        else:
            known = _parameters(task_class, task_class.preprocessor_class)
        others = sorted(set(choices) - set(known)) + ["tokenizer"] * (tokenizer is not None)
        if others:
            raise ValueError(
                f"A saved model ({directory}) brings its own configuration and tokenizer; got {others} too."
            )
        return _from_open_preset(task_class, preset, saved, load_weights, choices)


class _Saved(NamedTuple):
    """What the configuration of a saved model says, checked: its task, preprocessor, their arguments and options."""

    task: type
    preprocessor: type
    parameters: dict[str, Any]
    options: dict[str, Any]
    mode: str | None

    def make(self, backbone: Backbone, tokenizer: Any, options: dict[str, Any]) -> Any:
        """The task with initial weights."""
        if self.preprocessor is self.task.preprocessor_class:
            return self.task(backbone, tokenizer, **options)
        names = _keyword_arguments(self.preprocessor)
        preprocessor = self.preprocessor(tokenizer, **{name: options[name] for name in options if name in names})
        return self.task(backbone, preprocessor, **{name: options[name] for name in options if name not in names})


def _read_saved(task_class: type, preset: Preset) -> _Saved:
    """Checks that a saved model brings options that its task declares, of their types."""
    kind = preset.description.task
    saved_class = task_class if kind == task_class.__name__ else _TASKS.get(kind)
    if saved_class is None:
        raise ValueError(
            f"{preset.path}: task must be {task_class.__name__!r} or one of {sorted(_TASKS)}, got {quote(kind)}."
        )
    options = dict(preset.description.options)
    mode, name = options.pop(QUANTIZATION, None), options.pop(PREPROCESSOR, None)
    require_type(mode, str | None, f"{preset.path}: options.{QUANTIZATION}")
    preprocessor = saved_class.preprocessor_class
    if name is not None:
        preprocessor = registered_kind(name, f"{preset.path}: options.{PREPROCESSOR}")
        if not issubclass(preprocessor, saved_class.preprocessor_class):
            raise ValueError(
                f"{preset.path}: options.{PREPROCESSOR} must name a {saved_class.preprocessor_class.__name__} for a "
                f"{saved_class.__name__}, got {quote(name)}."
            )
    allowed = _parameters(saved_class, preprocessor)
    for name, value in options.items():
        if name not in allowed:
            known = f"among {sorted(allowed)}, got {quote(name)}"
            raise ValueError(f"{preset.path}: options of a {saved_class.__name__} must be {known}.")
        require_type(value, allowed[name], f"{preset.path}: options.{name}")
    labels = options.get("labels")
    count = labels if isinstance(labels, int) else len(labels or ())
    if count > preset.weights.elements:
        raise ValueError(
            f"{preset.path}: options.labels must be at most as many as {preset.weights.path} holds numbers, "
            f"{preset.weights.elements}, got {count}."
        )
    return _Saved(saved_class, preprocessor, allowed, options, mode)


def _from_open_preset(
    task_class: type, preset: Preset, saved: _Saved, load_weights: bool, given: dict[str, Any]
) -> Any:
    description, directory = preset.description, preset.path.parent
    with naming(preset.path):
        config = config_from_dict(description.backbone)
    with naming(f"{preset.path}: backbone"):
        # a packed number of "int4" is two weights
        require_weights(config, preset.weights.elements * (2 if saved.mode else 1), preset.weights.path.name)
    if saved.task is not task_class and config.architecture not in task_class.architectures:
        raise ValueError(f"{directory} holds a {description.task}, not a {task_class.__name__}.")
    tokenizer = None if preset.tokenizer is None else Tokenizer.from_stored(preset.tokenizer)
    if preset.tokenizer is not None and tokenizer.vocabulary_size > config.vocabulary_size:
        raise ValueError(
            f"{preset.path}: backbone.vocabulary_size must be at least {tokenizer.vocabulary_size}, the number of "
            f"tokens in {tokenizer.source}, got {config.vocabulary_size}."
        )
    backbone = _backbone(config, description, preset.path)
    weights = preset.weights if load_weights else None
    if saved.task is task_class and (
        "labels" not in given or have_same_outputs(given["labels"], saved.options["labels"])
    ):
        with _naming_options(preset):
            task = saved.make(backbone, tokenizer, {**saved.options, **given})
            as_saved = saved.make(backbone, tokenizer, saved.options) if given and load_weights else task
        # Keras does not look for weights of a file that nobody reads
        if [weight.shape for weight in task.weights] != [weight.shape for weight in as_saved.weights]:
            raise ValueError(
                f"Arguments must leave the head as it is in {directory}, got {sorted(given)}, with which it has other "
                f"weights: leave them out, or make a {task_class.__name__} on the backbone of the loaded model."
            )
        return _restored(task, saved.mode, weights, preset.path)
    if saved.mode is not None:
        raise ValueError(
            f"{directory} holds {saved.mode} weights, which cannot be trained further as a {task_class.__name__}."
        )
    if "labels" not in given and "labels" in _parameters(task_class.preprocessor_class):
        raise ValueError(
            f"labels must be names or a number of labels, got none: {directory} holds a {description.task}."
        )
    with _naming_options(preset):
        donor = saved.make(backbone, tokenizer, saved.options)
    _restored(donor, None, weights, preset.path)
    if load_weights:
        warnings.warn(f"{directory} has no weights for the head of this task: it starts untrained.", stacklevel=4)
    if saved.task is task_class:
        return saved.make(backbone, tokenizer, {**saved.options, **given})
    shared = set(_SHARED) & set(_parameters(task_class, task_class.preprocessor_class)) & set(saved.options)
    return task_class(backbone, tokenizer, **{**{name: saved.options[name] for name in shared}, **given})


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
            f"{path}: parameter_count must be {backbone.parameter_count()}, the number of weights that its backbone "
            f"describes, got {description.parameter_count}: the file was changed."
        )
    return backbone


def _restored(task: Any, mode: str | None, weights: H5Weights | None, path: Path) -> Any:
    """The task with its weights, quantized first where they are."""
    if mode is not None:
        with naming(f"{path}: options.{QUANTIZATION}"):
            task.quantize(mode)
    if weights is not None:
        weights.load_into(task)
    return task


def _parameters(*kinds: type) -> dict[str, Any]:
    """Arguments of a task and of the preprocessor that it makes: their names and types."""
    found: dict[str, Any] = {}
    for kind in kinds:
        found = _keyword_arguments(kind) | found
    return found


def _keyword_arguments(made: type) -> dict[str, Any]:
    found: dict[str, Any] = {}
    for kind in made.__mro__:
        # those that `**options` takes are named further up
        if issubclass(kind, keras.Model) and kind.__module__.startswith("keras."):
            break
        parameters = inspect.signature(kind.__init__).parameters.values()
        hints = typing.get_type_hints(kind.__init__)
        names = [parameter.name for parameter in parameters if parameter.kind is parameter.KEYWORD_ONLY]
        found = {name: hints.get(name, Any) for name in names} | found
    return found
