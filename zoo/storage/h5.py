"""Weights in an HDF5 file as Keras writes it, looked over before Keras reads it."""

import collections
import dataclasses
import json
import math
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import h5py

from layers.keras_internals import sublayers
from zoo.storage import h5_sizes
from zoo.storage.deferred import assign_value

# by the clock, for each second of processor time that the process may take: other processes and disks take their share
_PATIENCE = 20
_MOST_LINES = 8
# tables of at least this part of all numbers are large
_LARGE_SHARE = 50


@dataclasses.dataclass(frozen=True)
class H5Weights:
    """The weights in an HDF5 file.

    Args:
        path: The file.
        shapes: Shape of each tensor by its name in the file.
    """

    path: Path
    shapes: dict[str, tuple[int, ...]]

    @property
    def elements(self) -> int:
        """Number of entries of all tensors."""
        return sum(map(math.prod, self.shapes.values()))

    def check_shapes(self, model: Any, source: str) -> None:
        """Checks that the file has a tensor for each weight, without reading any.

        Args:
            model: A built Keras model. Its weights need no values.
            source: The file of the configuration, for the error message.

        Raises:
            ValueError: If a weight has no tensor. The message names it with its shape, and the unused tensors of the
                file.
        """
        left: dict[tuple[int, ...], list[str]] = {}
        for name, shape in self.shapes.items():
            left.setdefault(shape, []).append(name)
        lacking = []
        for variable in model.weights:
            names = left.get(tuple(variable.shape))
            if names:
                names.pop()
            else:
                lacking.append(f"{variable.path} needs a tensor of shape {tuple(variable.shape)}, the file has no more")
        if lacking:
            others = [f"{name} {shape} is in the file" for shape, names in left.items() for name in names]
            lines = [*_shortened(lacking), *_shortened(others)]
            raise ValueError(f"{self.path} does not fit {source}:\n  " + "\n  ".join(lines))

    def load_into(self, model: Any) -> None:
        """Loads the weights into a model, large tables first, because Keras holds several copies of what it reads.

        Args:
            model: A built Keras model.

        Raises:
            ValueError: If the weights do not fit the model. The message names the file.
        """
        try:
            model.load_weights(self.path, objects_to_skip=self._read_largest(model))
        except Exception as error:  # of HDF5, of Keras, of the backend: their kinds are many
            raise ValueError(f"{self.path} does not fit the model: {h5_sizes.describe(error)}") from error

    def _read_largest(self, model: Any) -> list[Any]:
        """Reads large tables that are known by their shape alone; returns their layers."""
        names = collections.Counter(self.shapes.values())
        needed = collections.Counter(tuple(weight.shape) for weight in model.weights)
        unique = {shape: name for name, shape in self.shapes.items() if names[shape] == needed[shape] == 1}
        large, tables = self.elements / _LARGE_SHARE, {}
        for layer in sublayers(model):
            if len(layer.weights) == 1 and not sublayers(layer, include_self=False):
                shape = tuple(layer.weights[0].shape)
                if shape in unique and math.prod(shape) >= large:
                    tables[unique[shape]] = layer
        read = []
        with h5py.File(self.path, "r") as file:
            for name in sorted(tables, key=lambda name: -math.prod(self.shapes[name])):
                # Keras stores bfloat16 in its own way
                if file[name].dtype.kind == "f":
                    assign_value(tables[name].weights[0], file[name][()])
                    read.append(tables[name])
        return read


def open_h5(path: Path, is_own: bool = False) -> H5Weights:
    """Checks an HDF5 file of weights, first in a child process unless this process wrote the file.

    Args:
        path: The file.
        is_own: Whether this process wrote it. Other files may be made to crash the HDF5 library.

    Raises:
        ValueError: If the file is damaged, or holds something other than plain numbers: links to other files, objects,
            texts, or numbers that are declared but missing. The message names file and entry.

    Example:

    >>> open_h5(Path("model.weights.h5")).elements
    109482240
    """
    shapes = h5_sizes.shapes_of(str(path)) if is_own or not sys.executable else _shapes_from_outside(path)
    return H5Weights(path, {name: tuple(shape) for name, shape in shapes.items()})


def _shortened(lines: list[str]) -> list[str]:
    return lines if len(lines) <= _MOST_LINES else [*lines[:_MOST_LINES], f"and {len(lines) - _MOST_LINES} more"]


def _shapes_from_outside(path: Path) -> dict[str, list[int]]:
    """What another process finds in a file. It takes a third of a second, and dies in place of this one."""
    # -P: the modules next to the script are not to be taken for those of the same names elsewhere
    command = [sys.executable, "-P", h5_sizes.__file__, str(path)]
    # NumPy would start threads on all processors
    environment = {**os.environ, "OMP_NUM_THREADS": "1", "OPENBLAS_NUM_THREADS": "1"}
    seconds = _PATIENCE * h5_sizes.most_seconds(str(path))
    try:
        done = subprocess.run(command, capture_output=True, stdin=subprocess.DEVNULL, timeout=seconds, env=environment)
    except subprocess.TimeoutExpired:
        raise ValueError(
            f"{path} takes more than {seconds} seconds to read: it is damaged, or this machine is too busy."
        ) from None
    try:
        answer = json.loads(done.stdout)
    except ValueError:
        cause = f"signal {-done.returncode}" if done.returncode < 0 else f"exit code {done.returncode}"
        raise ValueError(f"{path} is damaged: the HDF5 library ends the process that reads it ({cause}).") from None
    if "error" in answer:
        raise ValueError(answer["error"])
    return answer["shapes"]
