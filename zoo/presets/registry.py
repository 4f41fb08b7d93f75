"""Presets: configurations with a name."""

import dataclasses
import difflib
from typing import Any

from zoo.backbones.backbone import Backbone
from zoo.config import TransformerConfig, override
from zoo.storage.deferred import shapes_only

_PRESETS: dict[str, "Preset"] = {}


@dataclasses.dataclass(frozen=True)
class Preset:
    """A named architecture.

    Args:
        name: The name.
        config: The configuration.
        description: Description in one line.
        paper: The paper of the architecture.
        parameters: Number of weights, if it is known, to show it without counting.
        weights: Address of the published weights, `hf://owner/name`; None if there are none.
    """

    name: str
    config: TransformerConfig
    description: str
    paper: str
    parameters: int | None = None
    weights: str | None = None

    def parameter_count(self) -> int:
        """Returns the exact number of weights, without allocating any."""
        with shapes_only():
            return Backbone.from_config(self.config).parameter_count()


def register_preset(
    name: str,
    config: TransformerConfig,
    description: str,
    paper: str,
    parameters: int | None = None,
    weights: str | None = None,
) -> None:
    """Registers a preset.

    Args:
        name: The name, which must be new.
        config: The configuration.
        description: Description in one line.
        paper: The paper of the architecture.
        parameters: Number of weights, if it is known.
        weights: Address of the published weights, `hf://owner/name`.

    Raises:
        ValueError: If the name is in use.
    """
    if name in _PRESETS:
        raise ValueError(f"A preset named {name!r} exists already.")
    _PRESETS[name] = Preset(name, config, description, paper, parameters, weights)


def get_preset(name: str) -> Preset:
    """Returns the preset of a name.

    Raises:
        ValueError: If the name is unknown. The message suggests the nearest.
    """
    if name not in _PRESETS:
        raise ValueError(f"There is no preset {name!r}.{near_preset(name)} Known presets: {', '.join(_PRESETS)}.")
    return _PRESETS[name]


def near_preset(name: str) -> str:
    """Returns the question whether another name was meant; nothing where no preset has a similar one.

    Args:
        name: A name that no preset has.

    Example:

    >>> near_preset("bert_base_uncase")
    " Did you mean 'bert_base_uncased'?"
    """
    near = difflib.get_close_matches(name, _PRESETS, n=1)
    return f" Did you mean {near[0]!r}?" if near else ""


def preset_config(name: str, /, **overrides: Any) -> TransformerConfig:
    """Returns the configuration of a preset, with some choices replaced.

    Args:
        name: Name of the preset.
        **overrides: Fields of the configuration, for example `vocabulary_size=8000`. For a part, a dictionary of the
            fields that differ, for example `norm={"kind": "rms"}`. If the kind changes, the choices of the preset that
            the new kind has are kept.

    Raises:
        ValueError: If the preset or a field is unknown (the message suggests the nearest), or a value is out of range.

    Example:

    >>> preset_config("transformer_tiny", vocabulary_size=8000).hidden_dim
    128
    """
    return override(get_preset(name).config, overrides)


class PresetTable(dict[str, Preset]):
    """Presets by name; prints as a table."""

    def __repr__(self) -> str:
        from zoo.presets.table import preset_table

        return preset_table(self)


def list_presets(*words: str) -> PresetTable:
    """Returns presets by name, as a dictionary that prints as a table.

    Args:
        *words: Words. A preset is returned if its name contains any of them. Without words all presets are returned.

    Example:

    >>> zoo.list_presets()["bert_base_uncased"].parameters
    109482240
    """
    chosen = (name for name in _PRESETS if not words or any(word in name for word in words))
    return PresetTable({name: _PRESETS[name] for name in chosen})
