"""Checks of a model that is to be made: its choices exist, and this machine can hold it."""

from __future__ import annotations

import os
from collections.abc import Iterator
from typing import Any

import zoo
from recipes.common.errors import ConfigError, errors_of, shown

# by the end of the name: beyond all models, and what would take longer to build than anybody waits
_MOST = {"num_layers": 1000, "num_decoder_layers": 1000, "max_length": 1 << 20, "": 1 << 24}


def check_architecture(preset: str, options: dict[str, Any]) -> None:
    """Checks the choices of a model before data are read, and that this machine can hold it.

    Args:
        preset: Name of the architecture.
        options: Choices that differ from the preset.

    Raises:
        ConfigError: If there is no such preset or choice, a number is beyond all models, or the weights with their
            gradients and the optimizer's two moments need more than the memory of this machine.
    """
    if "vocabulary_size" in options:
        raise ConfigError("model.options must not hold vocabulary_size: the tokenizer decides about it")
    with errors_of("model"):
        config = zoo.preset_config(preset, **options)
        sizes = zoo.config.least_weights(config)
    for name, value in _numbers(config.to_dict()):
        most = next((most for end, most in _MOST.items() if name.endswith(end)))
        if value > most:
            raise ConfigError(f"model.options: {name} must be at most {most:,}, got {shown(value)}")
    needed, memory = 16 * sum(sizes.values()), os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
    if needed > memory:
        raise ConfigError(
            f"model.options: {', '.join(sizes)} take at least {needed / 1e9:,.0f} GB in training, this machine has "
            f"{memory / 1e9:,.0f} GB"
        )


def _numbers(values: dict[str, Any], prefix: str = "") -> Iterator[tuple[str, int]]:
    for name, value in values.items():
        if isinstance(value, dict):
            yield from _numbers(value, f"{prefix}{name}.")
        for number in value if isinstance(value, (list, tuple)) else [value]:
            if isinstance(number, int):
                yield prefix + name, number
