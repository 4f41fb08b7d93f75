"""A process that measures: `python -m recipes.benchmark.accelerator.worker JSON`, with `module`, `library` and `jobs`.

Each row is a line of JSON after `jobs.MARK` on the standard output.
"""

from __future__ import annotations

import contextlib
import importlib
import importlib.metadata
import json
import platform
import sys

from recipes.benchmark.accelerator.jobs import Job, UnavailableError, say

_PACKAGES = ("jax", "jaxlib", "keras", "keras-hub", "torch", "transformers", "tensorflow", "numpy")


def main(spec: str) -> None:
    """Does the jobs one after the other. One that fails costs its own row alone.

    Args:
        spec: JSON with `module`, one of this package with a function `measure`; `library`; and `jobs`.
    """
    given = json.loads(spec)
    try:
        module = importlib.import_module(f"recipes.benchmark.accelerator.{given['module']}")
        # another process may still use the device
        sys.stdin.readline()
        say({"kind": "device", "device": module.device(), "versions": _versions()})
    except ImportError as error:
        # of a library that is compared, where it is not installed
        for job in given["jobs"]:
            say({"kind": "row", "name": job["name"], "left_out": f"{error.name or error} is not installed"})
            say({"kind": "done", "name": job["name"]})
        return
    for values in given["jobs"]:
        job = Job.from_json(values)
        try:
            for row in module.measure(given["library"], job):
                say({"kind": "row", "name": job.name, **row})
        except (UnavailableError, ImportError) as error:
            say({"kind": "row", "name": job.name, "left_out": str(error)})
        except Exception as error:  # of any kind: memory that is used up, a kernel that is refused
            say({"kind": "row", "name": job.name, "failed": f"{type(error).__name__}: {error}"[:300]})
        say({"kind": "done", "name": job.name})


def _versions() -> dict[str, str]:
    versions = {"python": platform.python_version()}
    for name in _PACKAGES:
        with contextlib.suppress(importlib.metadata.PackageNotFoundError):
            versions[name] = importlib.metadata.version(name)
    return versions


if __name__ == "__main__":
    main(sys.argv[1])
