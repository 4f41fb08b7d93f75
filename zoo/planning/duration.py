"""Seconds of an update, and what they are spent on.

* Products: their operations at a share of the peak. By default that is 50 %: MaxText trains Llama 2 7B on 8 H100 at
  49.7 % of 989 TFLOP/s, norms, softmax and copies included (github.com/AI-Hypercomputer/maxtext, its table of
  performance). A share of the peak is reached where rows are long and weights are large; small models reach less.
* Optimizer: it reads a weight that trains, its gradient and what it holds for it (Adam two moments), and writes all but
  the gradient: bytes by the memory's bandwidth.
* Sums of gradients (axis "data") and of activations (axis "model"): bytes that a device sends by the bandwidth of its
  links. A group of devices within a machine sends by `link`. A group over several machines sends by `network`, of all
  its devices in a machine together: rings over several network cards share the bytes. Each collective also waits for
  2 log2(n) messages one after the other (Thakur et al. 2005, "Optimization of Collective Communication Operations in
  MPICH", section 4.5).

`seconds` adds all up: XLA on GPUs overlaps nothing unless its latency-hiding scheduler is asked for. `seconds_at_least`
hides the sums of gradients behind the products, which no schedule does better. Reading of data, samples, evaluation and
saved states are not counted.
"""

import math
from typing import NamedTuple

from zoo.planning.devices import Device
from zoo.planning.job import Job
from zoo.planning.model import ModelShape
from zoo.planning.operations import operations_of
from zoo.planning.optimizer import numbers_of_optimizer
from zoo.planning.traffic import traffic_of

# MaxText, Llama 2 7B on 8 H100: 49.7 %
SHARE_OF_PEAK = 0.5
# Seconds of a message between two devices: assumed, as data sheets have none. NCCL's are of this order.
LATENCY = 1e-5
# 419 unexpected interruptions in 54 days on 16,384 H100 (Grattafiori et al. 2024, "The Llama 3 Herd of Models",
# section 3.3.4)
DEVICE_HOURS_BETWEEN_FAILURES = 16384 * 54 * 24 / 419
# Tokens per weight of a training that makes best use of its operations (Hoffmann et al. 2022, "Training
# Compute-Optimal Large Language Models", table 3)
TOKENS_PER_PARAMETER = 20


class Duration(NamedTuple):
    """Seconds of an update, by kind of work.

    Args:
        products: Matrix products, with everything that runs beside them on a device.
        optimizer: The update of the weights.
        gradients: The sum of gradients along the axis "data".
        activations: The sum of activations along the axis "model".
    """

    products: float
    optimizer: float
    gradients: float
    activations: float

    @property
    def seconds(self) -> float:
        """Seconds of an update if nothing overlaps."""
        return sum(self)

    @property
    def seconds_at_least(self) -> float:
        """Seconds of an update if gradients are summed while others are computed."""
        return max(self.products, self.gradients) + self.optimizer + self.activations

    @property
    def bottleneck(self) -> str:
        """The kind of work that takes most of the time."""
        return max(self._fields, key=lambda name: getattr(self, name))


def duration_of(
    shape: ModelShape,
    job: Job,
    device: Device,
    *,
    share_of_peak: float = SHARE_OF_PEAK,
    latency: float = LATENCY,
) -> Duration:
    """Returns the seconds of an update.

    Args:
        shape: The model.
        job: The training.
        device: The device.
        share_of_peak: Fraction of the device's peak operations per second that products reach, in (0, 1].
        latency: Seconds of a message between two devices.

    Raises:
        ValueError: If the share or the latency is out of range.
    """
    if not 0 < share_of_peak <= 1:
        raise ValueError(f"share_of_peak must be above 0 and at most 1, got {share_of_peak!r}.")
    if latency < 0:
        raise ValueError(f"latency must be at least 0, got {latency!r}.")
    updated = (3 * shape.trainable_of_device + 2 * numbers_of_optimizer(shape, job)) * job.weight_itemsize
    seconds = {"data": 0.0, "model": 0.0}
    for axis, size in (("data", job.data), ("model", job.model)):
        traffic = traffic_of(shape, job)[axis]
        if size > 1:
            messages = traffic.collectives * 2 * math.ceil(math.log2(size))
            seconds[axis] = traffic.bytes / bandwidth_of(axis, job, device) + messages * latency
    return Duration(
        operations_of(shape, job).of_device / (share_of_peak * device.peak(job.itemsize)),
        updated / device.memory_bandwidth,
        seconds["data"],
        seconds["model"],
    )


def bandwidth_of(axis: str, job: Job, device: Device) -> float:
    """Returns bytes per second that a device sends to its group along an axis of the mesh.

    Devices that share weights are neighbours.

    Args:
        axis: "data" or "model".
        job: The training.
        device: What it runs on.

    Example:

    >>> bandwidth_of("data", Job(config, 64, 1024, data=8, model=8), device_of("h100"))
    50000000000.0
    """
    in_machine = device.devices_per_machine
    if axis == "model":
        size, nearby = job.model, min(job.model, in_machine)
    else:
        size, nearby = job.data, max(1, in_machine // job.model)
    if nearby >= size:
        return device.link
    return min(device.link, device.network * nearby)


def hours_between_failures(devices: int) -> float:
    """Returns the mean hours between failures of devices, machines or links, at the rate of the training of Llama 3.

    Args:
        devices: Number of devices.

    Example:

    >>> round(hours_between_failures(16384), 1)
    3.1
    """
    return DEVICE_HOURS_BETWEEN_FAILURES / devices
