"""Tensors of a directory of the Transformers library: one safetensors file, or several with an index."""

import contextlib
import math
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any

import numpy as np

from zoo.storage.errors import quote, quote_key
from zoo.storage.json_files import MOST_CONFIG_VALUES, read_json
from zoo.storage.stored_file import file_inside, is_plain
from zoo.storage.tensors import MappedTensors
from zoo.storage.typed import require_type

CONFIG_FILE = "config.json"
WEIGHTS_FILE = "model.safetensors"
INDEX_FILE = "model.safetensors.index.json"
ENDING = ".safetensors"
# weights_only runs no code; tensors that share memory are stored each for itself
_CONVERT = (
    "import glob, torch, safetensors.torch as s; s.save_file({{name: t.clone().contiguous() for file in "
    "sorted(glob.glob('{pickled}')) for name, t in torch.load(file, map_location='cpu', weights_only=True).items()}}, "
    "'{name}')"
)


# how other files with the weights of a directory are opened, by their names
_OTHERS: dict[str, Callable[[Path], contextlib.AbstractContextManager["TensorFiles"]]] = {}


def register_weights(name: str, opens: Callable[[Path], contextlib.AbstractContextManager["TensorFiles"]]) -> None:
    """Has `open_checkpoint` open a file of a name in another way.

    Args:
        name: Name of the file in a directory.
        opens: Takes its path.
    """
    _OTHERS[name] = opens


class TensorFiles:
    """The tensors of a directory by name, read one at a time.

    Args:
        shapes: Shape of each tensor, by name.
        read: Function that returns the tensor of a name.
        source: The file with all tensors or their index, for errors.
        owner: The file of each tensor, for errors; left out if `source` has all tensors.
    """

    def __init__(
        self,
        shapes: Mapping[str, tuple[int, ...]],
        read: Callable[[str], np.ndarray],
        source: str,
        owner: Mapping[str, str] | None = None,
    ) -> None:
        self.shapes = shapes
        self.source = source
        self._owner = owner or {}
        self._read = read

    def file_of(self, name: str) -> str:
        """Returns the name of the file that has a tensor."""
        return self._owner.get(name, self.source)

    def renamed(self, names: Mapping[str, str]) -> "TensorFiles":
        """Returns the same tensors under other names.

        Args:
            names: Present names by new names.
        """
        shapes = {new: self.shapes[name] for new, name in names.items()}
        owner = {new: self.file_of(name) for new, name in names.items()}
        return TensorFiles(shapes, lambda new: self._read(names[new]), self.source, owner)

    def get(self, name: str) -> np.ndarray:
        """Returns a tensor as it is stored."""
        return self._read(name)


def read_config_file(directory: Path) -> dict[str, Any]:
    """Returns what the `config.json` of a directory says.

    Args:
        directory: The directory.

    Raises:
        ValueError: If it is no plain JSON object, or holds more values than the configuration of any model.
        FileNotFoundError: If there is none.
    """
    # as Transformers 5 writes the number for which older versions wrote the word
    infinity = {"__float__": "Infinity"}
    return read_json(directory / CONFIG_FILE, most_values=MOST_CONFIG_VALUES, infinity=infinity)


@contextlib.contextmanager
def open_checkpoint(directory: Path, required: bool = True) -> Iterator[TensorFiles]:
    """Opens the safetensors files of a directory: the single file if there is one, else the files of an index.

    Args:
        directory: The directory.
        required: Whether there must be files. Without all of them, no tensors are returned then.

    Raises:
        ValueError: If there are no files, if one is missing or damaged, or if they do not fit the index. Pickled
            weights are never read.
    """
    for name, opens in _OTHERS.items():
        if (directory / name).is_file():
            with opens(directory / name) as tensors:
                yield tensors
            return
    if not required and not _has_all_files(directory):
        yield TensorFiles({}, {}.__getitem__, WEIGHTS_FILE)
        return
    with contextlib.ExitStack() as stack:
        files, owner, shapes = {}, {}, {}
        index = _read_index(directory)
        for name in sorted(set(index.values())) if index else [WEIGHTS_FILE]:
            files[name] = stack.enter_context(contextlib.closing(MappedTensors(directory / name)))
            for tensor, shape in files[name].shapes.items():
                owner[tensor] = name
                shapes[tensor] = shape
        source = WEIGHTS_FILE if index is None else INDEX_FILE
        if index is not None and index != owner:
            name = sorted(set(index.items()) ^ set(owner.items()))[0][0]
            raise ValueError(
                f"{directory / source}: weight_map.{quote_key(name)} must be the file that has this tensor, "
                f"{quote(owner.get(name))}, got {quote(index.get(name))}; the files are {quote(sorted(files))}."
            )
        if not shapes:
            raise ValueError(f"{directory / source} must hold tensors, got a header that names none.")
        if not any(math.prod(shape) for shape in shapes.values()):
            first = quote_key(next(iter(shapes)))
            raise ValueError(f"{directory / source}: {first} must hold numbers, as one tensor at least; all are empty.")
        yield TensorFiles(shapes, lambda name: files[owner[name]].get(name), source, owner)


@contextlib.contextmanager
def open_tensor_file(path: Path) -> Iterator[TensorFiles]:
    """Opens one safetensors file.

    Args:
        path: The file.

    Raises:
        ValueError: If the file does not exist or is damaged. Pickled weights are never read.
    """
    _require_safetensors(path)
    with contextlib.closing(MappedTensors(path)) as file:
        yield TensorFiles(file.shapes, file.get, path.name)


def _has_all_files(directory: Path) -> bool:
    """Whether all files of tensors are there; of an index that is damaged the error is raised where it is read."""
    if (directory / WEIGHTS_FILE).is_file() or not (directory / INDEX_FILE).is_file():
        return (directory / WEIGHTS_FILE).is_file()
    index = read_json(directory / INDEX_FILE).get("weight_map")
    names = list(index.values()) if isinstance(index, dict) else []
    return all(not isinstance(name, str) or not is_plain(name) or (directory / name).is_file() for name in names)


def _read_index(directory: Path) -> dict[str, str] | None:
    """File of each tensor; None where all are in one."""
    # as for the Transformers library, which does not look at an index beside a single file
    if not (directory / WEIGHTS_FILE).is_file() and (directory / INDEX_FILE).is_file():
        values, key = read_json(directory / INDEX_FILE), f"{directory / INDEX_FILE}: weight_map"
        if "weight_map" not in values:
            raise ValueError(f"{key} is missing.")
        index = values["weight_map"]
        require_type(index, dict[str, str], key)
        if not index:
            raise ValueError(f"{key} must name the file of each tensor, got {{}}.")
        for name, tensor in {name: tensor for tensor, name in index.items()}.items():
            file_inside(directory, name, f"{key}.{quote_key(tensor)}")
            if not name.endswith(ENDING):
                raise ValueError(f"{key}.{quote_key(tensor)} must be the name of a {ENDING} file, got {quote(name)}.")
        return index
    _require_safetensors(directory / WEIGHTS_FILE)
    return None


def _require_safetensors(path: Path) -> None:
    if path.is_file():
        return
    others = sorted(found.name for pattern in ("*.bin", "*.h5", "*.msgpack") for found in path.parent.glob(pattern))
    message = f"{path.parent} has no {path.name}"
    if others:
        message += f", only {others}, which may hold code and are not read"
    pickled = f"{path.name.removesuffix(ENDING).replace('model', 'pytorch_model', path.name == WEIGHTS_FILE)}*.bin"
    if not any(path.parent.glob(pickled)):
        raise ValueError(f"{message}. Save the model with safetensors, or take random weights with load_weights=False.")
    raise ValueError(
        f"{message}. With PyTorch and safetensors installed, this command in that directory reads tensors alone and "
        f'writes them as {path.name}:\n  python -c "{_CONVERT.format(pickled=pickled, name=path.name)}"'
    )
