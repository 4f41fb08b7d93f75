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


def rows_of(run: Run, seconds: float, python: str = sys.executable) -> Iterator[dict[str, Any]]:
    """Starts a process and yields its rows as they come. After the limit the process is killed.

    Args:
        run: What to measure.
        seconds: The limit.
        python: The interpreter that has the library.

    Yields:
        `{"kind": "device", "device": name}`, and rows with `kind`, `name`, `part`, `library` and figures. Each job has
        one at least: where it has no figures, `failed` or `left_out` says why.
    """
    jobs = [dataclasses.asdict(job) for job in run.jobs]
    spec = json.dumps({"module": run.module, "library": run.library, "jobs": jobs})
    waiting, finished, progress = [job.name for job in run.jobs], False, ""
    with tempfile.TemporaryFile("w+", encoding="utf-8", errors="replace") as errors:
        process = subprocess.Popen(
            [python, "-m", "recipes.benchmark.accelerator.worker", spec],
            stdout=subprocess.PIPE,
            stderr=errors,
            text=True,
            env=_environment(run, python),
            cwd=_ROOT,
            start_new_session=True,  # a group of its own, which is killed with all that it has started
        )
        try:
            for line in _lines(process, time.monotonic() + seconds):
                if line is None:
                    finished = True
                elif line.startswith(MARK):
                    row = json.loads(line[len(MARK) :])
                    if row["kind"] == "progress":
                        progress = f", with {row['done']}"
                        continue
                    if row["kind"] == "done":
                        waiting.remove(row["name"])
                        continue
                    yield {"part": run.part, "library": run.library, **row}
        finally:
            with contextlib.suppress(ProcessLookupError):
                os.killpg(process.pid, signal.SIGKILL)
            process.wait()
            process.stdout.close()
        errors.seek(0)
        said = errors.read().strip()[-300:].replace("\n", " ")
    for index, name in enumerate(waiting):
        reason = f"the process ended with code {process.returncode}: {said}"
        if not finished:
            reason = f"not done within {seconds:.0f} s{progress}" if index == 0 else f"not begun within {seconds:.0f} s"
        yield {"part": run.part, "library": run.library, "kind": "row", "name": name, "failed": reason}


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
        # memory is taken as it is needed, so that its peak says something and two libraries fit on a device
        "XLA_PYTHON_CLIENT_PREALLOCATE": "false",
        "PYTHONPATH": os.pathsep.join(paths),
        **run.environment,
    }
