"""Models that `save_to_preset` wrote, and folders of runs, among what `from_preset` reads."""

import contextlib
import warnings
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple

from zoo.backbones.backbone import Backbone
from zoo.config import REPLACEABLE, ModelConfig, config_from_dict, replace_choices, require_weights
from zoo.preprocessing.labels import have_same_outputs
from zoo.storage import (
    Preset,
    PresetDescription,
    Reader,
    naming,
    open_preset,
    quote,
    read_description,
    register_reader,
    require_type,
)
from zoo.storage.deferred import deferred
from zoo.storage.preset_format import CONFIG_FILE
from zoo.tasks.arguments import keyword_arguments, parameters_of
from zoo.tasks.kinds import registered_tasks, task_class_of
from zoo.tasks.saving import ADAPTERS, PREPROCESSOR, QUANTIZATION, QUANTIZED_HEAD, read_adapters, registered_kind
from zoo.tokenizers import Tokenizer

# options of another task that hold for any: those of the texts
_SHARED = ("sequence_length", "truncate", "pair_separators")


class SavedReader(Reader):
    """A directory that `save_to_preset` wrote."""

    looks_for = "a saved model (config.json of save_to_preset)"

    def accepts(self, source: Path) -> bool:
        # asked after those who know other files of this name: what is damaged is said when it is read
        return (source / CONFIG_FILE).is_file()

    def task_of(self, source: Path) -> str:
        return read_description(source).task

    def load_task(self, kind: type, source: Path, load_weights: bool, tokenizer: Any, choices: dict[str, Any]) -> Any:
        with open_preset(source) as preset:
            saved = _read_saved(kind, preset)
            known = saved.parameters if saved.task is kind else parameters_of(kind, kind.preprocessor_class)
            replaced = {name: choices[name] for name in choices if name in REPLACEABLE}
            given = {name: choices[name] for name in choices if name not in replaced}
            others = sorted(set(given) - set(known)) + ["tokenizer"] * (tokenizer is not None)
            if others:
                raise ValueError(
                    f"A saved model ({source}) brings its own configuration and tokenizer; got {others} too."
                )
            return _from_open_preset(kind, preset, saved, load_weights, given, replaced)

    def load_backbone(self, source: Path, load_weights: bool, choices: dict[str, Any]) -> Any:
        kind = task_class_of(self.task_of(source), str(source / CONFIG_FILE))
        with open_preset(source) as preset:
            return _from_open_preset(kind, preset, _read_saved(kind, preset), load_weights, {}, choices).backbone

    def load_tokenizer(self, source: Path) -> Any:
        with open_preset(source, weights=False) as preset:
            return None if preset.tokenizer is None else Tokenizer.from_stored(preset.tokenizer)


class RunReader(SavedReader):
    """The folder of a run, with the model that it has trained in `model`."""

    looks_for = "the folder of a run (with model)"

    def accepts(self, source: Path) -> bool:
        return not (source / CONFIG_FILE).exists() and super().accepts(source / "model")

    def task_of(self, source: Path) -> str:
        return super().task_of(source / "model")

    def load_task(self, kind: type, source: Path, *rest: Any) -> Any:
        return super().load_task(kind, source / "model", *rest)

    def load_tokenizer(self, source: Path) -> Any:
        return super().load_tokenizer(source / "model")


register_reader(RunReader())
register_reader(SavedReader(), last=True)


class _Saved(NamedTuple):
    """What the configuration of a saved model says, checked: its task, preprocessor, their arguments and options."""

    task: type
    preprocessor: type
    parameters: dict[str, Any]
    options: dict[str, Any]
    mode: str | None
    quantized_head: bool
    adapters: dict[str, dict[str, Any]]

    def make(self, backbone: Backbone, tokenizer: Any, options: dict[str, Any]) -> Any:
        """The task with initial weights."""
        if self.preprocessor is self.task.preprocessor_class:
            return self.task(backbone, tokenizer, **options)
        names = keyword_arguments(self.preprocessor)
        preprocessor = self.preprocessor(tokenizer, **{name: options[name] for name in options if name in names})
        return self.task(backbone, preprocessor, **{name: options[name] for name in options if name not in names})


def _read_saved(task_class: type, preset: Preset) -> _Saved:
    """Checks that a saved model brings options that its task declares, of their types."""
    kind = preset.description.task
    saved_class = task_class if kind == task_class.__name__ else registered_tasks().get(kind)
    if saved_class is None:
        known = f"{task_class.__name__!r} or one of {sorted(registered_tasks())}"
        raise ValueError(f"{preset.path}: task must be {known}, got {quote(kind)}.")
    options = dict(preset.description.options)
    mode, name = options.pop(QUANTIZATION, None), options.pop(PREPROCESSOR, None)
    require_type(mode, str | None, f"{preset.path}: options.{QUANTIZATION}")
    quantized_head = options.pop(QUANTIZED_HEAD, True)
    require_type(quantized_head, bool, f"{preset.path}: options.{QUANTIZED_HEAD}")
    adapters = read_adapters(options.pop(ADAPTERS, {}), f"{preset.path}: options.{ADAPTERS}")
    preprocessor = saved_class.preprocessor_class
    if name is not None:
        preprocessor = registered_kind(name, f"{preset.path}: options.{PREPROCESSOR}")
        if not issubclass(preprocessor, saved_class.preprocessor_class):
            raise ValueError(
                f"{preset.path}: options.{PREPROCESSOR} must name a {saved_class.preprocessor_class.__name__} for a "
                f"{saved_class.__name__}, got {quote(name)}."
            )
    allowed = parameters_of(saved_class, preprocessor)
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
    return _Saved(saved_class, preprocessor, allowed, options, mode, quantized_head, adapters)


def _from_open_preset(
    task_class: type,
    preset: Preset,
    saved: _Saved,
    load_weights: bool,
    given: dict[str, Any],
    replaced: dict[str, Any],
) -> Any:
    description, directory = preset.description, preset.path.parent
    with naming(preset.path):
        config = config_from_dict(description.backbone)
    options, longest = dict(saved.options), config.max_length
    config = replace_choices(config, replaced)
    if config.max_length != longest and isinstance(options.get("sequence_length"), int):
        # a task keeps its length as a number: that of its backbone, unless it was given a smaller one
        length = options.pop("sequence_length")
        if length != longest:
            options["sequence_length"] = min(length, config.max_length)
    if "problem" in given and given["problem"] != options.get("problem"):
        # what was fitted to other probabilities
        options = {name: value for name, value in options.items() if name not in task_class.fitted_options}
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
    same = saved.task is task_class and (
        "labels" not in given or have_same_outputs(given["labels"], options.get("labels"))
    )
    if not same and saved.mode is not None:
        raise ValueError(
            f"{directory} holds {saved.mode} weights, which cannot be trained further as a {task_class.__name__}."
        )
    if not same and "labels" not in given and "labels" in parameters_of(task_class.preprocessor_class):
        raise ValueError(
            f"labels must be names or a number of labels, got none: {directory} holds a {description.task}."
        )
    with deferred(directory.name) as scope:
        backbone = _backbone(config, description, preset.path)
        with naming(f"{preset.path}: options.{ADAPTERS}"):
            needed = backbone.adapters.least_weights(saved.adapters)
            if needed > preset.weights.elements:
                raise ValueError(
                    f"ranks must fit the {preset.weights.elements} numbers in {preset.weights.path.name}, got updates "
                    f"of {needed}."
                )
            backbone.adapters.restore(saved.adapters)
        with _naming_options(preset):
            as_saved = saved.make(backbone, tokenizer, options)
            task = saved.make(backbone, tokenizer, {**options, **given}) if same and given else as_saved
        # Keras does not look for weights of a file that nobody reads
        if load_weights and [weight.shape for weight in task.weights] != [weight.shape for weight in as_saved.weights]:
            raise ValueError(
                f"Arguments must leave the head as it is in {directory}, got {sorted(given)}, with which it has other "
                f"weights: leave them out, or make a {task_class.__name__} on the backbone of the loaded model."
            )
        if saved.mode is not None:
            before = task.variables
            with naming(f"{preset.path}: options.{QUANTIZATION}"):
                task.quantize(saved.mode, head=saved.quantized_head)
            held = {id(variable) for variable in task.variables}
            scope.forget(variable for variable in before if id(variable) not in held)
        if load_weights:
            preset.weights.check_shapes(task, str(preset.path))
            preset.weights.load_into(task)
    if same:
        return task
    if load_weights:
        found = "has no weights for the head of this task"
        if saved.task is task_class:
            found = "has the head of this task for other labels than those given"
        warnings.warn(f"{directory} {found}: it starts untrained.", stacklevel=4)
    if saved.task is task_class:
        kept = {name: value for name, value in options.items() if name not in task_class.fitted_options}
        return saved.make(backbone, tokenizer, {**kept, **given})
    shared = set(_SHARED) & set(parameters_of(task_class, task_class.preprocessor_class)) & set(options)
    return task_class(backbone, tokenizer, **{**{name: options[name] for name in shared}, **given})


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
