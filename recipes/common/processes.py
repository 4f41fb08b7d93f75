"""Commands in processes of their own, several at a time: logs, progress, what to do with those that fail."""

from __future__ import annotations

import contextlib
import os
import signal
import subprocess
import sys
import threading
import time
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any, Protocol

import tqdm

THREAD_VARIABLES = ("OMP_NUM_THREADS", "TF_NUM_INTRAOP_THREADS", "TF_NUM_INTEROP_THREADS")
# seconds between two looks at the processes, and that one has for ending
_BETWEEN, _GRACE = 0.5, 10
# lines of the log of a run that failed
_SHOWN = 12


class Startable(Protocol):
    """What `run_all` needs of a run: name, command, the file of its output, how many steps it has and has done."""

    name: str
    log: Path
    steps: int

    def command(self) -> list[str]:
        """Returns the words of the command."""

    def steps_done(self) -> int:
        """Returns how many steps have been done, also by earlier processes."""


def threads_each(processes: int) -> int:
    """Returns the threads that each of several processes may use, so that together they have the cores.

    Args:
        processes: Number of processes.
    """
    cores = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
    return max(1, cores // processes)


def run_all(runs: Sequence[Any], processes: int, on_end: Callable[[Any], None] = lambda run: None) -> list[str]:
    """Runs commands, several at a time, with a progress bar; what fails is reported and does not stop the others.

    Numbers of threads that the environment names are kept. When this process is interrupted, so are all others.

    Args:
        runs: The runs, see `Startable`.
        processes: Most at a time.
        on_end: Called with each run that ended well.

    Returns:
        The names of those that failed.
    """
    threads = dict.fromkeys(THREAD_VARIABLES, str(threads_each(min(processes, len(runs) or 1))))
    # or the first process would take all memory of a GPU
    environment = {**threads, "TF_FORCE_GPU_ALLOW_GROWTH": "true", **os.environ, "PYTHONUNBUFFERED": "1"}
    waiting, failed = deque(runs), []
    active: list[tuple[Any, subprocess.Popen]] = []
    ended: list[Any] = []
    before = sum(run.steps_done() for run in runs)
    options = {"total": sum(run.steps for run in runs), "initial": before, "unit": "epoch"}
    options["disable"] = None if runs else True  # None: no bar where nobody sees it
    # epochs of several runs end at once: the estimate is by the mean of all
    options |= {"smoothing": 0, "mininterval": 2}
    with terminated_as_interrupted(), tqdm.tqdm(**options) as bar:
        try:
            while waiting or active:
                while waiting and len(active) < processes:
                    active.append((waiting[0], _start(waiting[0], environment)))
                    waiting.popleft()
                time.sleep(_BETWEEN)
                for run, process in [pair for pair in active if pair[1].poll() is not None]:
                    active.remove((run, process))
                    ended.append(run)
                    if process.returncode:
                        failed.append(run.name)
                        bar.write(f"{run.name} failed ({process.returncode}); {run.log} ends:\n{_end_of(run.log)}")
                    else:
                        on_end(run)
                done = sum(run.steps for run in ended) + sum(run.steps_done() for run, _ in active)
                bar.set_postfix_str(f"{len(ended)} of {len(runs)} runs", refresh=False)
                bar.update(max(0, done - bar.n))
        finally:
            _stop([process for _, process in active])
    return failed


def _start(run: Any, environment: dict[str, str]) -> subprocess.Popen:
    run.log.parent.mkdir(parents=True, exist_ok=True)
    with open(run.log, "ab") as log:
        return subprocess.Popen(
            run.command(),
            stdin=subprocess.DEVNULL,
            stdout=log,
            stderr=subprocess.STDOUT,
            env=environment,
            start_new_session=True,  # Ctrl-C comes here alone
        )


def _stop(processes: Sequence[subprocess.Popen]) -> None:
    for process in processes:
        process.terminate()
    deadline = time.monotonic() + _GRACE
    for process in processes:
        try:
            process.wait(max(0.0, deadline - time.monotonic()))
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()


@contextlib.contextmanager
def terminated_as_interrupted() -> Iterator[None]:
    """Makes `kill` do what Ctrl-C does, so that no process is left behind."""

    def interrupt(*_: Any) -> None:
        raise KeyboardInterrupt

    if threading.current_thread() is not threading.main_thread():
        yield
        return
    before = signal.signal(signal.SIGTERM, interrupt)
    try:
        yield
    finally:
        signal.signal(signal.SIGTERM, before)


def _end_of(log: Path) -> str:
    lines = log.read_text(encoding="utf-8", errors="replace").replace("\r", "\n").splitlines()
    return "\n".join(f"    {line}" for line in [line for line in lines if line.strip()][-_SHOWN:])


def python_command(module: str, *words: str) -> list[str]:
    """Returns the command that runs a module with this Python.

    Args:
        module: The module.
        *words: Its arguments.
    """
    return [sys.executable, "-m", module, *words]
