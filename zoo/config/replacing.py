"""Which choices of a model may be replaced once it has weights."""

import dataclasses
import difflib
from collections.abc import Mapping
from typing import Any

from zoo.config.model import ModelConfig
from zoo.config.recurrent import RecurrentConfig
from zoo.config.transformer import TransformerConfig

# those that change no weights
REPLACEABLE = ("dropout", "max_length")


def replace_choices(
    config: TransformerConfig | RecurrentConfig, choices: Mapping[str, Any]
) -> TransformerConfig | RecurrentConfig:
    """Returns the configuration of a model with weights, with choices replaced that do not change the weights.

    Args:
        config: The configuration.
        choices: Values of `dropout` and `max_length`; of `dropout` alone for a model with learned positions.

    Raises:
        ValueError: If another choice is given, or a value is out of range.

    Example:

    >>> replace_choices(config, {"dropout": 0.0}).dropout
    0.0
    """
    allowed = replaceable(config)
    for name in choices:
        if name not in allowed:
            near = difflib.get_close_matches(name, allowed, n=1)
            hint = f" Did you mean {near[0]!r}?" if near else ""
            raise ValueError(f"Overrides of a model with weights must be among {allowed}, got {name!r}.{hint}")
    return dataclasses.replace(config, **choices)


def replaceable(config: ModelConfig) -> list[str]:
    """Returns the names of the choices of a model that do not change its weights.

    Args:
        config: The configuration of the model.
    """
    positions = (getattr(config, name, None) for name in ("position", "attention_position"))
    # the longest length may be the size of a table
    has_table = any(position is not None and position.kind == "learned" for position in positions)
    return [name for name in REPLACEABLE if name != "max_length" or not has_table]
