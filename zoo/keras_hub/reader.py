"""Presets of KerasHub among what `from_preset` reads."""

import dataclasses
import warnings
from pathlib import Path
from typing import Any

from zoo.config import TransformerConfig
from zoo.huggingface.directory import head_layers
from zoo.keras_hub.directory import is_keras_hub, load_backbone
from zoo.keras_hub.tokenizers import read_tokenizer
from zoo.storage import Reader, register_reader


class KerasHubReader(Reader):
    """A directory that `save_to_preset` of KerasHub wrote."""

    looks_for = "a preset of KerasHub (config.json with a registered_name of keras_hub)"

    def accepts(self, source: Path) -> bool:
        return is_keras_hub(source)

    def task_of(self, source: Path) -> str:
        raise ValueError(f"task must be given: {source}, a preset of KerasHub, does not say it.")

    def load_task(self, kind: type, source: Path, load_weights: bool, tokenizer: Any, choices: dict[str, Any]) -> Any:
        fields = {field.name for field in dataclasses.fields(TransformerConfig)}
        overrides = {key: value for key, value in choices.items() if key in fields}
        backbone = self.load_backbone(source, load_weights, overrides)
        if backbone.config.architecture not in kind.architectures:
            raise ValueError(
                f"{source} holds a backbone of the kind {backbone.config.architecture!r}, of which there is "
                f"no {kind.__name__}."
            )
        tokenizer = self.load_tokenizer(source) if tokenizer is None else tokenizer
        task = kind(backbone, tokenizer, **{key: value for key, value in choices.items() if key not in fields})
        if load_weights and head_layers(task):
            warnings.warn(
                f"{source}: heads of KerasHub are not read; that of this task starts untrained.", stacklevel=4
            )
        return task

    def load_backbone(self, source: Path, load_weights: bool, choices: dict[str, Any]) -> Any:
        return load_backbone(source, load_weights=load_weights, **choices)

    def load_tokenizer(self, source: Path) -> Any:
        return read_tokenizer(source)


register_reader(KerasHubReader())
