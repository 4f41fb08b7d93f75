"""Accelerators by their published figures: operations, memory, links."""

import dataclasses
import difflib
import math
from typing import Any


@dataclasses.dataclass(frozen=True)
class Device:
    """An accelerator, and its connections to others.

    Args:
        name: Its name.
        operations: Peak floating-point operations per second of dense products in bfloat16.
        float32_operations: Peak operations per second of products of float32 values, with the default precision of the
            libraries (TF32 if the device has it).
        memory: Size of its memory, in bytes.
        memory_bandwidth: Peak memory bandwidth, in bytes per second.
        link: Bandwidth within a machine in one direction, in bytes per second.
        network: Its share of the bandwidth to other machines, in bytes per second.
        devices_per_machine: Number of devices that are connected by `link`.
        source: Source of the figures.
        unverified: Names of figures for which no source was found.

    Raises:
        ValueError: If a figure is not above 0.
    """

    name: str
    operations: float
    float32_operations: float
    memory: float
    memory_bandwidth: float
    link: float
    network: float
    devices_per_machine: int
    source: str
    unverified: tuple[str, ...] = ()

    def __post_init__(self) -> None:
        for name in figures_of_devices():
            value = getattr(self, name)
            if isinstance(value, bool) or not isinstance(value, (int, float)) or not 0 < value < math.inf:
                raise ValueError(f"{name} of a device must be a number above 0, got {value!r}.")

    def peak(self, itemsize: int) -> float:
        """Returns the peak operations per second.

        Args:
            itemsize: Bytes of a multiplied number.
        """
        return self.operations if itemsize == 2 else self.float32_operations


def figures_of_devices() -> list[str]:
    """Returns the names of the numbers that a device has."""
    return [field.name for field in dataclasses.fields(Device) if field.type in (int, float)]


# Links count one direction, where data sheets add up both. A TPU has no TF32: JAX rounds factors of float32 products
# to bfloat16 there, unless `jax_default_matmul_precision` says otherwise. Pages of vendors stand first. Figures "after"
# another page were read there, which names the data sheet; the data sheet itself was not at hand.
_BASEPOD = (
    "docs.nvidia.com/dgx-basepod/reference-architecture-infrastructure-foundation-enterprise-ai/latest/"
    "core-components.html"
)
_KLOCKWOOD = "glennklockwood.com/garden/processors"
DEVICES = {
    device.name: device
    for device in (
        Device(
            *("a100", 312e12, 156e12, 80e9, 2.039e12, 300e9, 25e9, 8),
            source=f"data sheet, after {_KLOCKWOOD}/A100 (operations, memory, links)",
            unverified=("network",),
        ),
        Device(
            *("h100", 989e12, 494e12, 80e9, 3.35e12, 450e9, 50e9, 8),
            source=f"NVIDIA, {_BASEPOD} (memory, network); data sheet, after {_KLOCKWOOD}/h100 (the rest)",
        ),
        Device(
            *("h200", 989e12, 494e12, 141e9, 4.8e12, 450e9, 50e9, 8),
            source=f"NVIDIA, {_BASEPOD} (memory, network); NVIDIA's announcement, after aiwiki.ai/wiki/nvidia_h200 "
            "(bandwidth; the same chip as the H100 otherwise)",
        ),
        Device(
            *("b200", 2250e12, 1125e12, 180e9, 8e12, 900e9, 50e9, 8),
            source="NVIDIA, docs.nvidia.com/dgx/dgxb200-user-guide/introduction-to-dgxb200.html (memory, links, "
            f"network); HGX B200 at 1,000 W, after {_KLOCKWOOD}/B200 (operations in bfloat16, bandwidth) and "
            "fibermall.com/de/blog/nvidia-hgx-b300-overview.htm (TF32)",
        ),
        Device(
            *("tpu_v5e", 197e12, 197e12, 16e9, 819e9, 200e9, 3.125e9, 256),
            source="Google Cloud, cloud.google.com/tpu/docs/v5e (400 GB/s of links in both directions, 6.4 Tb/s of "
            "network for a pod of 256)",
            unverified=("float32_operations",),
        ),
    )
}


def device_of(name: str, /, **figures: Any) -> Device:
    """Returns a device by its name, with some figures replaced.

    Args:
        name: One of `DEVICES`.
        **figures: Fields of `Device`.

    Raises:
        ValueError: If the device or a figure is unknown (the message suggests the nearest), or a figure is not above 0.

    Example:

    >>> device_of("h100", memory=94e9).operations
    989000000000000.0
    """
    if name not in DEVICES:
        near = difflib.get_close_matches(name, DEVICES, n=1)
        hint = f" Did you mean {near[0]!r}?" if near else ""
        raise ValueError(f"device must be one of {', '.join(DEVICES)}, got {name!r}.{hint}")
    allowed = figures_of_devices()
    for figure in figures:
        if figure not in allowed:
            near = difflib.get_close_matches(figure, allowed, n=1)
            hint = f" Did you mean {near[0]!r}?" if near else ""
            raise ValueError(f"Figures of a device must be of {', '.join(allowed)}, got {figure!r}.{hint}")
    device = DEVICES[name]
    given = f", given: {', '.join(figures)}" if figures else ""
    left = tuple(figure for figure in device.unverified if figure not in figures)
    return dataclasses.replace(device, **figures, source=device.source + given, unverified=left)
