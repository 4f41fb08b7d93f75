"""Which choices of a model may be replaced once it has weights."""

import dataclasses
import difflib
from collections.abc import Mapping
from typing import Any

from zoo.config.components import NormConfig
from zoo.config.model import ModelConfig
from zoo.config.position import PositionConfig
from zoo.config.recurrent import RecurrentConfig
from zoo.config.transformer import TransformerConfig

# those that change no weights
REPLACEABLE = ("dropout", "max_length")


def replace_choices(
    config: TransformerConfig | RecurrentConfig, choices: Mapping[str, Any], *, load_weights: bool = True
) -> TransformerConfig | RecurrentConfig:
    """Returns the configuration of a model, with choices replaced.

    Args:
        config: The configuration.
        choices: Values of `dropout` and `max_length`; of `dropout` alone for a model with learned positions. Without
            weights any, see `override`.
        load_weights: Whether the model gets the weights that the configuration is of.

    Raises:
        ValueError: If another choice is given, or a value is out of range.

    Example:

    >>> replace_choices(config, {"dropout": 0.0}).dropout
    0.0
    """
    if not load_weights:
        return override(config, choices)
    allowed = replaceable(config)
    for name in choices:
        if name not in allowed:
            near = difflib.get_close_matches(name, allowed, n=1)
            hint = f" Did you mean {near[0]!r}?" if near else ""
            raise ValueError(
                f"Overrides of a model with weights must be among {allowed}, got {name!r}.{hint} With "
                "load_weights=False any choice can be replaced."
            )
    return dataclasses.replace(config, **choices)


def override(config: Any, overrides: Mapping[str, Any], prefix: str = "") -> Any:
    """Returns a configuration, or a part of one, with some choices replaced.

    Args:
        config: The configuration.
        overrides: Values of its fields; for a part, a dictionary of the fields that differ. If the kind changes, the
            choices that the new kind has are kept.
        prefix: What is put before the names of fields in errors.

    Raises:
        ValueError: If a field is unknown (the message suggests the nearest), or a value is out of range.

    Example:

    >>> override(config, {"num_layers": 2, "norm": {"kind": "rms"}}).norm.kind
    'rms'
    """
    fields = [field.name for field in dataclasses.fields(config)]
    values = {}
    if isinstance(config, (NormConfig, PositionConfig)) and isinstance(overrides.get("kind"), str):
        config = config.of_kind(overrides["kind"])
    for key, value in overrides.items():
        if key not in fields:
            near = difflib.get_close_matches(key, fields, n=1)
            hint = f" Did you mean {prefix + near[0]!r}?" if near else ""
            raise ValueError(f"A configuration has no {prefix + key!r} to override.{hint} Known: {', '.join(fields)}.")
        part = getattr(config, key)
        if dataclasses.is_dataclass(part) and isinstance(value, dict):
            value = override(part, value, f"{prefix}{key}.")
        # files know lists only
        values[key] = tuple(value) if isinstance(value, list) else value
    return dataclasses.replace(config, **values)


def replaceable(config: ModelConfig) -> list[str]:
    """Returns the names of the choices of a model that do not change its weights.

    Args:
        config: The configuration of the model.
    """
    positions = (getattr(config, name, None) for name in ("position", "attention_position"))
    # the longest length may be the size of a table
    has_table = any(position is not None and position.kind == "learned" for position in positions)
    return [name for name in REPLACEABLE if name != "max_length" or not has_table]
