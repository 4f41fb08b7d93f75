"""Named presets among what `from_preset` reads."""

import os
from pathlib import Path
from typing import Any

from zoo.backbones.backbone import Backbone
from zoo.presets.registry import get_preset, list_presets, near_preset, preset_config
from zoo.storage import HubError, Reader, find_reader, means_own, register_reader


class NamedReader(Reader):
    """An architecture by its name: with its published weights, or with random ones."""

    looks_for = "a name of zoo.list_presets()"

    def hint(self, name: str) -> str:
        # a path is no misspelt name
        return "" if os.sep in name else near_preset(name)

    def accepts(self, source: Path) -> bool:
        # a directory of this name is meant where there is one
        return os.fspath(source) in list_presets() and not source.exists()

    def task_of(self, source: Path) -> str:
        reader, directory = _published(source)
        return reader.task_of(directory)

    def load_task(self, kind: type, source: Path, load_weights: bool, tokenizer: Any, choices: dict[str, Any]) -> Any:
        if load_weights:
            reader, directory = _published(source)
            return reader.load_task(kind, directory, True, tokenizer, choices)
        parameters = kind.arguments()
        given = {name: value for name, value in choices.items() if name in parameters}
        overrides = {key: value for key, value in choices.items() if key not in given}
        return kind(self.load_backbone(source, False, overrides), None if means_own(tokenizer) else tokenizer, **given)

    def load_backbone(self, source: Path, load_weights: bool, choices: dict[str, Any]) -> Any:
        if load_weights:
            reader, directory = _published(source)
            return reader.load_backbone(directory, True, choices)
        return Backbone.from_config(preset_config(os.fspath(source), **choices))

    def load_tokenizer(self, source: Path) -> Any:
        reader, directory = _published(source)
        return reader.load_tokenizer(directory)

    def load_preprocessor(self, kind: type, source: Path, tokenizer: Any, options: dict[str, Any]) -> Any:
        if not means_own(tokenizer) and get_preset(os.fspath(source)).weights is None:
            return super().load_preprocessor(kind, source, tokenizer, options)
        reader, directory = _published(source)
        return reader.load_preprocessor(kind, directory, tokenizer, options)


def _published(source: Path) -> tuple[Reader, Path]:
    """Who reads the published files of a preset, and where they are."""
    preset = get_preset(os.fspath(source))
    advice = "pass load_weights=False for random ones, or the directory of a saved model"
    if preset.weights is None:
        raise ValueError(f"The preset {preset.name!r} names an architecture and has no weights: {advice}.")
    try:
        return find_reader(preset.weights)
    except OSError as error:
        raise HubError(
            f"The preset {preset.name!r} has its weights and tokenizer in {preset.weights}. {error} Else {advice}."
        ) from error


register_reader(NamedReader())
