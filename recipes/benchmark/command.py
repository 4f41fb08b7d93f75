"""Time of the help and the lists of the command `zoo`, what recipes import, and the size of their extra."""

from __future__ import annotations

import configparser
import dataclasses
import importlib.metadata
import re
import resource
import statistics
import subprocess
import sys
import time
from pathlib import Path

from tqdm import tqdm

from recipes.benchmark.step_data import write_results
from recipes.common.config import setting
from recipes.common.output_file import check_output_file

_SETUP = Path(__file__).parents[2] / "setup.cfg"
_RECIPES = ("classify", "translate", "finetune", "summarize")
_IMPORT = "import recipes.{}, sys; print(len(sys.modules))"
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
        For each command the seconds by the clock and of the processor, medians of all rounds; the same for imports of
        recipes, with the number of modules.
    """
    check_output_file(config.output)
    results = {}
    print("| command | seconds | processor seconds |\n| --- | --- | --- |")
    for words in tqdm(_WORDS, disable=None):
        seconds, used, _ = _medians(["-m", "recipes", *words.split()], config.rounds)
        results[words] = {"seconds": seconds, "processor_seconds": used}
        print(f"| `zoo {words}` | {seconds:.2f} | {used:.2f} |", flush=True)
    print("\n| import | seconds | processor seconds | modules |\n| --- | --- | --- | --- |")
    for name in tqdm(_RECIPES, disable=None):
        seconds, used, modules = _medians(["-c", _IMPORT.format(name)], config.rounds)
        results[f"import {name}"] = {"seconds": seconds, "processor_seconds": used, "modules": modules}
        print(f"| `recipes.{name}` | {seconds:.2f} | {used:.2f} | {modules:.0f} |", flush=True)
    core, extra = installed(), installed("recipes")
    sizes = {"core": sum(core.values()), "recipes": sum(extra.values()) - sum(core.values())}
    largest = sorted(extra.keys() - core.keys(), key=extra.get, reverse=True)[:6]
    named = ", ".join(f"{name} {extra[name] / 1e6:.0f}" for name in largest)
    print(f"\ncore: {sizes['core'] / 1e6:,.0f} MB; the extra recipes: {sizes['recipes'] / 1e6:,.0f} MB more ({named})")
    write_results(config.output, {"config": dataclasses.asdict(config), "commands": results, "bytes": sizes})
    return results


def installed(extra: str | None = None) -> dict[str, int]:
    """Returns the bytes of each package that `setup.cfg` asks for, and of those that these ask for, by name.

    Args:
        extra: An extra, beside the core.
    """
    setup = configparser.ConfigParser()
    setup.read(_SETUP)
    lines = setup["options"]["install_requires"] + (setup["options.extras_require"][extra] if extra else "")
    waiting, found = lines.split("\n"), dict[str, int]()
    while waiting:
        line = waiting.pop()
        name = re.match(r"[\w.-]*", line)[0].lower().replace("_", "-")
        if not name or name in found or "extra ==" in line:
            continue
        try:
            package = importlib.metadata.distribution(name)
        except importlib.metadata.PackageNotFoundError:
            continue  # for another system
        paths = [file.locate() for file in package.files or ()]
        found[name] = sum(path.stat().st_size for path in paths if path.exists())
        waiting += package.requires or ()
    return found


def _medians(words: list[str], rounds: int) -> tuple[float, ...]:
    return tuple(map(statistics.median, zip(*(_turn(words) for _ in range(rounds)), strict=True)))


def _turn(words: list[str]) -> tuple[float, float, int]:
    before, start = resource.getrusage(resource.RUSAGE_CHILDREN), time.perf_counter()
    ended = subprocess.run([sys.executable, *words], check=True, stdout=subprocess.PIPE, text=True)
    seconds, after = time.perf_counter() - start, resource.getrusage(resource.RUSAGE_CHILDREN)
    used = after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime
    return seconds, used, int(ended.stdout) if words[0] == "-c" else 0
