"""Greedy generation with this library and KerasHub on JAX, in bfloat16."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import keras
import numpy as np

import zoo
from recipes.benchmark.accelerator.devices import jax_device, jax_peak_bytes
from recipes.benchmark.accelerator.jobs import Job, generation_row
from recipes.benchmark.accelerator.keras_training import hub_backbone, zoo_config
from recipes.benchmark.timing import first_and_median


def device() -> str:
    """Returns the name of the device."""
    return jax_device()[0]


_MODELS: dict[tuple[str, str], Any] = {}


def measure(library: str, job: Job) -> Iterator[dict[str, Any]]:
    """Generates a few times and yields the row.

    Args:
        library: "zoo" or "keras_hub".
        job: The job.
    """
    keras.config.set_dtype_policy("bfloat16")
    keras.utils.set_random_seed(0)
    # jobs of a process differ in the number of rows alone
    key = library, job.shape.preset
    if key not in _MODELS:
        _MODELS[key] = (_zoo if library == "zoo" else _keras_hub)(job)
    first, seconds = first_and_median(_call(library, _MODELS[key], job), 3)
    yield generation_row(job, seconds=seconds, first_call=first, peak_bytes=jax_peak_bytes())


def _zoo(job: Job) -> Any:
    return zoo.CausalLM(zoo.Backbone.from_config(zoo_config(job)))


def _keras_hub(job: Job) -> Any:
    backbone, task = hub_backbone(job)
    model = task(backbone=backbone, preprocessor=None)
    model.compile(sampler="greedy")
    return model


def _call(library: str, model: Any, job: Job) -> Callable[[], Any]:
    prompts = job.batch(0)["token_ids"]
    if library == "zoo":
        return lambda: model.generate_tokens(prompts.tolist(), max_new_tokens=job.new_tokens, sampler="greedy")
    # the output has the length of the inputs
    padding = ((0, 0), (0, job.new_tokens))
    inputs = {"token_ids": np.pad(prompts, padding), "padding_mask": np.pad(np.ones_like(prompts), padding)}
    return lambda: model.generate(inputs, stop_token_ids=None)
