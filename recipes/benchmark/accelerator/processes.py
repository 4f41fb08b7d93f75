"""Processes that measure, with a time limit, and the rows that they answer with."""

from __future__ import annotations

import contextlib
import dataclasses
import json
import os
import queue
import signal
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from recipes.benchmark.accelerator.jobs import MARK, Job

_ROOT = Path(__file__).parents[3]


@dataclasses.dataclass(frozen=True)
class Run:
    """Jobs that one process does.

    Args:
        part: The part of the benchmark.
        library: "zoo", "keras_hub" or "transformers".
        module: The module of this package that measures.
        jobs: The jobs, in this order.
        seconds: Time limit.
        environment: Further variables of the process.
    """

    part: str
    library: str
    module: str
    jobs: tuple[Job, ...]
    seconds: float
    environment: Mapping[str, str] = dataclasses.field(default_factory=dict)


class Process:
    """A process that imports what it needs, and waits with its jobs until its rows are asked for.

    Imports take seconds of one core and nothing of the device, so they can go on beside the measurement before.

    Args:
        run: What to measure.
        python: The interpreter that has the library.

    Example:

    >>> with Process(run) as process:
    ...     for row in process.rows(60): print(row)
    """

    def __init__(self, run: Run, python: str = sys.executable) -> None:
        self.run = run
        jobs = [dataclasses.asdict(job) for job in run.jobs]
        spec = json.dumps({"module": run.module, "library": run.library, "jobs": jobs})
        self._errors = tempfile.TemporaryFile("w+", encoding="utf-8", errors="replace")
        self._process = subprocess.Popen(
            [python, "-m", "recipes.benchmark.accelerator.worker", spec],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=self._errors,
            text=True,
            env=_environment(run, python),
            cwd=_ROOT,
            start_new_session=True,  # a group of its own, which is killed with all that it has started
        )

    def __enter__(self) -> Process:
        return self

    def __exit__(self, *_: object) -> None:
        if self._errors.closed:
            return  # ended before: the number of its group may be that of another one by now
        with contextlib.suppress(ProcessLookupError):
            os.killpg(self._process.pid, signal.SIGKILL)
        self._process.communicate()
        self._errors.close()

    def rows(self, seconds: float) -> Iterator[dict[str, Any]]:
        """Lets the process begin, and yields its rows as they come. Leaving the context kills it.

        Args:
            seconds: The limit.

        Yields:
            `{"kind": "device", "device": name, "versions": ...}`, and rows with `kind`, `name`, `part`, `library` and
            figures. Each job has one at least: where it has no figures, `failed` or `left_out` says why.
        """
        about = {"part": self.run.part, "library": self.run.library}
        waiting, finished, progress = [job.name for job in self.run.jobs], False, ""
        with contextlib.suppress(BrokenPipeError):
            self._process.stdin.write("begin\n")
            self._process.stdin.flush()
        for line in _lines(self._process, time.monotonic() + seconds):
            if line is None:
                finished = True
            elif line.startswith(MARK):
                row = json.loads(line[len(MARK) :])
                if row["kind"] == "progress":
                    progress = f", with {row['done']}"
                elif row["kind"] == "done":
                    waiting.remove(row["name"])
                else:
                    yield {**about, **row}
        for index, name in enumerate(waiting):
            if finished:
                reason = f"the process ended with code {self._process.returncode}: {self._said()}"
            else:
                reason = f"not begun within {seconds:.0f} s" if index else f"not done within {seconds:.0f} s{progress}"
            yield {**about, "kind": "row", "name": name, "failed": reason}

    def _said(self) -> str:
        self._errors.seek(0)
        return self._errors.read().strip()[-300:].replace("\n", " ")


def _lines(process: subprocess.Popen, end: float) -> Iterator[str | None]:
    """Lines as they come; None when there are no more; nothing after the end."""
    lines: queue.Queue[str | None] = queue.Queue()

    def read() -> None:
        for line in process.stdout:
            lines.put(line)
        lines.put(None)

    threading.Thread(target=read, daemon=True).start()
    while True:
        try:
            line = lines.get(timeout=max(0.0, end - time.monotonic()))
        except queue.Empty:
            return
        if line is None:
            # so that its code is known
            with contextlib.suppress(subprocess.TimeoutExpired):
                process.wait(timeout=max(0.1, end - time.monotonic()))
            yield None
            return
        yield line


def _environment(run: Run, python: str) -> dict[str, str]:
    paths = [str(_ROOT)] if python != sys.executable else [str(_ROOT), *sys.path]
    return {
        **os.environ,
        "KERAS_BACKEND": "jax",
        "TF_CPP_MIN_LOG_LEVEL": "3",
        "TF_FORCE_GPU_ALLOW_GROWTH": "true",
        # memory is taken as it is needed, so that its peak says something and two libraries fit on a device
        "XLA_PYTHON_CLIENT_PREALLOCATE": "false",
        "PYTHONPATH": os.pathsep.join(paths),
        **run.environment,
    }
