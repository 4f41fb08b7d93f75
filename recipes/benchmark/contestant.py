"""A process that does one work with one library, turn by turn, as its parent says.

    python -m recipes.benchmark.contestant '{"library": "zoo", "work": {...}, "mode": {...}}'

Each line of the standard input is a number of calls; each answer is a line of JSON after `MARK`. Processes of their own
keep the libraries' thread pools and memory apart, and let PyTorch live in another environment than TensorFlow.
"""

from __future__ import annotations

import contextlib
import dataclasses
import importlib
import json
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from recipes.benchmark.peak_memory import peak_resident_bytes
from recipes.benchmark.works import Work

MARK = "turn: "


@dataclasses.dataclass(frozen=True)
class Turn:
    """What a turn took, per call.

    Args:
        seconds: By the clock.
        processor_seconds: Of all cores.
        peak_bytes: The largest resident set of the process so far.
    """

    seconds: float
    processor_seconds: float
    peak_bytes: int


class Contestant:
    """The parent's side of the process.

    Args:
        library: A module of `recipes.benchmark.libraries`.
        work: The work; None if the module's `make` takes none.
        mode: Arguments of the module's `make`.
        python: The interpreter that has the library.

    Raises:
        ContestantError: The process failed; with the end of what it said.

    Example:

    >>> with Contestant("zoo", WORKS["generate"], {}) as ours:
    ...     ours.turn(calls=3).seconds
    """

    def __init__(self, library: str, work: Work | None, mode: Mapping[str, Any], python: str = sys.executable) -> None:
        self.name = f"{library} {dict(mode) or ''}".strip()
        spec = json.dumps({"library": library, "work": work and dataclasses.asdict(work), "mode": dict(mode)})
        environment = {**os.environ, "TF_CPP_MIN_LOG_LEVEL": "3", "PYTHONPATH": os.pathsep.join(sys.path)}
        if python != sys.executable:
            # its own packages, and this one
            environment["PYTHONPATH"] = str(Path(__file__).parents[2])
        self._errors = tempfile.TemporaryFile("w+", encoding="utf-8", errors="replace")
        self._process = subprocess.Popen(
            [python, "-m", "recipes.benchmark.contestant", spec],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=self._errors,
            text=True,
            env=environment,
        )

    def turn(self, calls: int) -> Turn:
        """Lets the process do its work some times, and returns what it took.

        Args:
            calls: How many times.
        """
        with contextlib.suppress(BrokenPipeError):
            self._process.stdin.write(f"{calls}\n")
            self._process.stdin.flush()
        for line in self._process.stdout:
            if line.startswith(MARK):
                return Turn(**json.loads(line[len(MARK) :]))
        self._errors.seek(0)
        raise ContestantError(f"{self.name} failed: {self._errors.read().strip()[-600:]}")

    def __enter__(self) -> Contestant:
        return self

    def __exit__(self, *_: object) -> None:
        self._process.kill()
        self._process.communicate()
        self._errors.close()


class ContestantError(Exception):
    """The process of a contestant failed."""


def main(spec: str) -> None:
    """Makes the work and does it whenever a line of the standard input says so.

    Args:
        spec: JSON with `library`, `work` and `mode`.
    """
    given = json.loads(spec)
    module = importlib.import_module(f"recipes.benchmark.libraries.{given['library']}")
    works = [Work(**given["work"])] if given["work"] else []
    step = module.make(*works, **given["mode"])
    for line in sys.stdin:
        calls = int(line)
        started, used = time.perf_counter(), time.process_time()
        for _ in range(calls):
            step()
        seconds, processor = time.perf_counter() - started, time.process_time() - used
        turn = Turn(seconds / calls, processor / calls, peak_resident_bytes())
        print(MARK + json.dumps(dataclasses.asdict(turn)), flush=True)


if __name__ == "__main__":
    main(sys.argv[1])
