"""Named presets among what `from_preset` reads."""

import os
from pathlib import Path
from typing import Any

from zoo.backbones.backbone import Backbone
from zoo.presets.registry import get_preset, list_presets, near_presets, preset_config
from zoo.storage import Reader, register_reader


class NamedReader(Reader):
    """An architecture by its name, with random weights."""

    looks_for = "a name of zoo.list_presets()"

    def hint(self, name: str) -> str:
        return near_presets(name)

    def accepts(self, source: Path) -> bool:
        # a directory of this name is meant where there is one
        return os.fspath(source) in list_presets() and not source.exists()

    def task_of(self, source: Path) -> str:
        raise ValueError(f"task must be given: {source} names an architecture.")

    def load_task(self, kind: type, source: Path, load_weights: bool, tokenizer: Any, choices: dict[str, Any]) -> Any:
        parameters = kind.parameters()
        given = {name: value for name, value in choices.items() if name in parameters}
        overrides = {key: value for key, value in choices.items() if key not in given}
        return kind(self.load_backbone(source, load_weights, overrides), tokenizer, **given)

    def load_backbone(self, source: Path, load_weights: bool, choices: dict[str, Any]) -> Any:
        name = os.fspath(source)
        config = preset_config(name, **choices)
        if load_weights:
            raise ValueError(
                f"The preset {name!r} names an architecture and has no weights: pass load_weights=False for random "
                "ones, or the directory of a saved model."
            )
        return Backbone.from_config(config)

    def load_tokenizer(self, source: Path) -> Any:
        raise ValueError(f"The preset {get_preset(os.fspath(source)).name!r} has no tokenizer: pass tokenizer=.")


register_reader(NamedReader())
