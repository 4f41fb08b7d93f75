"""Adapters of the PEFT library as a source of `from_preset`: the model that they name, with their updates."""

import contextlib
import itertools
import types
import warnings
from pathlib import Path
from typing import Any

from zoo.backbones.backbone import Backbone
from zoo.config import REPLACEABLE
from zoo.huggingface.adapter_config import CONFIG_FILE, TASK_TYPES, WEIGHTS_FILE, AdapterConfig, read_adapter_config
from zoo.huggingface.adapter_head import outputs_of_head
from zoo.huggingface.adapters import is_adapter, load_adapter
from zoo.huggingface.directory import head_layers
from zoo.storage import Reader, find_reader, means_own, open_tensor_file, register_reader
from zoo.storage.hub import PREFIX as HUB
from zoo.storage.hub import is_address
from zoo.storage.user_warnings import warn_user
from zoo.tasks.adapter_options import OPTIONS_FILE, AdapterOptions, read_adapter_options, saved_options_of
from zoo.tasks.registry import SavedOptions, default_of, naming_options, parameters_of
from zoo.tokenizers import load_huggingface
from zoo.tokenizers.chat.formats import get_chat_format

# adapters of models that are adapters
MOST_STACKED = 8
# that say that there is a tokenizer
_TOKENIZER_FILES = ("tokenizer.json", "tokenizer_config.json")


class AdapterReader(Reader):
    """A directory with `adapter_config.json` and `adapter_model.safetensors`, whose model is somewhere else."""

    looks_for = "an adapter of PEFT (adapter_config.json that names its model)"

    def accepts(self, source: Path) -> bool:
        return is_adapter(source)

    def task_of(self, source: Path) -> str:
        described = read_adapter_options(source)
        if described is not None:
            return described.task
        config = read_adapter_config(source)
        found = next((task for task, kind in TASK_TYPES.items() if kind == config.task_type), None)
        if found is None:
            reader, base = _model_of(config, source)
            return reader.task_of(base)
        return found

    def load_task(self, kind: type, source: Path, load_weights: bool, tokenizer: Any, choices: dict[str, Any]) -> Any:
        config = read_adapter_config(source)
        described = read_adapter_options(source)
        if described is None:
            return _from_peft(kind, source, config, load_weights, tokenizer, choices)
        saved = saved_options_of(described, kind, source)
        if issubclass(saved.task, kind):
            return _as_saved(saved, described, source, config, load_weights, tokenizer, choices)
        reader, base = _model_of(config, source)
        longest = described.max_length
        options = saved.under({}, longest, choices.get("max_length", longest))
        choices = {**described.replaced(), **saved.shared_with(kind, options), **choices}
        task = reader.load_task(kind, base, load_weights, tokenizer, choices)
        if load_weights:
            load_adapter(task, source, _free_name(task.backbone), head=False)
        return task

    def load_backbone(self, source: Path, load_weights: bool, choices: dict[str, Any]) -> Any:
        reader, base = _model_of(read_adapter_config(source), source)
        described = read_adapter_options(source)
        if described is not None:
            choices = {**described.replaced(), **choices}
        backbone = reader.load_backbone(base, load_weights, choices)
        if load_weights:
            load_adapter(types.SimpleNamespace(backbone=backbone), source, _free_name(backbone), head=False)
        return backbone

    def load_tokenizer(self, source: Path) -> Any:
        return _load_tokenizer(source, read_adapter_config(source), read_adapter_options(source))


def _as_saved(
    saved: SavedOptions,
    described: AdapterOptions,
    source: Path,
    config: AdapterConfig,
    load_weights: bool,
    tokenizer: Any,
    choices: dict[str, Any],
) -> Any:
    """The task that wrote an adapter, on the backbone of its model."""
    reader, base = _model_of(config, source)
    replaced = {name: choices[name] for name in choices if name in REPLACEABLE and name not in saved.parameters}
    given = {name: choices[name] for name in choices if name not in replaced}
    backbone = reader.load_backbone(base, load_weights, {**described.replaced(), **replaced})
    if means_own(tokenizer):
        tokenizer = _load_tokenizer(source, config, described)
    options = saved.under(given, described.max_length, backbone.config.max_length)
    # what the user gives may be wrong too
    with contextlib.nullcontext() if given else naming_options(source / OPTIONS_FILE):
        task = saved.make(backbone, tokenizer, {**options, **given})
    task.adaptation.take_over()
    if load_weights:
        has_head_for = saved.has_head_for(given)
        _, has_head = load_adapter(task, source, _free_name(backbone), head=has_head_for)
        if head_layers(task) and not has_head:
            found = (
                "no weights for the head" if has_head_for else "the head of this task for other labels than those given"
            )
            warn_user(f"{source} has {found}: it starts untrained.")
    return task


def _from_peft(
    kind: type, source: Path, config: AdapterConfig, load_weights: bool, tokenizer: Any, choices: dict[str, Any]
) -> Any:
    """A task with an adapter that PEFT wrote: what its files do not say is as the model has it."""
    reader, base = _model_of(config, source)
    with open_tensor_file(source / WEIGHTS_FILE) as tensors:
        outputs = outputs_of_head(tensors, kind.__name__)
    if outputs is not None:
        # what was fitted to the head of the model is not of this one
        choices = {**{name: default_of(kind, name) for name in kind.fitted_options}, **choices}
        if "labels" not in choices and not _is_of(reader, base, kind):
            choices = {**_labels(kind, outputs), **choices}
    with warnings.catch_warnings():
        if load_weights and outputs is not None:
            warnings.filterwarnings("ignore", message=".*: it starts untrained")  # it is in the adapter
        task = reader.load_task(kind, base, load_weights, tokenizer, choices)
    own = _beside(source, task.tokenizer) if means_own(tokenizer) else task.tokenizer
    if own is not task.tokenizer:
        made = type(task.preprocessor)(own, **task.preprocessor.options())
        task.preprocessor = made.for_backbone(task.backbone.config)
    if load_weights:
        load_adapter(task, source, _free_name(task.backbone))
    return task


def _load_tokenizer(source: Path, config: AdapterConfig, described: AdapterOptions | None) -> Any:
    """The tokenizer of the model of an adapter, which writes conversations as those that the adapter was trained on."""
    reader, base = _model_of(config, source)
    tokenizer = reader.load_tokenizer(base)
    if described is None:
        return _beside(source, tokenizer)
    if tokenizer is None or described.chat_format is None:
        return tokenizer
    with naming_options(source / OPTIONS_FILE):
        return tokenizer.with_chat_format(get_chat_format(described.chat_format))


def _beside(source: Path, tokenizer: Any) -> Any:
    """The tokenizer in the folder of an adapter, with the chat template of its training; or that of its model."""
    if not any((source / name).is_file() for name in _TOKENIZER_FILES):
        return tokenizer
    own = load_huggingface(source)
    if tokenizer is not None and own.get_vocabulary() != tokenizer.get_vocabulary():
        warn_user(
            f"The tokenizer in {source} has {own.vocabulary_size} tokens, others than the {tokenizer.vocabulary_size} "
            "of the model that the adapter is for: that of the model is used."
        )
        return tokenizer
    return own


def _free_name(backbone: Backbone) -> str:
    """A name for an adapter that none of a backbone has."""
    names = itertools.chain(["default"], (f"default_{number}" for number in itertools.count(2)))
    return next(name for name in names if name not in backbone.adapters)


def _model_of(config: AdapterConfig, source: Path) -> tuple[Reader, Path]:
    """Who reads the model that an adapter is for, perhaps with further adapters, and where it is."""
    found = next_found = _named_by(config, source)
    for _ in range(MOST_STACKED):
        if not isinstance(next_found[0], AdapterReader):
            return found
        next_found = _named_by(read_adapter_config(next_found[1]), next_found[1])
    raise ValueError(f"{source / CONFIG_FILE}: adapters must be stacked at most {MOST_STACKED} high, got more.")


def _named_by(config: AdapterConfig, source: Path) -> tuple[Reader, Path]:
    key, name = f"{source / CONFIG_FILE}: base_model_name_or_path", config.base_model_name_or_path
    if not name:
        raise ValueError(f"{key} must name the model, got {name!r}: load that first, then call load_adapter() of it.")
    if name.startswith(HUB) and config.revision:
        if "@" in name:
            raise ValueError(f"{key} must have no revision where there is one ({config.revision!r}), got {name!r}.")
        name = f"{name}@{config.revision}"
    try:
        return find_reader(name)
    except ValueError as error:
        address = HUB + name + (f"@{config.revision}" if config.revision else "")
        if name.startswith(HUB) or Path(name).is_absolute() or not is_address(address):
            raise ValueError(f"{key} must name a model. {error}") from error
        return find_reader(address)


def _is_of(reader: Reader, base: Path, kind: type) -> bool:
    with contextlib.suppress(ValueError):
        return reader.task_of(base) == kind.__name__
    return False


def _labels(kind: type, outputs: int) -> dict[str, Any]:
    """The labels of a head that the model itself has not, where the adapter brings it."""
    parameters = parameters_of(kind, kind.preprocessor_class)
    if "labels" not in parameters:
        return {}
    # a single number is a value there, too
    return {"labels": outputs, **({"problem": "regression"} if outputs == 1 and "problem" in parameters else {})}


register_reader(AdapterReader())
