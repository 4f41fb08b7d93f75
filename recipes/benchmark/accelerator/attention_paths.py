"""Attention with each mask by each path: the kernel, time forward and backward, memory, and errors.

Errors are differences from the plain path in float32, of values and, relative to the largest, of gradients.
"""

from __future__ import annotations

import re
import time
from collections.abc import Callable, Iterator
from typing import Any

import jax
import jax.numpy as jnp

import layers
from recipes.benchmark.accelerator.devices import jax_device
from recipes.benchmark.accelerator.jobs import Job

_CALLS = 10
# what the targets of calls in a compiled program have in their names
_KERNELS = {"cuDNN": "fmha", "Pallas": "triton|mosaic|pallas"}


def device() -> str:
    """Returns the name of the device."""
    return jax_device()[0]


def measure(library: str, job: Job) -> Iterator[dict[str, Any]]:
    """Measures the mask of the job by the paths that support it, and yields a row for each.

    Args:
        library: "zoo".
        job: The job.
    """
    arrays, facts = _inputs(job)
    mask = _mask(job, facts)
    kernels = layers.attention.kernels
    chosen = kernels.choose_path(*arrays, mask).path
    wanted = _reference(job, arrays, facts)
    for path in kernels.dispatch.PATHS:
        # "blocked" is for lengths whose scores are too large to hold, and for masks that are
        if path == "blocked" != chosen and "packed" not in job.mask:
            continue
        try:
            kernels.choose_path(*arrays, mask, path=path)
        except ValueError:
            continue
        row = {"path": path, "is_chosen": path == chosen}
        try:
            yield {**row, **_measured(job, arrays, facts, path, wanted)}
        except Exception as error:  # of any kind: what the library of a device refuses when a program is compiled
            yield {**row, "failed": f"{type(error).__name__}: {error}"[:300]}


_Arrays = tuple[Any, Any, Any]


def _inputs(job: Job) -> tuple[_Arrays, dict[str, Any]]:
    """Query, key and value; and the tensors of the mask, which programs get as inputs, as those of models do."""
    rows, length, heads = job.batch_size, job.length, job.num_heads
    keys = jax.random.split(jax.random.key(0), 3)
    query, key, value = (jax.random.normal(each, (rows, heads, length, job.head_dim), jnp.bfloat16) for each in keys)
    if "grouped" in job.mask:
        groups = max(1, heads // 4)
        key, value = key[:, :groups], value[:, :groups]
    facts: dict[str, Any] = {}
    if "padding" in job.mask:
        facts["key_padding_mask"] = jnp.arange(length) < _lengths(job)[:, None]
    if "lengths" in job.mask:
        facts["key_lengths"] = _lengths(job)
    if "packed" in job.mask:
        segments = jnp.broadcast_to(jnp.arange(length) * 4 // length, (rows, length))
        facts |= {"query_segment_ids": segments, "key_segment_ids": segments}
    return (query, key, value), facts


def _lengths(job: Job) -> Any:
    return jnp.linspace(job.length // 2, job.length, job.batch_size).astype(jnp.int32)


def _mask(job: Job, facts: dict[str, Any]) -> layers.attention.masks.AttentionMask | None:
    window = (job.length // 4 - 1, 0) if "window" in job.mask else None
    causal = "causal" in job.mask
    return layers.attention.masks.AttentionMask(causal=causal, window=window, **facts) if job.mask else None


def _programs(job: Job, path: str) -> tuple[Callable[..., Any], Callable[..., Any]]:
    """Attention, and its gradients by query, key and value; both take these three and the tensors of the mask."""

    def forward(query: Any, key: Any, value: Any, facts: dict[str, Any]) -> Any:
        scale = job.head_dim**-0.5
        output = layers.attention.kernels.attend(query, key, value, _mask(job, facts), scale=scale, path=path)
        if "lengths" not in job.mask:
            return output
        # what stands at padding has no meaning then
        return output * (jnp.arange(job.length) < _lengths(job)[:, None])[:, None, :, None].astype(output.dtype)

    def loss(*inputs: Any) -> Any:
        return jnp.sum(jnp.square(forward(*inputs).astype(jnp.float32)))

    return forward, jax.grad(loss, (0, 1, 2))


def _reference(job: Job, arrays: _Arrays, facts: dict[str, Any]) -> tuple[Any, Any]:
    forward, gradient = _programs(job, "plain")
    with jax.default_matmul_precision("highest"):
        both = jax.jit(lambda *inputs: (forward(*inputs), gradient(*inputs)))
        return both(*(array.astype(jnp.float32) for array in arrays), facts)


def _measured(job: Job, arrays: _Arrays, facts: dict[str, Any], path: str, wanted: tuple[Any, Any]) -> dict[str, Any]:
    inputs = (*arrays, facts)
    forward, gradient = (jax.jit(program).lower(*inputs).compile() for program in _programs(job, path))
    targets = " ".join(re.findall(r'custom_call_target="([^"]+)"', gradient.as_text()))
    kernels = [kind for kind, pattern in _KERNELS.items() if re.search(pattern, targets)]
    memory = gradient.memory_analysis()
    exact_value, exact_gradients = wanted
    return {
        "kernel": " and ".join(kernels) or "XLA",
        "forward_seconds": _seconds(forward, inputs),
        "both_seconds": _seconds(gradient, inputs),
        "temporary_bytes": int(memory.temp_size_in_bytes) if memory is not None else None,
        "error": _largest(forward(*inputs), exact_value),
        "gradient_error": max(
            _largest(one, exact) / float(jnp.abs(exact).max())
            for one, exact in zip(gradient(*inputs), exact_gradients, strict=True)
        ),
    }


def _largest(value: Any, exact: Any) -> float:
    return float(jnp.abs(value.astype(jnp.float32) - exact).max())


def _seconds(program: Callable[..., Any], inputs: tuple[Any, ...]) -> float:
    jax.block_until_ready(program(*inputs))
    started = time.perf_counter()
    for _ in range(_CALLS):
        result = program(*inputs)
    jax.block_until_ready(result)
    return (time.perf_counter() - started) / _CALLS
