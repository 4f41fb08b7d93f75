"""How long a new process waits: from the first call of `fit` or `generate` to its first two steps or its first token.

Each library runs in a process of its own, which has imported it and made the model before the clock starts.
"""

from __future__ import annotations

import dataclasses
import statistics
import sys
from typing import Any

from tqdm import tqdm

from recipes.benchmark.comparison import LIBRARIES
from recipes.benchmark.contestant import Contestant
from recipes.benchmark.step_data import write_results
from recipes.benchmark.works import WORKS
from recipes.common.config import setting
from recipes.common.errors import ConfigError
from recipes.common.output_file import check_output_file

# the work, and how often it is done
_STARTS = {
    "two steps of training": (WORKS["train_decoder_dropout"], 2),
    "one token": (dataclasses.replace(WORKS["generate"], new_tokens=1), 1),
    "two steps of training, 24 layers": (dataclasses.replace(WORKS["train_decoder_dropout"], num_layers=24), 2),
}


@dataclasses.dataclass(frozen=True)
class Config:
    """Measures the seconds to the first steps of training and to the first token."""

    libraries: list[str] = setting(["zoo", "keras_hub"], f"Among {', '.join(LIBRARIES)}.")
    jit_compile: bool = setting(False, "Whether XLA compiles the models.")
    rounds: int = setting(3, "Number of processes of each library.", least=1)
    output: str = setting("runs/benchmark/start.json", "File for the figures.", offers="paths")


def main(config: Config) -> dict[str, Any]:
    """Measures, prints a table and writes it.

    Args:
        config: The configuration.

    Returns:
        For each start and library the seconds by the clock and of the processor, medians of all rounds.
    """
    check_output_file(config.output)
    unknown = [library for library in config.libraries if library not in LIBRARIES]
    if unknown:
        raise ConfigError(f"libraries must be among {', '.join(LIBRARIES)}, got {unknown}")
    results: dict[str, Any] = {}
    print("| start | library | seconds | processor seconds |\n| --- | --- | --- | --- |")
    for name, (work, calls) in tqdm(_STARTS.items(), disable=None):
        turns: dict[str, list[Any]] = {library: [] for library in config.libraries}
        for _ in range(config.rounds):
            for library, taken in turns.items():
                with Contestant(library, work, {"jit_compile": config.jit_compile}, sys.executable) as process:
                    taken.append(process.turn(calls))
        for library, taken in turns.items():
            seconds, used = (
                calls * statistics.median(getattr(turn, each) for turn in taken)
                for each in ("seconds", "processor_seconds")
            )
            results.setdefault(name, {})[library] = {"seconds": seconds, "processor_seconds": used}
            print(f"| {name} | {library} | {seconds:.2f} | {used:.2f} |", flush=True)
    write_results(config.output, {"config": dataclasses.asdict(config), "starts": results})
    return results
