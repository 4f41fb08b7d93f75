"""How a model trains on this machine, which dtype policy is fastest there, and who is told."""

from __future__ import annotations

import os
import re
from pathlib import Path

import keras

import layers
from recipes.common.processes import threads_each

# Narrower models have not been measured (docs/results.md).
_LEAST_WIDTH = 128
_THREADS = "TF_NUM_INTRAOP_THREADS"
_FLAGS = re.compile(r"^flags\s*:.*\b(avx512_bf16|amx_bf16)\b", re.MULTILINE)


def describe_step(is_compiled: bool) -> str:
    """Returns what a log says of the training step: dtype policy, compiler and threads, and what chooses them.

    Args:
        is_compiled: Whether XLA compiles it.

    Example:

    >>> describe_step(False)
    'trains in float32, without XLA (training.dtype, training.jit_compile), on 2 threads (TF_NUM_INTRAOP_THREADS)'
    """
    compiler = "compiled by XLA" if is_compiled else "without XLA"
    step = f"trains in {keras.config.dtype_policy().name}, {compiler} (training.dtype, training.jit_compile)"
    if keras.backend.backend() != "tensorflow" or layers.devices.has_accelerator():
        return step
    # TensorFlow takes a thread per processor of the process unless its variable says otherwise
    threads = os.environ.get(_THREADS) or threads_each(1)
    return f"{step}, on {threads} threads ({_THREADS})"


def multiplies_bfloat16(description: str | None = None) -> bool:
    """Returns whether this machine multiplies bfloat16 faster than float32: accelerators, and some processors.

    Args:
        description: What Linux says of the processors; None reads it.
    """
    if layers.devices.has_accelerator():
        return True
    if description is None:
        path = Path("/proc/cpuinfo")
        description = path.read_text(encoding="utf-8", errors="replace") if path.is_file() else ""
    return _FLAGS.search(description) is not None


def advise_policy(width: int, description: str | None = None) -> str | None:
    """Returns advice for training in float32 where bfloat16 is faster; None if there is nothing to advise.

    The policy is not changed: the same configuration gives the same figures on each machine.

    Args:
        width: Width of the model, `hidden_dim`.
        description: See `multiplies_bfloat16`.
    """
    if keras.config.dtype_policy().name != "float32" or width < _LEAST_WIDTH or not multiplies_bfloat16(description):
        return None
    return "training.dtype is float32; with mixed_bfloat16 this machine multiplies faster, and weights stay float32"
