"""How long the command `zoo` takes to print its help and its lists, each in a process of its own."""

from __future__ import annotations

import dataclasses
import resource
import statistics
import subprocess
import sys
import time

from tqdm import tqdm

from recipes.benchmark.step_data import write_results
from recipes.common.config import setting
from recipes.common.output_file import check_output_file

_WORDS = ("--help", "recipes", "configs", "presets", "run translate --help", "run finetune --help")


@dataclasses.dataclass(frozen=True)
class Config:
    """Measures the seconds of `zoo --help` and of commands that print lists."""

    rounds: int = setting(5, "Number of processes of each command.", least=1)
    output: str = setting("runs/benchmark/command.json", "File for the figures.", offers="paths")


def main(config: Config) -> dict[str, dict[str, float]]:
    """Measures, prints a table and writes it.

    Args:
        config: The configuration.

    Returns:
        For each command the seconds by the clock and of the processor, medians of all rounds.
    """
    check_output_file(config.output)
    results = {}
    print("| command | seconds | processor seconds |\n| --- | --- | --- |")
    for words in tqdm(_WORDS, disable=None):
        turns = [_turn(words.split()) for _ in range(config.rounds)]
        seconds, used = (statistics.median(each) for each in zip(*turns, strict=True))
        results[words] = {"seconds": seconds, "processor_seconds": used}
        print(f"| `zoo {words}` | {seconds:.2f} | {used:.2f} |", flush=True)
    write_results(config.output, {"config": dataclasses.asdict(config), "commands": results})
    return results


def _turn(words: list[str]) -> tuple[float, float]:
    before, start = resource.getrusage(resource.RUSAGE_CHILDREN), time.perf_counter()
    subprocess.run([sys.executable, "-m", "recipes", *words], check=True, stdout=subprocess.DEVNULL)
    seconds, after = time.perf_counter() - start, resource.getrusage(resource.RUSAGE_CHILDREN)
    return seconds, after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime
