"""What is known of a device: its peak speed, and the memory that was taken."""

from __future__ import annotations

import re
from typing import Any

from recipes.benchmark.peak_memory import peak_resident_bytes

# Dense products in bfloat16 with sums in float32, operations per second, from the makers' data sheets. The first
# pattern that is found in the name counts.
_PEAKS = {
    r"\bH100 PCIe\b": 756e12,
    r"\bH100 NVL\b": 835e12,
    r"\b(H100|H200|GH200)\b": 989e12,
    r"\bB200\b": 2250e12,
    r"\bA100\b": 312e12,
    r"\bL40S\b": 362e12,
    r"\bA10\b": 125e12,
    r"\bL4\b": 121e12,
}


def peak_operations(device: str) -> float | None:
    """Returns the operations per second of matrix products in bfloat16, or None for a device that is not known.

    Args:
        device: Its name, as JAX or PyTorch says it.

    Example:

    >>> peak_operations("NVIDIA H100 80GB HBM3")
    989000000000000.0
    """
    return next((peak for pattern, peak in _PEAKS.items() if re.search(pattern, device)), None)


def jax_device() -> tuple[str, str]:
    """Returns the name of JAX's first device and its platform, "gpu", "tpu" or "cpu"."""
    import jax

    device = jax.local_devices()[0]
    return device.device_kind, device.platform


def jax_peak_bytes() -> int:
    """Returns the most memory that this process has held on JAX's first device, or in the machine's on a CPU."""
    import jax

    statistics = jax.local_devices()[0].memory_stats() or {}
    return statistics.get("peak_bytes_in_use") or peak_resident_bytes()


def torch_device() -> Any:
    """Returns the device that PyTorch computes on: the first GPU, if there is one."""
    import torch

    return torch.device("cuda" if torch.cuda.is_available() else "cpu")


def torch_peak_bytes() -> int:
    """Returns the most memory that PyTorch has held on the first GPU, or in the machine's without one."""
    import torch

    return torch.cuda.max_memory_allocated() if torch.cuda.is_available() else peak_resident_bytes()
