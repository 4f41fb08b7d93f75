"""The fields of an architecture in the metadata of a GGUF file, checked."""

from __future__ import annotations

from collections.abc import Collection

import numpy as np

from zoo.gguf.header import GGUFHeader
from zoo.gguf.read_tensor import read_tensor
from zoo.storage import quote


class Fields:
    """The fields whose keys begin with the name of the architecture, and what tensors there are.

    Args:
        header: The header of the file.

    Example:

    >>> Fields(read_gguf(Path("smollm2.gguf"))).count("block_count")
    30
    """

    def __init__(self, header: GGUFHeader) -> None:
        self.header = header
        self.architecture: str = header.require("general.architecture", str)

    def require_architecture(self, known: Collection[str]) -> None:
        """Raises a `ValueError` if the architecture is not one of those that are known."""
        if self.architecture not in known:
            raise ValueError(
                f"{self.header.path}: general.architecture must be one of {sorted(known)}, got "
                f"{quote(self.architecture)}."
            )

    def has(self, name: str) -> bool:
        """Returns whether there is a field of a name."""
        return f"{self.architecture}.{name}" in self.header.metadata

    def has_tensor(self, name: str) -> bool:
        """Returns whether there is a tensor of a name."""
        return name in self.header.tensors

    def rows(self, name: str) -> int:
        """Returns the number of rows of a matrix.

        Args:
            name: Name of the tensor.

        Raises:
            ValueError: If there is no such tensor, or it is no matrix.
        """
        tensor = self.header.tensors.get(name)
        if tensor is None or len(tensor.shape) != 2:
            raise ValueError(f"{self.header.path}: it must have a matrix {name}.")
        return tensor.shape[0]

    def flag(self, name: str, default: bool) -> bool:
        """Returns whether something is so.

        Args:
            name: Its name, without the architecture.
            default: What a missing field means.

        Raises:
            ValueError: If it is neither true nor false.
        """
        return self.header.get(f"{self.architecture}.{name}", bool, default)

    def index(self, name: str, default: int) -> int:
        """Returns an integer of at least 0.

        Args:
            name: Its name, without the architecture.
            default: What a missing field means.

        Raises:
            ValueError: If it is no such integer.
        """
        key = f"{self.architecture}.{name}"
        value = self.header.get(key, int, default)
        if not 0 <= value < 2**31:
            raise ValueError(f"{self.header.path}: {key} must be from 0 up to {2**31 - 1}, got {value}.")
        return value

    def count(self, name: str, default: int | None = None) -> int:
        """Returns an integer of at least 1.

        Args:
            name: Its name, without the architecture.
            default: What a missing field means; None if it must be there.

        Raises:
            ValueError: If it is missing, no integer, or too small or large.
        """
        key = f"{self.architecture}.{name}"
        value = self.header.require(key, int) if default is None else self.header.get(key, int, default)
        if not 1 <= value < 2**31:
            raise ValueError(f"{self.header.path}: {key} must be from 1 up to {2**31 - 1}, got {value}.")
        return value

    def counts(self, name: str, layers: int, default: int) -> list[int]:
        """Returns an integer of at least 0 for each layer: one for all of them, or a list.

        Args:
            name: Its name, without the architecture.
            layers: Number of layers.
            default: What a missing field means.

        Raises:
            ValueError: If one is no integer, or too small or large, or there is another number of them.
        """
        key = f"{self.architecture}.{name}"
        value = self.header.get(key, (int, np.ndarray), default)
        found = value.tolist() if isinstance(value, np.ndarray) else [value] * layers
        if len(found) != layers or not all(isinstance(each, int) and 0 <= each < 2**31 for each in found):
            raise ValueError(
                f"{self.header.path}: {key} must be an integer from 0 up to {2**31 - 1} for each of {layers} layers, "
                f"got {quote(found)}."
            )
        return found

    def number(self, name: str, default: float) -> float:
        """Returns a number: the shortest decimal that is the same in float32, see `shortest`.

        Args:
            name: Its name, without the architecture.
            default: What a missing field means.

        Raises:
            ValueError: If it is no finite number.
        """
        key = f"{self.architecture}.{name}"
        value = self.header.get(key, (int, float), default)
        if not np.isfinite(np.float32(value)):
            raise ValueError(f"{self.header.path}: {key} must be a finite number, got {value}.")
        return shortest(value)

    def factors(self, name: str) -> list[float] | None:
        """Returns the numbers of a tensor of one axis; None if it is missing.

        Args:
            name: Name of the tensor.

        Raises:
            ValueError: If it has more than one axis.
        """
        tensor = self.header.tensors.get(name)
        if tensor is None:
            return None
        if len(tensor.shape) != 1:
            raise ValueError(f"{self.header.path}: {name} must have one axis, got the shape {tensor.shape}.")
        return [shortest(each) for each in read_tensor(tensor)]


def shortest(value: float) -> float:
    """Returns the shortest decimal that is the same number in float32, which files store: 1e-05, not 9.99...e-06.

    Args:
        value: The number.

    Example:

    >>> shortest(9.999999747378752e-06)
    1e-05
    """
    return float(np.format_float_scientific(np.float32(value), unique=True))
