"""This library beside KerasHub and Transformers: the same works, turn by turn, beside what the machine can do.

Each library runs in a process of its own, which waits while others have their turn. First each mode of a library
(float32 or bfloat16, compiled or not) has one turn; its best one competes.
"""

from __future__ import annotations

import contextlib
import dataclasses
import statistics
import subprocess
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from tqdm import tqdm

from recipes.benchmark.ceilings import ceiling
from recipes.benchmark.configurations import operations_of
from recipes.benchmark.contestant import Contestant, ContestantError, Turn
from recipes.benchmark.step_data import write_results
from recipes.benchmark.works import WORKS, Work
from recipes.common.config import setting
from recipes.common.errors import ConfigError, errors_of
from recipes.common.output_file import check_output_file

LIBRARIES = ("zoo", "keras_hub", "transformers")
# what each library is tried in
_MODES: tuple[dict[str, Any], ...] = (
    {},
    {"jit_compile": True},
    {"dtype": "mixed_bfloat16"},
    {"dtype": "mixed_bfloat16", "jit_compile": True},
)


@dataclasses.dataclass(frozen=True)
class Config:
    """Compares this library with KerasHub and Transformers."""

    works: list[str] = setting(list(WORKS), f"What to measure: {', '.join(WORKS)}.")
    libraries: list[str] = setting(list(LIBRARIES), "Libraries to compare. The others are compared with the first one.")
    rounds: int = setting(5, "Number of turns of each library.", least=1)
    seconds: float = setting(2.0, "Least number of seconds of a turn. A turn has at least one call.", above=0)
    transformers_python: str = setting(
        sys.executable, "Python interpreter that has Transformers and PyTorch.", offers="paths"
    )
    output: str = setting(
        "runs/benchmark/comparison.json", "File for the figures; a picture of the same name.", offers="paths"
    )


def main(config: Config) -> dict[str, Any]:
    """Runs the comparison; prints a table, and writes it with a picture.

    Args:
        config: The configuration.

    Returns:
        For each work and library its modes, its best mode, items per second, and for each work the ceilings.

    Raises:
        ConfigError: If there is no such work, library or Python, or none of the libraries is installed.
    """
    check_output_file(config.output)
    for name, known in (("works", WORKS), ("libraries", LIBRARIES)):
        unknown = [value for value in getattr(config, name) if value not in known]
        if unknown or not getattr(config, name):
            raise ConfigError(f"{name} must be among {', '.join(known)}, got {unknown or 'none'}")
    pythons = {name: sys.executable for name in config.libraries}
    if "transformers" in pythons:
        pythons["transformers"] = config.transformers_python
    missing = [name for name in pythons if not _has(pythons[name], name)]
    for name in missing:
        hint = "; --transformers_python names another Python that has it and torch" if name == "transformers" else ""
        print(f"{name} is left out: {pythons[name]} cannot import it{hint}")
    if len(missing) == len(pythons):
        raise ConfigError(f"libraries: none of {', '.join(pythons)} is installed")
    results: dict[str, Any] = {"missing": missing, "works": {}}
    for name in tqdm(config.works, desc="works", disable=None):
        present = {library: pythons[library] for library in config.libraries if library not in missing}
        results["works"][name] = compare(WORKS[name], present, rounds=config.rounds, seconds=config.seconds)
        print(table({name: results["works"][name]}))
    print(table(results["works"]))
    write_results(config.output, {"config": dataclasses.asdict(config), **results})
    plot(results["works"], Path(config.output).with_suffix(".png"))
    return results


def compare(work: Work, pythons: Mapping[str, str], *, rounds: int, seconds: float) -> dict[str, Any]:
    """Measures one work.

    Args:
        work: The work.
        pythons: The interpreter of each library; the first one is compared with the others.
        rounds: Turns of each library's best mode.
        seconds: Length of a turn, at least.

    Returns:
        `libraries` with the figures of each, `ceiling` in operations per second of each type, or bytes of memory: the
        higher of two measurements, before and after the turns.
    """
    found: dict[str, Any] = {"unit": work.unit, "ceiling": ceiling(work), "libraries": {}}
    with contextlib.ExitStack() as stack:
        best: dict[str, tuple[Contestant, int]] = {}
        for library, python in pythons.items():
            figures = found["libraries"][library] = {"modes": {}}
            for mode in _MODES:
                try:
                    with contextlib.ExitStack() as tried:
                        process = tried.enter_context(Contestant(library, work, mode, python))
                        process.turn(2)  # traces, compiles, and fills the caches
                        turn = process.turn(1)
                        known = [row["seconds"] for row in figures["modes"].values() if "seconds" in row]
                        if not known or turn.seconds < min(known):
                            if library in best:
                                best[library][0].__exit__()
                            stack.push(tried.pop_all())
                            best[library] = process, max(1, round(seconds / turn.seconds))
                            figures["best"] = _mode_name(mode)
                        figures["modes"][_mode_name(mode)] = {"seconds": turn.seconds}
                except ContestantError as error:
                    figures["modes"][_mode_name(mode)] = {"failed": str(error)[-300:]}
        turns: dict[str, list[Turn]] = {library: [] for library in best}
        for _ in range(rounds):
            for library, (process, calls) in best.items():
                turns[library].append(process.turn(calls))
    # a neighbour on the machine slows it down, and nothing makes it faster than it is
    again = ceiling(work)
    found["ceiling"] = {kind: max(speed, again[kind]) for kind, speed in found["ceiling"].items()}
    for library, taken in turns.items():
        found["libraries"][library].update(summary(work, taken, found["ceiling"]))
    first = next(iter(pythons))
    for library in turns:
        if library != first and first in turns:
            ratios = [theirs.seconds / ours.seconds for ours, theirs in zip(turns[first], turns[library], strict=True)]
            found["libraries"][library]["speed_of_the_first"] = statistics.median(ratios)
    return found


def summary(work: Work, turns: Sequence[Turn], ceilings: Mapping[str, float]) -> dict[str, float]:
    """Returns the figures of a library.

    Args:
        work: The work.
        turns: What its turns took.
        ceilings: What `ceiling` returned for the work.
    """
    needed = work.bytes_read if "memory" in ceilings else operations_of(work)
    seconds = statistics.median(turn.seconds for turn in turns)
    return {
        "items_per_second": work.items / seconds,
        "slowest": work.items / max(turn.seconds for turn in turns),
        "fastest": work.items / min(turn.seconds for turn in turns),
        "processor_seconds": statistics.median(turn.processor_seconds for turn in turns),
        "share_of_ceiling": needed / seconds / max(ceilings.values()),
        "peak_bytes": max(turn.peak_bytes for turn in turns),
    }


def table(works: Mapping[str, Any]) -> str:
    """Returns a Markdown table of results.

    Args:
        works: What `compare` returned, by name.
    """
    lines = [
        "| work | library | best mode | items per second (slowest to fastest) | processor seconds | "
        "share of the ceiling | peak memory | first library / this one |",
        "| --- |" + " --- |" * 7,
    ]
    for name, found in works.items():
        for library, row in found["libraries"].items():
            if "best" not in row:
                reasons = {mode["failed"].splitlines()[-1] for mode in row["modes"].values()}
                lines.append(f"| {name} | {library} | failed: {'; '.join(sorted(reasons))} | | | | | |")
                continue
            ratio = row.get("speed_of_the_first")
            lines.append(
                f"| {name}, {found['unit']} | {library} | {row['best']} | {row['items_per_second']:,.0f} "
                f"({row['slowest']:,.0f} to {row['fastest']:,.0f}) | {row['processor_seconds']:.3f} | "
                f"{row['share_of_ceiling']:.2f} | {row['peak_bytes'] / 2**20:,.0f} MiB | "
                f"{'' if ratio is None else f'{ratio:.2f}'} |"
            )
    return "\n".join(lines)


def plot(works: Mapping[str, Any], path: Path) -> None:
    """Draws how fast each library is, the first one being 1.

    Args:
        works: What `compare` returned, by name.
        path: The file.
    """
    from matplotlib.figure import Figure

    figure = Figure(figsize=(8, 1.0 + 0.6 * len(works)), layout="constrained")
    axes = figure.add_subplot()
    libraries = [
        name for name in LIBRARIES if any("best" in found["libraries"].get(name, {}) for found in works.values())
    ]
    height = 0.8 / max(1, len(libraries))
    for index, library in enumerate(libraries):
        places, widths = [], []
        for place, found in enumerate(works.values()):
            rows = [row for row in found["libraries"].values() if "best" in row]
            if rows and "best" in found["libraries"].get(library, {}):
                places.append(place + (index - (len(libraries) - 1) / 2) * height)
                widths.append(found["libraries"][library]["items_per_second"] / rows[0]["items_per_second"])
        axes.barh(places, widths, height, label=library)
    axes.set_yticks(range(len(works)), list(works))
    axes.invert_yaxis()
    axes.axvline(1, color="black", linewidth=0.8)
    axes.set_xlabel("speed, the first library's being 1")
    # above: any place within may have bars
    figure.legend(loc="outside upper center", ncols=len(libraries), frameon=False)
    figure.savefig(path, dpi=120)


def _mode_name(mode: Mapping[str, Any]) -> str:
    dtype = "bfloat16" if mode.get("dtype") else "float32"
    return f"{dtype}, compiled" if mode.get("jit_compile") else dtype


def _has(python: str, library: str) -> bool:
    if library == "zoo":
        return True
    module = {"keras_hub": "keras_nlp", "transformers": "transformers, torch"}[library]
    command = f"import importlib.util as u, sys; sys.exit(not all(map(u.find_spec, {module.split(', ')!r})))"
    with errors_of(f"{library}_python"):
        return subprocess.run([python, "-c", command], capture_output=True).returncode == 0
