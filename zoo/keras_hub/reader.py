"""Presets of KerasHub among what `from_preset` reads."""

from pathlib import Path
from typing import Any

from zoo.keras_hub.directory import is_keras_hub, load_backbone
from zoo.keras_hub.tasks import load_task, task_of
from zoo.keras_hub.tokenizers import read_tokenizer
from zoo.storage import Reader, read_one_version, register_reader


class KerasHubReader(Reader):
    """A directory that `save_to_preset` of KerasHub wrote."""

    looks_for = "a preset of KerasHub (config.json of keras_hub)"

    def accepts(self, source: Path) -> bool:
        return is_keras_hub(source)

    def task_of(self, source: Path) -> str:
        return task_of(source)

    def load_task(self, kind: type, source: Path, load_weights: bool, tokenizer: Any, choices: dict[str, Any]) -> Any:
        return read_one_version(
            source, lambda: load_task(kind, source, load_weights=load_weights, tokenizer=tokenizer, **choices)
        )

    def load_backbone(self, source: Path, load_weights: bool, choices: dict[str, Any]) -> Any:
        return read_one_version(source, lambda: load_backbone(source, load_weights=load_weights, **choices))

    def load_tokenizer(self, source: Path) -> Any:
        return read_one_version(source, lambda: read_tokenizer(source))


register_reader(KerasHubReader())
