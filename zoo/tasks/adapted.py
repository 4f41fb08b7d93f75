"""Adapters of the PEFT library among what `from_preset` reads: the model that they name, with their updates."""

import contextlib
import itertools
import types
import warnings
from pathlib import Path
from typing import Any

from zoo.backbones.backbone import Backbone
from zoo.huggingface.adapter_config import CONFIG_FILE, TASK_TYPES, WEIGHTS_FILE, AdapterConfig, read_adapter_config
from zoo.huggingface.adapter_head import outputs_of_head
from zoo.huggingface.adapters import is_adapter, load_adapter
from zoo.storage import Reader, find_reader, open_tensor_file, register_reader
from zoo.storage.hub import PREFIX as HUB
from zoo.storage.hub import is_address
from zoo.tasks.arguments import parameters_of

# adapters of models that are adapters
MOST_STACKED = 8


class AdapterReader(Reader):
    """A directory with `adapter_config.json` and `adapter_model.safetensors`, whose model is somewhere else."""

    looks_for = "an adapter of PEFT (adapter_config.json that names its model)"

    def accepts(self, source: Path) -> bool:
        # beside a model it is part of that
        return is_adapter(source) and not (source / "config.json").exists()

    def task_of(self, source: Path) -> str:
        config = read_adapter_config(source)
        found = next((task for task, kind in TASK_TYPES.items() if kind == config.task_type), None)
        if found is None:
            reader, base = _model_of(config, source)
            return reader.task_of(base)
        return found

    def load_task(self, kind: type, source: Path, load_weights: bool, tokenizer: Any, choices: dict[str, Any]) -> Any:
        config = read_adapter_config(source)
        reader, base = _model_of(config, source)
        if config.modules_to_save and "labels" not in choices and not _is_of(reader, base, kind):
            choices = {**choices, **_labels(kind, source)}
        with warnings.catch_warnings():
            if load_weights and config.modules_to_save:
                warnings.filterwarnings("ignore", message=".*: it starts untrained")  # it is in the adapter
            task = reader.load_task(kind, base, load_weights, tokenizer, choices)
        if load_weights:
            task.load_adapter(source, _free_name(task.backbone))
        return task

    def load_backbone(self, source: Path, load_weights: bool, choices: dict[str, Any]) -> Any:
        reader, base = _model_of(read_adapter_config(source), source)
        backbone = reader.load_backbone(base, load_weights, choices)
        if load_weights:
            load_adapter(types.SimpleNamespace(backbone=backbone), source, _free_name(backbone), head=False)
        return backbone

    def load_tokenizer(self, source: Path) -> Any:
        reader, base = _model_of(read_adapter_config(source), source)
        return reader.load_tokenizer(base)


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


def _labels(kind: type, source: Path) -> dict[str, int]:
    """The number of labels of a head that the model itself has not, where the adapter brings it."""
    if "labels" not in parameters_of(kind, kind.preprocessor_class):
        return {}
    with open_tensor_file(source / WEIGHTS_FILE) as tensors:
        count = outputs_of_head(tensors, kind.__name__)
    return {} if count is None else {"labels": count}


register_reader(AdapterReader())
