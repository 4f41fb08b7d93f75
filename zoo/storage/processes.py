"""Several processes that hold one model together: which one writes files, and weights that none of them holds whole."""

import contextlib
from collections.abc import Iterator, Mapping
from typing import Any

import keras
import numpy as np
from keras import ops

# whether those that began together still wait for each other, see `separate_processes`
_together = True


def num_processes() -> int:
    """Returns how many processes train together."""
    if keras.backend.backend() != "jax" or not _together:
        return 1
    import jax

    return jax.process_count()


def process_id() -> int:
    """Returns the number of this process, from 0."""
    if keras.backend.backend() != "jax":
        return 0
    import jax

    return jax.process_index()


def is_first_process() -> bool:
    """Returns whether this is the process that writes files and messages."""
    return process_id() == 0


def wait_for_all(name: str) -> None:
    """Waits until all processes have come here.

    Args:
        name: Name of the place, the same in all processes.
    """
    if num_processes() > 1:
        from jax.experimental import multihost_utils

        multihost_utils.sync_global_devices(name)


def whole_value(tensor: Any) -> np.ndarray:
    """Returns the whole of a tensor or variable; all processes must ask for the same ones in the same order.

    Args:
        tensor: A variable, tensor or array, of which this process may hold a part.
    """
    value = tensor.value if isinstance(tensor, keras.Variable) else tensor
    if getattr(value, "is_fully_addressable", True) or value.is_fully_replicated:
        return np.asarray(ops.convert_to_numpy(tensor))
    from jax.experimental import multihost_utils

    return np.asarray(multihost_utils.process_allgather(value, tiled=True))


def whole_values(tensors: Mapping[str, Any]) -> dict[str, np.ndarray]:
    """Returns the whole of tensors, see `whole_value`; empty in all processes but the first, which keep none.

    Args:
        tensors: Tensors and variables by name.
    """
    values = {}
    for name, tensor in tensors.items():
        value = whole_value(tensor)
        if is_first_process():
            values[name] = value
    return values


@contextlib.contextmanager
def first_process_first(name: str) -> Iterator[None]:
    """In which the first process is before the others are: what it writes, they can read.

    Args:
        name: Name of the place, the same in all processes.
    """
    if not is_first_process():
        wait_for_all(name)
    yield
    if is_first_process():
        wait_for_all(name)


def separate_processes() -> None:
    """From here on no process waits for others: what follows is done by the first one alone."""
    global _together
    if num_processes() > 1:
        import jax

        wait_for_all("part")
        # here all are here: at its end a process would wait for those that have more to do
        jax.distributed.shutdown()
    _together = False
