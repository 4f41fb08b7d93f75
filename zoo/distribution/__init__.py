"""Training on several devices and machines: what models train on, how they are shared, several processes.

* TensorFlow: `use("mirrored")`, the devices of one machine (`tf.distribute.MirroredStrategy`).
* JAX: `use("data")`, `use("model")` or `use({"data": 4, "model": 2})`, the devices of any number of processes.
"""

from zoo.distribution.alone import alone, leave
from zoo.distribution.choice import check, chosen, scope, use
from zoo.distribution.layouts import ModelLayouts, laid_out, partitions_of, roles_of
from zoo.distribution.model import DistributedModel
from zoo.distribution.processes import end, initialize, lost_others
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
    "alone",
    "chosen",
    "end",
    "first_process_first",
    "initialize",
    "is_first_process",
    "laid_out",
    "leave",
    "lost_others",
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
