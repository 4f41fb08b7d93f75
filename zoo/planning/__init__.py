"""What a training takes, computed from its configuration alone: memory, operations, traffic and time on a mesh."""

from zoo.planning.devices import DEVICES, Device, device_of
from zoo.planning.duration import (
    LATENCY,
    SHARE_OF_PEAK,
    TOKENS_PER_PARAMETER,
    Duration,
    duration_of,
    hours_between_failures,
)
from zoo.planning.job import Job
from zoo.planning.memory import Memory, memory_of
from zoo.planning.model import ModelShape, model_shape, without_values
from zoo.planning.operations import Operations, forward_operations, generation_operations, operations_of
from zoo.planning.optimizer import numbers_of_optimizer
from zoo.planning.search import smallest_mesh
from zoo.planning.traffic import Traffic, traffic_of

__all__ = [
    "DEVICES",
    "LATENCY",
    "SHARE_OF_PEAK",
    "TOKENS_PER_PARAMETER",
    "Device",
    "Duration",
    "Job",
    "Memory",
    "ModelShape",
    "Operations",
    "Traffic",
    "device_of",
    "duration_of",
    "forward_operations",
    "generation_operations",
    "hours_between_failures",
    "memory_of",
    "model_shape",
    "numbers_of_optimizer",
    "operations_of",
    "smallest_mesh",
    "traffic_of",
    "without_values",
]
