"""Weights in an HDF5 file as Keras writes it, looked over before Keras reads it."""

import dataclasses
import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

from zoo.storage import h5_sizes

# by the clock, for each second of processor time that the process may take: other processes and disks take their share
_PATIENCE = 5


@dataclasses.dataclass(frozen=True)
class H5Weights:
    """The weights in an HDF5 file.

    Args:
        path: The file.
        tensors: How many tensors it holds.
        elements: How many numbers it holds.
    """

    path: Path
    tensors: int
    elements: int

    def load_into(self, model: Any) -> None:
        """Gives a model its weights.

        Args:
            model: A built Keras model.

        Raises:
            ValueError: If they do not fit the model; the message names the file.
        """
        try:
            model.load_weights(self.path)
        except Exception as error:  # of HDF5, of Keras, of the backend: their kinds are many
            raise ValueError(f"{self.path} does not fit the model: {h5_sizes.describe(error)}") from error


def open_h5(path: Path, is_own: bool = False) -> H5Weights:
    """Looks over an HDF5 file of weights; first in another process, unless this one has written the file.

    Args:
        path: The file.
        is_own: Whether this process has written it. What others wrote may be made to break the HDF5 library.

    Raises:
        ValueError: If it is damaged, or holds more than plain numbers: links to other files, objects, texts, numbers
            that it declares and does not hold. The message names file and entry.

    Example:

    >>> open_h5(Path("model.weights.h5")).elements
    109482240
    """
    sizes = h5_sizes.sizes_of(str(path)) if is_own or not sys.executable else _sizes_from_outside(path)
    return H5Weights(path, len(sizes), sum(sizes))


def _sizes_from_outside(path: Path) -> list[int]:
    """What another process finds in a file. It takes a third of a second, and dies in place of this one."""
    # -P: the modules next to the script are not to be taken for those of the same names elsewhere
    command = [sys.executable, "-P", h5_sizes.__file__, str(path)]
    # NumPy would start threads on all processors
    environment = {**os.environ, "OMP_NUM_THREADS": "1", "OPENBLAS_NUM_THREADS": "1"}
    seconds = _PATIENCE * h5_sizes.most_seconds(str(path))
    try:
        done = subprocess.run(command, capture_output=True, stdin=subprocess.DEVNULL, timeout=seconds, env=environment)
    except subprocess.TimeoutExpired:
        raise ValueError(f"{path} is damaged: reading it takes more than {seconds} seconds.") from None
    try:
        answer = json.loads(done.stdout)
    except ValueError:
        cause = f"signal {-done.returncode}" if done.returncode < 0 else f"exit code {done.returncode}"
        raise ValueError(f"{path} is damaged: the HDF5 library ends the process that reads it ({cause}).") from None
    if "error" in answer:
        raise ValueError(answer["error"])
    return answer["sizes"]
