"""Models that `save_to_preset` wrote, and folders of runs, as sources of `from_preset`."""

import dataclasses
from pathlib import Path
from typing import Any, NamedTuple

from zoo.backbones.backbone import Backbone
from zoo.backbones.origin import Origin
from zoo.config import CONFIGURATIONS, REPLACEABLE, ModelConfig, config_from_dict, replace_choices, require_weights
from zoo.storage import (
    Preset,
    PresetDescription,
    Reader,
    errors_of_file,
    means_own,
    open_preset,
    read_description,
    register_reader,
    require_type,
    to_dataclass,
)
from zoo.storage.deferred import deferred
from zoo.storage.preset_format import CONFIG_FILE
from zoo.storage.tokenizer import is_stored_tokenizer
from zoo.storage.user_warnings import warn_user
from zoo.tasks.registry import SavedOptions, naming_options, parameters_of, read_saved_options, task_class_of
from zoo.tasks.saving import ADAPTERS, QUANTIZATION, QUANTIZED_HEAD, read_adapters
from zoo.tokenizers import Tokenizer


class SavedReader(Reader):
    """A directory that `save_to_preset` wrote."""

    looks_for = "a saved model (config.json of save_to_preset)"

    def accepts(self, source: Path) -> bool:
        # asked after those who know other files of this name: what is damaged is said when it is read
        return (source / CONFIG_FILE).is_file()

    def accepts_tokenizer(self, source: Path) -> bool:
        return not (source / CONFIG_FILE).exists() and is_stored_tokenizer(source)

    def task_of(self, source: Path) -> str:
        return read_description(source).task

    def load_task(self, kind: type, source: Path, load_weights: bool, tokenizer: Any, choices: dict[str, Any]) -> Any:
        with open_preset(source) as preset:
            saved = _read_saved(kind, preset)
            kind = saved.of.task if issubclass(saved.of.task, kind) else kind
            is_same = saved.of.task is kind
            known = saved.of.parameters if is_same else parameters_of(kind, kind.preprocessor_class)
            # a task of one's own may have arguments of these names
            fields = {field.name for config in CONFIGURATIONS.values() for field in dataclasses.fields(config)}
            names = REPLACEABLE if load_weights else fields
            replaced = {name: choices[name] for name in choices if name in names and name not in known}
            given = {name: choices[name] for name in choices if name not in replaced}
            is_kept = means_own(tokenizer) or (tokenizer is None and preset.tokenizer is None)
            others = sorted(set(given) - set(known)) + ["tokenizer"] * (not is_kept)
            if others:
                raise ValueError(
                    f"A saved model ({source}) brings its own configuration and tokenizer, of which "
                    f"{' and '.join(REPLACEABLE)} can be replaced, and other choices with load_weights=False; got "
                    f"{others} too."
                )
            return _from_open_preset(kind, preset, saved, load_weights, given, replaced)

    def load_backbone(self, source: Path, load_weights: bool, choices: dict[str, Any]) -> Any:
        kind = task_class_of(read_description(source).task, str(source / CONFIG_FILE))
        with open_preset(source) as preset:
            return _from_open_preset(kind, preset, _read_saved(kind, preset), load_weights, {}, choices).backbone

    def load_tokenizer(self, source: Path) -> Any:
        if not (source / CONFIG_FILE).exists():  # a tokenizer alone
            return Tokenizer.load(source)
        with open_preset(source, weights=False) as preset:
            return None if preset.tokenizer is None else Tokenizer.from_stored(preset.tokenizer)


class RunReader(SavedReader):
    """The folder of a run, with the model that it has trained in `model`."""

    looks_for = "the folder of a run (with model)"

    def accepts(self, source: Path) -> bool:
        return not (source / CONFIG_FILE).exists() and super().accepts(source / "model")

    def accepts_tokenizer(self, source: Path) -> bool:
        return self.accepts(source)

    def task_of(self, source: Path) -> str:
        return super().task_of(source / "model")

    def load_task(self, kind: type, source: Path, *rest: Any) -> Any:
        return super().load_task(kind, source / "model", *rest)

    def load_backbone(self, source: Path, *rest: Any) -> Any:
        return super().load_backbone(source / "model", *rest)

    def load_tokenizer(self, source: Path) -> Any:
        return super().load_tokenizer(source / "model")


register_reader(RunReader())
register_reader(SavedReader(), last=True)


class _Saved(NamedTuple):
    """What the configuration of a saved model says, checked: its task, and what was done to its weights."""

    of: SavedOptions
    mode: str | None
    quantized_head: bool
    adapters: dict[str, dict[str, Any]]


def _read_saved(task_class: type, preset: Preset) -> _Saved:
    """Checks that a saved model brings options that its task declares, of their types."""
    options = dict(preset.description.options)
    mode = options.pop(QUANTIZATION, None)
    require_type(mode, str | None, f"{preset.path}: options.{QUANTIZATION}")
    quantized_head = options.pop(QUANTIZED_HEAD, True)
    require_type(quantized_head, bool, f"{preset.path}: options.{QUANTIZED_HEAD}")
    adapters = read_adapters(options.pop(ADAPTERS, {}), f"{preset.path}: options.{ADAPTERS}")
    of = read_saved_options(preset.description.task, options, task_class, str(preset.path))
    labels = of.options.get("labels")
    count = labels if isinstance(labels, int) else len(labels or ())
    if count > preset.weights.elements:
        raise ValueError(
            f"{preset.path}: options.labels must be at most as many as {preset.weights.path} holds numbers, "
            f"{preset.weights.elements}, got {count}."
        )
    return _Saved(of, mode, quantized_head, adapters)


def _from_open_preset(
    task_class: type,
    preset: Preset,
    saved: _Saved,
    load_weights: bool,
    given: dict[str, Any],
    replaced: dict[str, Any],
) -> Any:
    description, directory = preset.description, preset.path.parent
    with errors_of_file(preset.path):
        config = config_from_dict(description.backbone)
    with errors_of_file(f"{preset.path}: backbone"):
        # a packed number of "int4" is two weights
        require_weights(config, preset.weights.elements * (2 if saved.mode else 1), preset.weights.path.name)
    longest, config = config.max_length, replace_choices(config, replaced, load_weights=load_weights)
    of, options = saved.of, saved.of.under(given, longest, config.max_length)
    if of.task is not task_class and config.architecture not in task_class.architectures:
        raise ValueError(f"{directory} holds a {description.task}, not a {task_class.__name__}.")
    tokenizer = None if preset.tokenizer is None else Tokenizer.from_stored(preset.tokenizer)
    if preset.tokenizer is not None and tokenizer.vocabulary_size > config.vocabulary_size:
        raise ValueError(
            f"{preset.path}: backbone.vocabulary_size must be at least {tokenizer.vocabulary_size}, the number of "
            f"tokens in {tokenizer.source}, got {config.vocabulary_size}."
        )
    same = of.task is task_class and of.has_head_for(given)
    if not same and saved.mode is not None:
        raise ValueError(
            f"{directory} holds {saved.mode} weights, which cannot be trained further as a {task_class.__name__}."
        )
    if not same and "labels" not in given and "labels" in parameters_of(task_class.preprocessor_class):
        raise ValueError(
            f"labels must be names or a number of labels, got none: {directory} holds a {description.task}."
        )
    with deferred(directory.name) as scope:
        backbone = _backbone(config, description, preset.path, is_same=load_weights or not replaced)
        with errors_of_file(f"{preset.path}: options.{ADAPTERS}"):
            needed = backbone.adapters.minimum_weight_count(saved.adapters)
            if needed > preset.weights.elements:
                raise ValueError(
                    f"ranks must fit the {preset.weights.elements} numbers in {preset.weights.path.name}, got updates "
                    f"of {needed}."
                )
            backbone.adapters.restore(saved.adapters)
        with naming_options(preset.path):
            as_saved = of.make(backbone, tokenizer, options)
            task = of.make(backbone, tokenizer, {**options, **given}) if same and given else as_saved
        # Keras does not look for weights of a file that nobody reads
        if load_weights and [weight.shape for weight in task.weights] != [weight.shape for weight in as_saved.weights]:
            raise ValueError(
                f"Arguments must not change the weights of the head in {directory}, got {sorted(given)}: leave them "
                f"out, or make a {task_class.__name__} on the backbone of the loaded model."
            )
        if saved.mode is not None:
            before = task.variables
            with errors_of_file(f"{preset.path}: options.{QUANTIZATION}"):
                task.quantize(saved.mode, head=saved.quantized_head)
            held = {id(variable) for variable in task.variables}
            scope.forget(variable for variable in before if id(variable) not in held)
        if load_weights:
            preset.weights.check_shapes(task, str(preset.path))
            preset.weights.load_into(task)
    if same:
        return task
    if of.task is task_class:
        task = of.make(backbone, tokenizer, {**options, **given})
        found = "has the head of this task for other labels than those given"
    else:
        task = task_class(backbone, tokenizer, **{**of.shared_with(task_class, options), **given})
        found = "has no weights for the head of this task"
    if load_weights and len(task.weights) > len(backbone.weights):
        warn_user(f"{directory} {found}: it starts untrained.")
    return task


def _backbone(config: ModelConfig, description: PresetDescription, path: Path, is_same: bool) -> Backbone:
    """The backbone of a saved model, with initial weights; `is_same`: of the same number as those that were saved."""
    with errors_of_file(path):
        backbone = Backbone.from_config(config)
    if is_same and backbone.parameter_count() != description.parameter_count:
        raise ValueError(
            f"{path}: parameter_count must be {backbone.parameter_count()}, the number of weights that its backbone "
            f"describes, got {description.parameter_count}: the file was changed."
        )
    if description.origin is not None:
        backbone.origin = to_dataclass(Origin, description.origin, f"{path}: origin")
    return backbone
