"""The tests of the layers on the device: `pytest tests/layers -m backends`, in float32 with exact products."""

from __future__ import annotations

import collections
import importlib.util
import os
from collections.abc import Iterator
from typing import Any

from recipes.benchmark.accelerator.devices import jax_device
from recipes.benchmark.accelerator.jobs import Job, UnavailableError, say

# Processes that share the device; most of the time goes into compiling.
_PROCESSES = 6


def device() -> str:
    """Returns the name of the device."""
    return jax_device()[0]


def measure(library: str, job: Job) -> Iterator[dict[str, Any]]:
    """Runs the tests, yields how many were done from time to time, and last a row.

    Args:
        library: "zoo".
        job: The job.
    """
    if importlib.util.find_spec("pytest") is None:
        raise UnavailableError("pytest is not installed")
    import pytest

    class Count:
        """What pytest says of each test."""

        def __init__(self) -> None:
            self.outcomes: collections.Counter[str] = collections.Counter()
            self.failed: list[str] = []

        def words(self) -> str:
            return ", ".join(f"{number} {outcome}" for outcome, number in sorted(self.outcomes.items())) or "no test"

        def pytest_runtest_logreport(self, report: Any) -> None:
            if report.when == "call" or report.outcome != "passed":
                self.outcomes[report.outcome] += 1
                if report.outcome == "failed":
                    self.failed.append(report.nodeid)
                if sum(self.outcomes.values()) % 10 == 0:
                    say({"kind": "progress", "done": self.words()})

    count = Count()
    words = [*job.tests, "-m", "backends", "-q", "-p", "no:cacheprovider"]
    if importlib.util.find_spec("xdist") is None:
        # the settings of the project name options of pytest-xdist
        words += ["-o", "addopts=--import-mode=importlib"]
    else:
        processes = min(_PROCESSES, (os.cpu_count() or 1) // 2)
        words += ["-n", str(processes if processes > 1 else 0)]
    status = pytest.main(words, plugins=[count])
    if not count.outcomes:
        raise UnavailableError(f"pytest ran no test and ended with code {int(status)}")
    yield {"outcomes": dict(count.outcomes), "failed_tests": count.failed[:20]}
