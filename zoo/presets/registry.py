"""Presets: configurations with a name."""

import concurrent.futures
import dataclasses
import difflib
from typing import Any

import keras

from zoo.backbones.backbone import Backbone
from zoo.config import TransformerConfig

_PRESETS: dict[str, "Preset"] = {}


@dataclasses.dataclass(frozen=True)
class Preset:
    """A named architecture.

    Args:
        name: The name.
        config: The configuration.
        description: One line.
        paper: Where the architecture is from.
    """

    name: str
    config: TransformerConfig
    description: str
    paper: str

    def parameter_count(self) -> int:
        """Returns the exact number of weights; none are allocated."""

        def count() -> int:
            # inside this scope variables have shapes and no values
            with keras.StatelessScope(initialize_variables=False):
                return Backbone.from_config(self.config).parameter_count()

        # Keras gives such variables their values when the next such scope ends, at any later call of any layer. It keeps
        # that list for each thread; that of a thread of our own goes with it.
        with concurrent.futures.ThreadPoolExecutor(1) as thread:
            return thread.submit(count).result()


def register_preset(name: str, config: TransformerConfig, description: str, paper: str) -> None:
    """Adds a preset.

    Args:
        name: The name; must be new.
        config: The configuration.
        description: One line.
        paper: Where the architecture is from.

    Raises:
        ValueError: If the name is taken.
    """
    if name in _PRESETS:
        raise ValueError(f"A preset named {name!r} exists already.")
    _PRESETS[name] = Preset(name, config, description, paper)


def get_preset(name: str) -> Preset:
    """Returns the preset of a name.

    Raises:
        ValueError: If there is none, naming the nearest.
    """
    if name not in _PRESETS:
        near = difflib.get_close_matches(name, _PRESETS, n=1)
        hint = f" Did you mean {near[0]!r}?" if near else ""
        raise ValueError(f"There is no preset {name!r} and no such directory.{hint} Known: {', '.join(_PRESETS)}.")
    return _PRESETS[name]


def preset_config(name: str, **overrides: Any) -> TransformerConfig:
    """Returns the configuration of a preset, with top-level choices replaced.

    Args:
        name: Name of the preset.
        **overrides: Fields of the configuration, for example `vocabulary_size=8000`.

    Raises:
        ValueError: If there is no such preset or field (naming the nearest), or a value is out of range.

    Example:

    >>> preset_config("transformer_tiny", vocabulary_size=8000).hidden_dim
    128
    """
    config = get_preset(name).config
    fields = [field.name for field in dataclasses.fields(config)]
    for key in overrides:
        if key not in fields:
            near = difflib.get_close_matches(key, fields, n=1)
            hint = f" Did you mean {near[0]!r}?" if near else ""
            raise ValueError(f"A configuration has no {key!r} to override.{hint} Known: {', '.join(fields)}.")
    return dataclasses.replace(config, **overrides)


def list_presets() -> dict[str, Preset]:
    """Returns all presets by name."""
    return dict(_PRESETS)
