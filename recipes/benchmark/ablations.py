"""What mechanisms that exist for speed are worth on real models: step, first step and memory without each.

A work with everything and the same work without one mechanism are processes of their own, which take turns.
"""

from __future__ import annotations

import dataclasses
import statistics
import sys
from typing import Any

from recipes.benchmark.contestant import Contestant
from recipes.benchmark.step_data import write_results
from recipes.common.config import setting
from recipes.common.errors import ConfigError
from recipes.common.output_file import check_output_file

# What `recipes.benchmark.libraries.real_models` can leave out, and the mechanisms that each work has no use for.
MECHANISMS = (
    "chains by XLA",
    "products of matrices",
    "joined layer norm",
    "dropout of few bits",
    "Adam by one kernel",
    "losses in pieces",
    "traced once",
)
_OF_TRAINING = ("chains by XLA", "dropout of few bits", "Adam by one kernel", "losses in pieces")
WITHOUT_USE = {
    "train MiniLM": ("losses in pieces",),
    "predict MiniLM": _OF_TRAINING,
    "train GPT-2 small": (),
    "train translation": (),
    "LoRA SmolLM2": ("dropout of few bits",),
    "generate SmolLM2": _OF_TRAINING,
    "generate SmolLM2 8 times": _OF_TRAINING,
}


@dataclasses.dataclass(frozen=True)
class Config:
    """Measures works of real models without each mechanism that exists for speed."""

    models: list[str] = setting(list(WITHOUT_USE), f"Works, among {', '.join(WITHOUT_USE)}.")
    mechanisms: list[str] = setting(list(MECHANISMS), f"Mechanisms, among {', '.join(MECHANISMS)}.")
    dtype: str = setting("float32", "Dtype policy of the models.")
    jit_compile: bool = setting(False, "Whether XLA compiles the steps.")
    rounds: int = setting(5, "Number of turns of each process.", least=1)
    calls: int = setting(2, "Number of steps of a turn.", least=1)
    output: str = setting("runs/benchmark/ablations.json", "File for the figures.", offers="paths")


def main(config: Config) -> list[dict[str, Any]]:
    """Measures, prints a table and writes the figures.

    Args:
        config: The configuration.

    Returns:
        For each work and mechanism a row: what the first step, a step (by the clock and by the processor) and the peak
        of memory are without it, as multiples of what they are with it.
    """
    check_output_file(config.output)
    for name, given, allowed in (("models", config.models, WITHOUT_USE), ("mechanisms", config.mechanisms, MECHANISMS)):
        unknown = [each for each in given if each not in allowed]
        if unknown:
            raise ConfigError(f"{name} must be among {', '.join(allowed)}, got {unknown}")
    rows = []
    print("| work | without | first step | step | processor | memory |\n| --- | --- | --- | --- | --- | --- |")
    for model in config.models:
        for mechanism in config.mechanisms:
            if mechanism not in WITHOUT_USE[model]:
                rows.append({"model": model, "without": mechanism, **_ratios(config, model, mechanism)})
                figures = " | ".join(f"{rows[-1][name]:.2f}" for name in ("first", "seconds", "processor", "memory"))
                print(f"| {model} | {mechanism} | {figures} |", flush=True)
                write_results(config.output, {"config": dataclasses.asdict(config), "rows": rows})
    return rows


def _ratios(config: Config, model: str, mechanism: str) -> dict[str, float]:
    options = {"model": model, "dtype": config.dtype, "jit_compile": config.jit_compile}
    with (
        Contestant("real_models", None, options, sys.executable) as full,
        Contestant("real_models", None, {**options, "without": mechanism}, sys.executable) as ablated,
    ):
        first = full.turn(1).seconds
        first_without = ablated.turn(1).seconds
        full.turn(1), ablated.turn(1)
        turns = [(full.turn(config.calls), ablated.turn(config.calls)) for _ in range(config.rounds)]
    return {
        "first": first_without / first,
        "seconds": statistics.median(b.seconds / a.seconds for a, b in turns),
        "processor": statistics.median(b.processor_seconds / a.processor_seconds for a, b in turns),
        "memory": turns[-1][1].peak_bytes / turns[-1][0].peak_bytes,
    }
