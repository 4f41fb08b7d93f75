"""Configurations: every choice of a model by name, validated, to JSON and back."""

from typing import Any

from zoo.config.checks import shorten
from zoo.config.components import AttentionConfig, EmbeddingConfig, FeedForwardConfig, NormConfig
from zoo.config.mixer import MixerConfig
from zoo.config.model import ModelConfig
from zoo.config.names import renamed_in_errors
from zoo.config.position import PositionConfig
from zoo.config.recurrent import RecurrentConfig
from zoo.config.replacing import REPLACEABLE, override, replace_choices, replaceable
from zoo.config.size import minimum_weight_counts, require_weights
from zoo.config.transformer import TransformerConfig

CONFIGURATIONS: dict[str, type[ModelConfig]] = {cls.kind: cls for cls in (TransformerConfig, RecurrentConfig)}


def config_from_dict(values: dict[str, Any]) -> TransformerConfig | RecurrentConfig:
    """Returns the configuration of any kind from the dictionary of `to_dict`.

    Args:
        values: Nested dictionaries. `kind` names the class; default "transformer".

    Raises:
        ValueError: If the kind or a key is unknown, or a value out of range.

    Example:

    >>> config_from_dict({"kind": "transformer", "architecture": "encoder", "vocabulary_size": 100}).vocabulary_size
    100
    """
    kind = values.get("kind", "transformer") if isinstance(values, dict) else "transformer"
    if not isinstance(kind, str) or kind not in CONFIGURATIONS:
        raise ValueError(f"kind must be one of {sorted(CONFIGURATIONS)}, got {shorten(kind)}.")
    return CONFIGURATIONS[kind].from_dict(values)


__all__ = [
    "CONFIGURATIONS",
    "AttentionConfig",
    "EmbeddingConfig",
    "FeedForwardConfig",
    "MixerConfig",
    "ModelConfig",
    "NormConfig",
    "REPLACEABLE",
    "PositionConfig",
    "RecurrentConfig",
    "TransformerConfig",
    "config_from_dict",
    "renamed_in_errors",
    "minimum_weight_counts",
    "override",
    "replace_choices",
    "replaceable",
    "require_weights",
]
