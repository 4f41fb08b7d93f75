"""Lists the presets: all with `python -m recipes.presets`, or those whose names contain a given word."""

from __future__ import annotations

import dataclasses

import zoo
from recipes.common.config import run_recipe, setting
from recipes.common.errors import ConfigError


@dataclasses.dataclass(frozen=True)
class PresetsConfig:
    """Prints the named architectures with their sizes and what they are."""

    words: list[str] = setting(
        [],
        "Words to look for. A preset is listed if its name contains any of them. Empty: all presets.",
        words="first",
        offers="presets",
    )


def main(config: PresetsConfig) -> None:
    """Prints a table of presets.

    Args:
        config: The configuration.

    Raises:
        ConfigError: If no preset is left.

    Example:

    >>> main(PresetsConfig(["bert"]))
    """
    chosen = zoo.list_presets(*config.words)
    if not chosen:
        raise ConfigError(f"no preset has {' or '.join(config.words)} in its name")
    print(chosen)


if __name__ == "__main__":
    run_recipe(main, PresetsConfig, "presets", prints_results=True)
