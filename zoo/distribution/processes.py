"""How several processes that train one model find each other."""

import ctypes
import faulthandler
import os
import re
import signal
import socket
import sys
import traceback
from typing import Any

import keras

from zoo.storage.processes import num_processes

# what `keras.distribution.initialize` reads, and what says that Slurm started several processes
_NUMBER, _SLURM = "KERAS_DISTRIBUTION_NUM_PROCESSES", "SLURM_NTASKS"
# how the messages of XLA begin that tell of another process
_STATUS = re.compile(r"(UNKNOWN|UNAVAILABLE|ABORTED|CANCELLED|INTERNAL|DEADLINE_EXCEEDED): ")
# exit status of a process that has lost another, and seconds that process 0 has for taking a connection
_LOST, _ANSWERS_WITHIN = 2, 5
_Handler = ctypes.CFUNCTYPE(None, ctypes.c_int)
# what C calls must not be collected
_handlers: list[Any] = []


def initialize() -> None:
    """Connects the processes that the environment names. Does nothing without them, or if they are connected.

    They are named by the variables `KERAS_DISTRIBUTION_JOB_ADDRESSES` (host and port of process 0),
    `KERAS_DISTRIBUTION_NUM_PROCESSES` and `KERAS_DISTRIBUTION_PROCESS_ID`, or by a step of Slurm (`srun`). Call this
    function before anything is computed.

    Raises:
        ValueError: If the variables name several processes and the backend is not JAX, or if a variable is missing.

    Example:

    >>> initialize()
    """
    count = int(os.environ.get(_NUMBER) or 0)
    in_slurm = not count and int(os.environ.get(_SLURM) or 1) > 1 and "SLURM_STEP_ID" in os.environ
    if count < 2 and not in_slurm:
        return
    if keras.backend.backend() != "jax":
        if in_slurm:
            # whose tasks may have a run each
            return
        raise ValueError(
            f"Several processes need KERAS_BACKEND=jax, got {keras.backend.backend()!r}: Keras 3 has no working "
            "MultiWorkerMirroredStrategy."
        )
    import jax

    if jax.distributed.is_initialized():
        return
    address, number = (os.environ.get(f"KERAS_DISTRIBUTION_{name}") for name in ("JOB_ADDRESSES", "PROCESS_ID"))
    if count and (not address or number is None):
        raise ValueError(
            f"{_NUMBER}={count} needs KERAS_DISTRIBUTION_JOB_ADDRESSES and KERAS_DISTRIBUTION_PROCESS_ID, got "
            f"{address!r} and {number!r}."
        )
    # what processors send to each other by; other devices bring their own
    if not jax.config.jax_cpu_collectives_implementation:
        jax.config.update("jax_cpu_collectives_implementation", "gloo")
    keras.distribution.initialize()
    if count and int(number):
        _say_when_first_is_lost(address.partition(",")[0], int(number), count)


def _say_when_first_is_lost(address: str, number: int, count: int) -> None:
    """Makes the end of process 0 a message and a status, after the stack that JAX prints.

    JAX aborts a process whose connection to process 0 breaks, in a thread of its own. Its callback for that cannot be
    written in Python (jaxlib 0.10.2), and a handler of Python's would be called by the main thread, after the abort.
    """
    host, _, port = address.rpartition(":")

    def handle(_: int) -> None:
        try:
            socket.create_connection((host.strip("[]"), int(port)), _ANSWERS_WITHIN).close()
        except OSError:
            message = (
                f"error: process {number} of {count} lost process 0, which has ended or does not answer at {address}; "
                "started again, all with the same command, the processes resume from the last saved state\n"
            )
            os.write(2, message.encode())
            os._exit(_LOST)
        # an abort of this process's own goes on when this returns; this handler has taken the place of that of Python
        if faulthandler.is_enabled():
            faulthandler.dump_traceback(all_threads=True)

    _handlers.append(_Handler(handle))
    # the C library's function: it has the handler called in the thread that aborts
    set_handler = ctypes.CDLL(None).signal
    set_handler.argtypes, set_handler.restype = [ctypes.c_int, _Handler], ctypes.c_void_p
    set_handler(signal.SIGABRT, _handlers[-1])


def is_lost_process(error: Exception) -> bool:
    """Returns whether an error in training means that another process has ended or does not answer.

    Args:
        error: The error. Errors of memory belong to this process.
    """
    if num_processes() == 1:
        return False
    import jax

    # that JAX raises when it reads what processes have sent to each other comes as a ValueError
    is_of_jax = isinstance(error, jax.errors.JaxRuntimeError) or (
        isinstance(error, ValueError) and _STATUS.match(str(error)) is not None
    )
    return is_of_jax and "RESOURCE_EXHAUSTED" not in str(error)


def end_process(status: int, error: BaseException | None = None) -> None:
    """Ends this process at once if other processes train with it; returns if there are none.

    A regular exit would deadlock: JAX waits for the other processes, which wait for this one.

    Args:
        status: The exit status.
        error: Error to print with its traceback first.

    Example:

    >>> end_process(2)  # of several processes
    """
    jax = sys.modules.get("jax")
    if jax is None or not jax.distributed.is_initialized():
        return
    if error is not None:
        traceback.print_exception(error)
    sys.stdout.flush()
    sys.stderr.flush()
    os._exit(status)
