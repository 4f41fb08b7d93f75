"""The smallest mesh on which a training fits."""

import dataclasses
from collections.abc import Callable, Iterator

from zoo.backbones.backbone import Backbone
from zoo.planning.devices import Device
from zoo.planning.job import Job
from zoo.planning.memory import memory_of
from zoo.planning.model import ModelShape, model_shape


def smallest_mesh(
    backbone: Backbone, job: Job, device: Device, *, share_of_memory: float = 0.9, most_devices: int = 16384
) -> Job:
    """Returns a training run on the smallest mesh on which it fits; of equal ones, that which divides weights least.

    Args:
        backbone: The model. Its weights need no values.
        job: The training run. Its mesh is ignored, but not whether the devices along "data" divide the weights.
        device: The device.
        share_of_memory: Fraction of the device's memory that may be filled. The rest is for XLA, libraries and
            fragmentation, which are not planned.
        most_devices: Largest number of devices.

    Raises:
        ValueError: If it fits on no mesh. The message says how many bytes a device must hold at least.

    Example:

    >>> config = zoo.preset_config("gpt2_small")
    >>> found = smallest_mesh(without_values(config), Job(config, 64, 1024), device_of("h100"))
    >>> found.model
    1
    """
    best, least, nearest = None, None, None
    rows = job.batch_size // job.accumulation
    for shape in _shapes(backbone):
        fits = _first(
            min(rows, most_devices // shape.model_size),
            lambda data, shape=shape: memory_of(shape, _on(job, data, shape)).peak <= share_of_memory * device.memory,
        )
        if fits is not None:
            found = _on(job, fits, shape)
            if best is None or found.devices < best.devices:
                best = found
        data = min(rows, max(1, most_devices // shape.model_size))
        held = memory_of(shape, _on(job, data, shape)).peak
        if least is None or held < least:
            least, nearest = held, (data, shape.model_size)
    if best is None:
        axis = "fsdp" if job.fsdp else "data"
        raise ValueError(
            f"No mesh of at most {most_devices} devices fits into {share_of_memory:.0%} of the {device.memory / 1e9:g} "
            f"GB of {device.name}: with {axis}={nearest[0]} and model={nearest[1]} each holds {least / 1e9:.1f} GB. "
            "Say remat, attention 'flash', more accumulation, shorter rows or a larger device."
        )
    return best


def _on(job: Job, data: int, shape: ModelShape) -> Job:
    return dataclasses.replace(job, data=data, model=shape.model_size)


def _shapes(backbone: Backbone) -> Iterator[ModelShape]:
    """The model with its weights on ever more devices, as its heads and widths allow."""
    heads = backbone.config.attention.num_heads
    for size in range(1, heads + 1):
        if heads % size == 0:
            try:
                yield model_shape(backbone, size)
            except ValueError:  # widths that so many devices do not divide
                continue


def _first(most: int, fits: Callable[[int], bool]) -> int | None:
    """The first number of devices up to `most` with which something fits that fits with all larger ones; else None."""
    low, high = 1, most
    if high < 1 or not fits(high):
        return None
    while low < high:
        middle = (low + high) // 2
        low, high = (low, middle) if fits(middle) else (middle + 1, high)
    return low
