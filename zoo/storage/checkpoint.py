"""Tensors of a directory of the Transformers library: one safetensors file, or several with an index."""

import contextlib
from collections.abc import Callable, Iterator
from pathlib import Path

import numpy as np

from zoo.storage.errors import quote
from zoo.storage.json_files import read_json
from zoo.storage.names import file_inside
from zoo.storage.tensors import open_tensors
from zoo.storage.typed import require_type

CONFIG_FILE = "config.json"
WEIGHTS_FILE = "model.safetensors"
INDEX_FILE = "model.safetensors.index.json"


class TensorFiles:
    """The tensors of a directory by name, read one at a time.

    Args:
        shapes: Shape of each tensor.
        read: Returns a tensor.
    """

    def __init__(self, shapes: dict[str, tuple[int, ...]], read: Callable[[str], np.ndarray]):
        self.shapes = shapes
        self._read = read

    def get(self, name: str) -> np.ndarray:
        """Returns a tensor; half-precision ones in float32."""
        tensor = self._read(name)
        return tensor.astype("float32") if tensor.dtype.name in ("bfloat16", "float16") else tensor


@contextlib.contextmanager
def open_checkpoint(directory: Path) -> Iterator[TensorFiles]:
    """Opens the safetensors files of a directory.

    Args:
        directory: The directory.

    Raises:
        ValueError: If there are none, one is missing or damaged, or they do not fit the index. Pickled weights are
            never read.
    """
    with contextlib.ExitStack() as stack:
        files, owner, shapes = {}, {}, {}
        index = _read_index(directory)
        for name in sorted(set(index.values())) if index else [WEIGHTS_FILE]:
            files[name] = stack.enter_context(open_tensors(directory / name))
            for tensor in files[name].keys():
                owner[tensor] = name
                shapes[tensor] = tuple(files[name].get_slice(tensor).get_shape())
        if index is not None and index != owner:
            differing = sorted(set(index.items()) ^ set(owner.items()))
            raise ValueError(
                f"{directory / INDEX_FILE} does not fit the files, for example at {quote(differing[0][0])}."
            )
        yield TensorFiles(shapes, lambda name: files[owner[name]].get_tensor(name))


def _read_index(directory: Path) -> dict[str, str] | None:
    """File of each tensor; None where all are in one."""
    if (directory / INDEX_FILE).is_file():
        index = read_json(directory / INDEX_FILE).get("weight_map")
        if not isinstance(index, dict) or not index:
            raise ValueError(f"{directory / INDEX_FILE} has no weight_map.")
        require_type(index, dict[str, str], f"{directory / INDEX_FILE}: weight_map")
        for tensor, name in index.items():
            file_inside(directory, name, f"{directory / INDEX_FILE}: weight_map.{tensor[:100]}")
        return index
    if not (directory / WEIGHTS_FILE).is_file():
        others = sorted(path.name for pattern in ("*.bin", "*.h5", "*.msgpack") for path in directory.glob(pattern))
        raise ValueError(
            f"{directory} has no {WEIGHTS_FILE}"
            + (f", only {others}, which may hold code and are not read" if others else "")
            + ". Save the model with safetensors."
        )
    return None
