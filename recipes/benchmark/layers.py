"""Layers by length: table 1 of Vaswani et al. 2017 measured, and attention compared with that of Keras and KerasHub.

`python -m recipes.benchmark layers` writes `results.json`, `results.md` and two pictures to a folder. Times are taken
with two threads or more as TensorFlow likes; the memory of each case is that of a process of its own.
"""

from __future__ import annotations

import dataclasses
import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import keras

import zoo
from recipes.benchmark import attention_layers, layer_growth
from recipes.benchmark.attention_layers import AttentionConfig
from recipes.benchmark.layer_growth import GrowthConfig
from recipes.common.config import setting
from recipes.common.errors import ConfigError

PARTS = {"growth": layer_growth, "attention": attention_layers}


@dataclasses.dataclass(frozen=True)
class Config:
    """Measures how layers grow with the length, and attention layers against those of Keras and KerasHub."""

    parts: list[str] = setting(list(PARTS), "What to measure: growth, attention or both.")
    growth: GrowthConfig = GrowthConfig()
    attention: AttentionConfig = AttentionConfig()
    folder: str = setting("runs/benchmark/layers", "Folder for the results.", offers="paths")

    def __post_init__(self) -> None:
        unknown = sorted(set(self.parts) - set(PARTS))
        if unknown:
            raise ConfigError(f"parts must be among {', '.join(map(repr, PARTS))}, got {unknown[0]!r}")


def main(config: Config) -> dict[str, Any]:
    """Runs the benchmark and prints the tables.

    Args:
        config: The configuration.

    Returns:
        For each part its rows; see `layer_growth.measure` and `attention_layers.measure`.
    """
    folder = Path(config.folder)
    folder.mkdir(parents=True, exist_ok=True)
    results: dict[str, Any] = {"config": dataclasses.asdict(config)}
    texts = []
    for name in config.parts:
        part, part_config = PARTS[name], getattr(config, name)
        print(f"{name}: {part.__doc__.splitlines()[0]}")
        results[name] = part.measure(part_config, _progress(part.count_cases(part_config)))
        texts.append(part.table(results[name], part_config))
        part.plot(results[name], folder / f"{name}.png")
        # after each part, so that a run that is broken off leaves what it has
        zoo.storage.write_text_atomically(folder / "results.json", json.dumps(results, indent=2) + "\n")
        zoo.storage.write_text_atomically(folder / "results.md", "\n".join(texts))
    print("\n" + "\n".join(texts))
    return results


def _progress(cases: int) -> Callable[[str], None]:
    bar = keras.utils.Progbar(cases, unit_name="case")
    return lambda _: bar.add(1)
