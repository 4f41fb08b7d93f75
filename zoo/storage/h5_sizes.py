"""Looks over an HDF5 file of weights. Also a script, so that a process of its own can do it: it imports h5py alone.

    python h5_sizes.py FILE

The HDF5 library is written in C and trusts much of what it reads; a file that is made to break it ends that process and
not the one that loads a model. What it prints is one line of JSON: the shape of each array, or an error.
"""

import contextlib
import json
import os
import sys
from typing import Any

import h5py

MOST_DEPTH = 64
MOST_ENTRIES = 1_000_000
# of a process that looks at a file: processor time and memory, beyond what it has when it begins
_SECONDS, _BYTES_PER_SECOND = 6, 2**24
_MEMORY, _MEMORY_PER_BYTE = 400 * 2**20, 2
_BLOCK = 2**22


def shapes_of(path: str, read: bool = False) -> dict[str, list[int]]:
    """Returns the shape of each array in an HDF5 file that holds nothing but plain numbers, by its name.

    Args:
        path: The file.
        read: Whether to read all numbers, too.

    Raises:
        ValueError: If the file is damaged, or holds links to other files, objects, texts, or numbers that it declares
            and does not hold. The message names file and entry.
    """
    try:
        with h5py.File(path, "r") as file:
            return _shapes(file, path, read)
    except ValueError as error:
        if path in str(error):
            raise
        raise ValueError(f"{path} is damaged: {describe(error)}") from error
    except Exception as error:  # of HDF5: OSError, RuntimeError, KeyError, TypeError
        raise ValueError(f"{path} is damaged or is no HDF5 file: {describe(error)}") from error


def most_seconds(path: str) -> int:
    """Returns how many seconds of processor time looking at a file may take.

    Args:
        path: The file.
    """
    return _SECONDS + os.path.getsize(path) // _BYTES_PER_SECOND


def describe(error: Exception, most: int = 600) -> str:
    """Returns the kind and the text of an error, cut where it is long.

    Args:
        error: The error.
        most: Number of characters that are shown.
    """
    text = f"{type(error).__name__}: {error}"
    return text if len(text) <= most else f"{text[:most]}... ({len(text)} characters)"


def _shapes(file: h5py.File, path: str, read: bool) -> dict[str, list[int]]:
    shapes: dict[str, list[int]] = {}
    seen: set[int] = set()
    waiting: list[tuple[Any, str, int]] = [(file, "", 0)]
    while waiting:
        group, place, depth = waiting.pop()
        for name in group:
            entry = f"{place}/{name}"
            shown = f"{path}: {entry[:200]}"
            if len(seen) > MOST_ENTRIES or depth > MOST_DEPTH:
                raise ValueError(f"{shown} must be among at most {MOST_ENTRIES} entries, {MOST_DEPTH} deep.")
            if not isinstance(group.get(name, getlink=True), h5py.HardLink):
                raise ValueError(f"{shown} must be in this file, got a link to elsewhere.")
            try:
                item = group[name]
            except Exception as error:  # of HDF5: KeyError, RuntimeError, OSError
                raise ValueError(f"{shown} is damaged: {describe(error)}") from error
            address = h5py.h5o.get_info(item.id).addr
            if address in seen:
                raise ValueError(f"{shown} must be there once, got another name of the same entry.")
            seen.add(address)
            if isinstance(item, h5py.Group):
                waiting.append((item, entry, depth + 1))
            elif isinstance(item, h5py.Dataset):
                _check_dataset(item, shown)
                if read:
                    _read(item)
                shapes[entry] = list(map(int, item.shape))
            else:
                raise ValueError(f"{shown} must be a group or an array of numbers, got a {type(item).__name__}.")
    return shapes


def _check_dataset(item: h5py.Dataset, shown: str) -> None:
    # bfloat16, which HDF5 does not know, is stored as two bytes
    is_half = item.dtype.kind == "V" and item.dtype.itemsize == 2 and item.dtype.names is None
    if item.dtype.kind not in "fiub" and not is_half:
        raise ValueError(f"{shown} must hold numbers, got the type {str(item.dtype)[:200]}.")
    if item.external or item.is_virtual or item.chunks is not None or item.shape is None:
        raise ValueError(f"{shown} must be stored in one piece in this file.")
    declared, stored = int(item.size) * item.dtype.itemsize, item.id.get_storage_size()
    if declared != stored:
        raise ValueError(f"{shown} has the shape {str(item.shape)[:200]}, {declared} bytes, and holds {stored} bytes.")


def _read(item: h5py.Dataset) -> None:
    if item.ndim == 0 or not item.size:
        item[()]
        return
    rows = max(1, _BLOCK * item.shape[0] // int(item.size))
    for start in range(0, item.shape[0], rows):
        item[start : start + rows]


def limit(path: str) -> None:
    """Bounds the time and the memory of this process by the size of a file.

    Args:
        path: The file.
    """
    # Linux has both; where a lower limit is set, that one holds
    with contextlib.suppress(ImportError, ValueError, OSError):
        import resource

        seconds = most_seconds(path)
        resource.setrlimit(resource.RLIMIT_CPU, (seconds, seconds))
        with open("/proc/self/statm", encoding="ascii") as file:
            most = int(file.read().split()[0]) * resource.getpagesize()
        most += _MEMORY + _MEMORY_PER_BYTE * os.path.getsize(path)
        resource.setrlimit(resource.RLIMIT_AS, (most, most))


def main() -> None:
    """Prints what the file that is named on the command line holds."""
    limit(sys.argv[1])
    try:
        answer = {"shapes": shapes_of(sys.argv[1], read=True)}
    except ValueError as error:
        answer = {"error": str(error)}
    print(json.dumps(answer))


if __name__ == "__main__":
    main()
