"""Seconds to the first training step and to the first generated text in a process that has imported nothing.

Two such processes with one folder for JAX's persistent compilation cache show what the cache saves.
"""

from __future__ import annotations

import dataclasses
import importlib
import time
from collections.abc import Iterator
from typing import Any

from recipes.benchmark.accelerator.devices import jax_device
from recipes.benchmark.accelerator.jobs import Job


def device() -> str:
    """Returns the name of the device."""
    return jax_device()[0]


def measure(library: str, job: Job) -> Iterator[dict[str, Any]]:
    """Does the first step and the first call of `generate_tokens`, and yields their seconds.

    Args:
        library: "zoo".
        job: The job, of training, with `new_tokens` for the generation.
    """
    started = time.perf_counter()
    # imported here, because a user waits for them, too
    keras_training, keras_generation = (
        importlib.import_module(f"recipes.benchmark.accelerator.{name}")
        for name in ("keras_training", "keras_generation")
    )
    training = next(keras_training.measure(library, job))
    generation = next(keras_generation.measure(library, dataclasses.replace(job, batch_size=1, length=job.length // 4)))
    yield {
        "first_step_seconds": training["first_step_seconds"],
        "first_text_seconds": generation["first_step_seconds"],
        "whole_seconds": time.perf_counter() - started,
    }
