"""Peak memory of a piece of work, measured in a process of its own."""

from __future__ import annotations

import importlib
import json
import resource
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

_MARK = "peak memory: "


def peak_memory(make: str, **arguments: Any) -> int:
    """Measures how much memory a function needs beyond what its process held before the call.

    A fresh process makes the function, which leaves libraries, weights, inputs and a traced graph behind, and calls it
    once. What counts is the largest resident set during the call.

    Args:
        make: "module:function". The function is called with `arguments` and returns another one, without arguments,
            that does the work.
        arguments: Values that JSON can hold.

    Returns:
        Bytes.

    Raises:
        RecipeError: The process failed; the message holds the end of what it said.

    Example:

    >>> peak_memory("recipes.benchmark.layer_growth:make_step", kind="recurrent", length=1024)
    """
    command = [sys.executable, "-m", "recipes.benchmark.peak_memory", make, json.dumps(arguments)]
    done = subprocess.run(command, capture_output=True, text=True)
    found = [line for line in done.stdout.splitlines() if line.startswith(_MARK)]
    if done.returncode or not found:
        # here, because the Python of another library, which measures with this file, has no packages of recipes
        from recipes.common.errors import RecipeError

        raise RecipeError(
            f"the process that measures the memory of {make} with {arguments} ended with code {done.returncode}: "
            f"{done.stderr.strip()[-500:]}"
        )
    return int(found[-1][len(_MARK) :])


def measure(work: Callable[[], object]) -> int:
    """Calls a function and returns by how many bytes the resident set of this process exceeded its size before.

    Args:
        work: The function.
    """
    status = Path("/proc/self/status")
    if not status.exists():  # not Linux: the peak since the process started, in kibibytes but for macOS
        unit = 1 if sys.platform == "darwin" else 1024
        before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
        work()
        return unit * (resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before)
    Path("/proc/self/clear_refs").write_text("5", encoding="ascii")  # the peak counts from here on
    before = _status_of_memory(status)["VmRSS"]
    work()
    return max(0, _status_of_memory(status)["VmHWM"] - before)


def peak_resident_bytes() -> int:
    """Returns the largest resident set that this process has had.

    What the system counts as `ru_maxrss` includes the process that began this one.
    """
    status = Path("/proc/self/status")
    if status.exists():
        return _status_of_memory(status)["VmHWM"]
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * (1 if sys.platform == "darwin" else 1024)


def _status_of_memory(status: Path) -> dict[str, int]:
    lines = (
        line.split()
        for line in status.read_text(encoding="utf-8", errors="replace").splitlines()
        if line.startswith("Vm")
    )
    return {words[0].rstrip(":"): 1024 * int(words[1]) for words in lines}


if __name__ == "__main__":
    module, _, function = sys.argv[1].partition(":")
    work = getattr(importlib.import_module(module), function)(**json.loads(sys.argv[2]))
    print(f"{_MARK}{measure(work)}")
