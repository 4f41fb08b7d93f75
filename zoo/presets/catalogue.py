"""The presets that come with the library: `catalogue.toml` says what is known of each name without building it."""

import tomllib
from pathlib import Path
from typing import Any

from zoo.config import RecurrentConfig, TransformerConfig
from zoo.presets.registry import register_preset

_FILE = Path(__file__).with_name("catalogue.toml")
_FACTS: dict[str, dict[str, Any]] = {
    name: facts for kind in tomllib.loads(_FILE.read_text(encoding="utf-8")).values() for name, facts in kind.items()
}


def register_listed(name: str, config: TransformerConfig | RecurrentConfig) -> None:
    """Registers a preset with what the catalogue says of it.

    Args:
        name: A name in `catalogue.toml`.
        config: The configuration.

    Raises:
        ValueError: If the catalogue lacks the name, or a preset has it already.

    Example:

    >>> register_listed("gpt2_small", gpt2_config(50257, 768, 12, 12, 1024))
    """
    if name not in _FACTS:
        raise ValueError(f"{_FILE} has no preset {name!r}.")
    register_preset(name, config, **_FACTS[name])
