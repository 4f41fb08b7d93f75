"""The kernels that a device runs, by time, from a trace of JAX's profiler."""

from __future__ import annotations

import collections
import re
import tempfile
from collections.abc import Callable
from pathlib import Path


def traced_kernels(work: Callable[[], None]) -> list[tuple[str, float]]:
    """Traces a function and returns the kernels that ran, with their seconds, the longest first.

    Kernels whose names differ in numbers alone are one. Without a GPU or TPU these are the operations of XLA's threads
    on the processor.

    Args:
        work: The function. It ends when the device has done its work.
    """
    import jax

    with tempfile.TemporaryDirectory() as folder:
        with jax.profiler.trace(folder):
            work()
        file = max(Path(folder).rglob("*.xplane.pb"))
        profile = jax.profiler.ProfileData.from_file(str(file))
        on_device = any(_is_accelerator(plane.name) for plane in profile.planes)
        sums: collections.Counter[str] = collections.Counter()
        for plane in profile.planes:
            if on_device != _is_accelerator(plane.name):
                continue
            for line in plane.lines:
                # other lines of a device sum up the same kernels by module and by step
                if on_device and not re.search("Stream|XLA Ops", line.name):
                    continue
                for event in line.events:
                    if on_device or any(name == "hlo_op" for name, _ in event.stats):
                        sums[_kind(event.name)] += event.duration_ns / 1e9
    return sums.most_common()


def _is_accelerator(plane: str) -> bool:
    return plane.startswith(("/device:GPU", "/device:TPU"))


def _kind(name: str) -> str:
    return re.sub(r"[._]\d+$", "", re.sub(r"\d{2,}", "N", re.sub(r"[._]\d+$", "", name)))[:70]
