"""Training on several devices and machines: what models train on, how they are shared, several processes.

* TensorFlow: `use("mirrored")`, the devices of one machine (`tf.distribute.MirroredStrategy`).
* JAX: `use("data")`, `use("model")` or `use({"data": 4, "model": 2})`, the devices of any number of processes.
"""

from zoo.distribution.choice import check, chosen, scope, use
from zoo.distribution.layouts import ModelLayouts, laid_out, partitions_of, roles_of
from zoo.distribution.model import DistributedModel
from zoo.distribution.one_device import move_to_one_device, on_one_device
from zoo.distribution.processes import end_process, initialize, is_lost_process
from zoo.storage.processes import (
    first_process_first,
    is_first_process,
    num_processes,
    process_id,
    wait_for_all,
    whole_value,
    whole_values,
)

__all__ = [
    "DistributedModel",
    "ModelLayouts",
    "check",
    "on_one_device",
    "chosen",
    "end_process",
    "first_process_first",
    "initialize",
    "is_first_process",
    "laid_out",
    "move_to_one_device",
    "is_lost_process",
    "num_processes",
    "partitions_of",
    "process_id",
    "roles_of",
    "scope",
    "use",
    "wait_for_all",
    "whole_value",
    "whole_values",
]
