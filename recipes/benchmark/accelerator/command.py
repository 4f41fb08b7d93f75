"""The command line of the benchmark: runs the parts, prints each row, and writes table and figure."""

from __future__ import annotations

import argparse
import contextlib
import datetime
import json
import os
import shutil
import sys
import tempfile
import time
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

from recipes.benchmark.accelerator.plan import LEAST_SECONDS, LIBRARIES, PARTS, runs
from recipes.benchmark.accelerator.processes import Process, Run
from recipes.benchmark.accelerator.report import heading, line, plot, table


def main(words: Sequence[str], prog: str = "python -m recipes.benchmark accelerator") -> dict[str, Any]:
    """Runs the benchmark.

    Args:
        words: The words of the command line after the name of the benchmark.
        prog: How it is called, for `--help`.

    Returns:
        `rows`, `kernels` by time, `device`, `versions`, and the `seconds` that all parts took.
    """
    given = _arguments(words, prog)
    folder = Path(given.output)
    folder.mkdir(parents=True, exist_ok=True)
    started = time.monotonic()
    results: dict[str, Any] = {
        "date": datetime.datetime.now(datetime.UTC).date().isoformat(),
        "tiny": given.tiny,
        "versions": {},
        "device": "",
        "rows": [],
        "kernels": [],
    }
    part = None
    for row in _rows(given, started):
        kind = row.pop("kind")
        if kind == "device":
            # JAX's come first; PyTorch may live in another Python
            results["device"] = results["device"] or row["device"]
            results["versions"] = {**row["versions"], **results["versions"]}
            continue
        results["rows" if kind == "row" else "kernels"].append(row)
        if kind == "row":
            if row["part"] != part:
                part = row["part"]
                print(f"\n{heading(part)}")
            print(line(row, results), flush=True)
        results["seconds"] = time.monotonic() - started
        # after each row: a run that is broken off leaves what it has
        _write(folder / "results.json", json.dumps(results, indent=2) + "\n")
    text = table(results)
    _write(folder / "results.md", text)
    missing = plot(results["rows"], folder / "results.png")
    print(f"\n{text}\n{missing or ''}\nTables and figure: {folder}".replace("\n\n\n", "\n\n"))
    return results


def _arguments(words: Sequence[str], prog: str) -> argparse.Namespace:
    parts = "".join(f"\n  {name:12s} {what}" for name, what in PARTS.items())
    parser = argparse.ArgumentParser(
        prog=prog,
        description="Measures training, generation and attention on one accelerator with JAX.",
        epilog=f"parts:{parts}",
        formatter_class=argparse.RawDescriptionHelpFormatter,
        allow_abbrev=False,
    )
    parser.add_argument(
        "--parts", nargs="+", choices=PARTS, default=list(PARTS), metavar="PART", help="what to measure"
    )
    parser.add_argument(
        "--libraries",
        nargs="+",
        choices=LIBRARIES,
        default=list(LIBRARIES),
        metavar="LIBRARY",
        help=", ".join(LIBRARIES),
    )
    parser.add_argument("--tiny", action="store_true", help="models that a processor trains in a moment, for a test")
    parser.add_argument(
        "--seconds", type=_positive, default=350.0, help="time limit of all parts together (default: %(default)g)"
    )
    parser.add_argument(
        "--transformers_python",
        default=sys.executable,
        help="Python interpreter that has Transformers and PyTorch (default: this one)",
    )
    parser.add_argument("--output", default="runs/benchmark/accelerator", help="folder (default: %(default)s)")
    given = parser.parse_args(words)
    backend = os.environ.get("KERAS_BACKEND", "jax")
    if backend != "jax":
        parser.error(f"KERAS_BACKEND must be jax or not set for this benchmark, got {backend!r}")
    if shutil.which(given.transformers_python) is None:
        parser.error(f"--transformers_python must be a Python interpreter, got {given.transformers_python!r}")
    # processes start in the folder of the repository
    given.transformers_python = os.path.abspath(shutil.which(given.transformers_python))
    return given


def _positive(word: str) -> float:
    number = float(word)
    if not number > 0:
        raise argparse.ArgumentTypeError(f"must be above 0, got {word}")
    return number


def _rows(given: argparse.Namespace, started: float) -> Iterator[dict[str, Any]]:
    """The rows of all processes; a row that says so for what the time of the whole benchmark does not reach."""
    with tempfile.TemporaryDirectory() as cache_folder, contextlib.ExitStack() as stack:
        planned = [
            run
            for run in runs(tiny=given.tiny, cache_folder=cache_folder)
            if run.part in given.parts and run.library in given.libraries
        ]

        def begin(run: Run) -> Process:
            python = given.transformers_python if run.library == "transformers" else sys.executable
            return stack.enter_context(Process(run, python))

        ready = begin(planned[0]) if planned else None
        for index, run in enumerate(planned):
            left = given.seconds - (time.monotonic() - started)
            if left < LEAST_SECONDS:
                yield from _not_begun(run, given.seconds)
                continue
            following = planned[index + 1] if index + 1 < len(planned) else None
            with ready as process:
                # it imports while this one measures
                ready = begin(following) if following else None
                yield from process.rows(min(run.seconds, left))


def _not_begun(run: Run, seconds: float) -> Iterator[dict[str, Any]]:
    for job in run.jobs:
        reason = f"not begun: the {seconds:g} s of all parts were over"
        yield {"kind": "row", "part": run.part, "library": run.library, "name": job.name, "left_out": reason}


def _write(path: Path, text: str) -> None:
    beside = path.with_suffix(path.suffix + ".begun")
    beside.write_text(text, encoding="utf-8")
    beside.replace(path)
