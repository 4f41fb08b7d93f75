"""Weights in an HDF5 file as Keras writes it, looked over before Keras reads it."""

import dataclasses
from pathlib import Path
from typing import Any

import h5py

from zoo.storage.errors import quote

MOST_DEPTH = 64
MOST_ENTRIES = 1_000_000


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
            raise ValueError(f"{self.path} does not fit the model: {_text(error)}") from error


def open_h5(path: Path) -> H5Weights:
    """Looks over an HDF5 file of weights.

    Args:
        path: The file.

    Raises:
        ValueError: If it is damaged, or holds more than plain numbers: links to other files, objects, texts, numbers
            that it declares and does not hold. The message names file and entry.

    Example:

    >>> open_h5(Path("model.weights.h5")).elements
    109482240
    """
    try:
        with h5py.File(path, "r") as file:
            sizes = _sizes(file, path)
    except ValueError as error:
        if str(path) in str(error):
            raise
        raise ValueError(f"{path} is damaged: {_text(error)}") from error
    except Exception as error:  # of HDF5: OSError, RuntimeError, KeyError, TypeError
        raise ValueError(f"{path} is damaged or is no HDF5 file: {_text(error)}") from error
    return H5Weights(path, len(sizes), sum(sizes))


def _text(error: Exception) -> str:
    return quote(f"{type(error).__name__}: {error}", most=600, plain=True)


def _sizes(file: h5py.File, path: Path) -> list[int]:
    sizes, seen, waiting = [], set(), [(file, "", 0)]
    while waiting:
        group, place, depth = waiting.pop()
        for name in group:
            entry = f"{place}/{name}"
            shown = f"{path}: {quote(entry, plain=True)}"
            if len(seen) > MOST_ENTRIES or depth > MOST_DEPTH:
                raise ValueError(f"{shown} must be among at most {MOST_ENTRIES} entries, {MOST_DEPTH} deep.")
            if not isinstance(group.get(name, getlink=True), h5py.HardLink):
                raise ValueError(f"{shown} must be in this file, it is a link to elsewhere.")
            try:
                item = group[name]
            except Exception as error:  # of HDF5: KeyError, RuntimeError, OSError
                raise ValueError(f"{shown} is damaged: {_text(error)}") from error
            address = h5py.h5o.get_info(item.id).addr
            if address in seen:
                raise ValueError(f"{shown} must be there once, it is another name of an entry.")
            seen.add(address)
            if isinstance(item, h5py.Group):
                waiting.append((item, entry, depth + 1))
            elif isinstance(item, h5py.Dataset):
                _check_dataset(item, shown)
                sizes.append(int(item.size))
            else:
                raise ValueError(f"{shown} must be a group or an array of numbers, it is a {type(item).__name__}.")
    return sizes


def _check_dataset(item: h5py.Dataset, shown: str) -> None:
    # bfloat16, which HDF5 does not know, is stored as two bytes
    is_half = item.dtype.kind == "V" and item.dtype.itemsize == 2 and item.dtype.names is None
    if item.dtype.kind not in "fiub" and not is_half:
        raise ValueError(f"{shown} must hold numbers, it has the type {quote(item.dtype)}.")
    if item.external or item.is_virtual or item.chunks is not None or item.shape is None:
        raise ValueError(f"{shown} must be stored in one piece in this file.")
    declared, stored = int(item.size) * item.dtype.itemsize, item.id.get_storage_size()
    if declared != stored:
        raise ValueError(f"{shown} has the shape {quote(item.shape)}, {declared} bytes, and holds {stored} bytes.")
