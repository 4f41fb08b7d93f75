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
    """Measures the mask of the job by all paths that support it, and yields a row for each.

    Args:
        library: "zoo".
        job: The job.
    """
    arrays, mask = _arguments(job)
    wanted = _reference(arrays, mask)
    chosen = layers.attention.kernels.choose_path(*arrays, mask)
    for path in layers.attention.kernels.dispatch.PATHS:
        try:
            layers.attention.kernels.choose_path(*arrays, mask, path=path)
        except ValueError:
            continue
        row = {"path": path, "is_chosen": path == chosen.path}
        try:
            yield {**row, **_measured(arrays, mask, path, wanted)}
        except Exception as error:  # of any kind: what the library of a device refuses when a program is compiled
            yield {**row, "failed": f"{type(error).__name__}: {error}"[:300]}


def _arguments(job: Job) -> tuple[tuple[Any, Any, Any], layers.attention.masks.AttentionMask | None]:
    name = job.mask
    rows, length, heads = job.batch_size, job.length, job.num_heads
    keys = jax.random.split(jax.random.key(0), 3)
    query, key, value = (jax.random.normal(each, (rows, heads, length, job.head_dim), jnp.bfloat16) for each in keys)
    if "grouped" in name:
        groups = max(1, heads // 4)
        key, value = key[:, :groups], value[:, :groups]
    facts: dict[str, Any] = {"causal": "causal" in name}
    if "padding" in name:
        facts["key_padding_mask"] = jnp.arange(length) < jnp.linspace(length // 2, length, rows).astype(int)[:, None]
    if "window" in name:
        facts["window"] = (length // 4 - 1, 0)
    if "packed" in name:
        segments = jnp.broadcast_to(jnp.arange(length) * 4 // length, (rows, length))
        facts |= {"query_segment_ids": segments, "key_segment_ids": segments}
    return (query, key, value), None if not name else layers.attention.masks.AttentionMask(**facts)


def _programs(
    mask: layers.attention.masks.AttentionMask | None, path: str, scale: float
) -> tuple[Callable[..., Any], Callable[..., Any]]:
    def forward(query: Any, key: Any, value: Any) -> Any:
        return layers.attention.kernels.attend(query, key, value, mask, scale=scale, path=path)

    def loss(*arrays: Any) -> Any:
        return jnp.sum(jnp.square(forward(*arrays).astype(jnp.float32)))

    return forward, jax.grad(loss, (0, 1, 2))


def _reference(arrays: tuple[Any, Any, Any], mask: layers.attention.masks.AttentionMask | None) -> tuple[Any, Any]:
    forward, gradient = _programs(mask, "plain", arrays[0].shape[-1] ** -0.5)
    with jax.default_matmul_precision("highest"):
        both = jax.jit(lambda *exact: (forward(*exact), gradient(*exact)))
        return both(*(array.astype(jnp.float32) for array in arrays))


def _measured(
    arrays: tuple[Any, Any, Any], mask: layers.attention.masks.AttentionMask | None, path: str, wanted: tuple[Any, Any]
) -> dict[str, Any]:
    forward, gradient = (
        jax.jit(program).lower(*arrays).compile() for program in _programs(mask, path, arrays[0].shape[-1] ** -0.5)
    )
    text, memory = gradient.as_text(), gradient.memory_analysis()
    targets = " ".join(re.findall(r'custom_call_target="([^"]+)"', text))
    kernels = [kind for kind, pattern in _KERNELS.items() if re.search(pattern, targets)]
    value, gradients = forward(*arrays), gradient(*arrays)
    exact_value, exact_gradients = wanted
    return {
        "kernel": " and ".join(kernels) or "XLA",
        "forward_seconds": _seconds(forward, arrays),
        "both_seconds": _seconds(gradient, arrays),
        "temporary_bytes": int(memory.temp_size_in_bytes) if memory is not None else None,
        "error": _largest(value, exact_value),
        "gradient_error": max(
            _largest(one, exact) / float(jnp.abs(exact).max())
            for one, exact in zip(gradients, exact_gradients, strict=True)
        ),
    }


def _largest(value: Any, exact: Any) -> float:
    return float(jnp.abs(value.astype(jnp.float32) - exact).max())


def _seconds(program: Callable[..., Any], arrays: tuple[Any, ...]) -> float:
    jax.block_until_ready(program(*arrays))
    started = time.perf_counter()
    for _ in range(_CALLS):
        result = program(*arrays)
    jax.block_until_ready(result)
    return (time.perf_counter() - started) / _CALLS
