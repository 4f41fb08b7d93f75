"""Weights that a file has in parts: packed integers, scales, zero points."""

import dataclasses
import math
from collections.abc import Callable, Iterable, Mapping

import numpy as np

from zoo.storage import TensorFiles, quote_key

Shape = tuple[int, ...]


@dataclasses.dataclass(frozen=True)
class Packed:
    """A weight that is stored as other tensors.

    Args:
        shape: Its shape, `(outputs, inputs)` as files without quantization have it.
        parts: Names of the tensors that it is made of, by the argument of `unpack` each is.
        unpack: Function from these tensors to the weight.
        unread: Names of tensors beside them that say nothing more of the weight.
    """

    shape: Shape
    parts: Mapping[str, str]
    unpack: Callable[..., np.ndarray]
    unread: tuple[str, ...] = ()


def unpacked(files: TensorFiles, packed: Mapping[str, Packed]) -> TensorFiles:
    """Returns tensors with weights in the place of their parts, each unpacked when it is asked for.

    Args:
        files: The tensors of a directory.
        packed: Weights by name.

    Raises:
        ValueError: If a weight is also stored as it is.
    """
    if not packed:
        return files
    parts = {part for weight in packed.values() for part in (*weight.parts.values(), *weight.unread)}
    shapes = {name: shape for name, shape in files.shapes.items() if name not in parts}
    owner = {name: files.file_of(name) for name in files.shapes}
    for name, weight in packed.items():
        first = next(iter(weight.parts.values()))
        if name in shapes:
            raise ValueError(f"{files.file_of(name)}: {quote_key(name)} must not be there beside {quote_key(first)}.")
        shapes[name], owner[name] = weight.shape, files.file_of(first)

    def read(name: str) -> np.ndarray:
        if name not in packed:
            return files.get(name)
        weight = packed[name]
        return weight.unpack(**{role: np.asarray(files.get(part)) for role, part in weight.parts.items()})

    return TensorFiles(shapes, read, files.source, owner)


def names_ending(files: TensorFiles, ending: str) -> list[str]:
    """Returns the beginnings of the names of tensors that end so.

    Args:
        files: The tensors.
        ending: The ending.
    """
    return [name.removesuffix(ending) for name in files.shapes if name.endswith(ending)]


def require_shape(files: TensorFiles, name: str, *allowed: Shape) -> Shape:
    """Returns the shape of a tensor.

    Args:
        files: The tensors.
        name: Name of the tensor.
        *allowed: Shapes, of which it must have one.

    Raises:
        ValueError: If there is no such tensor, or it has another shape.
    """
    if name not in files.shapes:
        raise ValueError(f"{files.source} lacks {quote_key(name)}, a part of a quantized weight.")
    shape = tuple(files.shapes[name])
    if shape not in allowed:
        shapes = " or ".join(map(str, dict.fromkeys(allowed)))
        raise ValueError(f"{files.file_of(name)}: {quote_key(name)} must have shape {shapes}, got {shape}.")
    return shape


def require_axes(files: TensorFiles, name: str, axes: int) -> Shape:
    """Returns the shape of a tensor that has so many axes, none of them empty.

    Args:
        files: The tensors.
        name: Name of the tensor.
        axes: Their number.

    Raises:
        ValueError: If it has others.
    """
    shape = tuple(files.shapes[name])
    if len(shape) != axes or 0 in shape:
        raise ValueError(f"{files.file_of(name)}: {quote_key(name)} must have {axes} axes, none empty, got {shape}.")
    return shape


def require_dtypes(what: str, array: np.ndarray, allowed: Iterable[str]) -> None:
    """Checks what an array holds.

    Args:
        what: What it is, for errors.
        array: The array.
        allowed: Names of dtypes.

    Raises:
        ValueError: If it holds something else.
    """
    if array.dtype.name not in (allowed := tuple(allowed)):
        raise ValueError(f"{what} must hold {' or '.join(allowed)}, got {array.dtype}.")


FLOATS = ("float16", "bfloat16", "float32")


def numbers_of(what: str, array: np.ndarray) -> np.ndarray:
    """Returns finite floating-point numbers as float32.

    Args:
        what: What they are, for errors.
        array: The numbers.

    Raises:
        ValueError: If they are none.
    """
    require_dtypes(what, array, FLOATS)
    numbers = array.astype("float32")
    is_finite = np.isfinite(numbers)
    if not is_finite.all():
        place = np.argwhere(~is_finite)[0].tolist()
        raise ValueError(f"{what} must be finite numbers, got {numbers[~is_finite][0]} at {place}.")
    return numbers


def unpack_integers(words: np.ndarray, bits: int) -> np.ndarray:
    """Returns integers of a few bits that stand one behind the other in words of 32 bits, the lowest bits first.

    Args:
        words: `(words, columns)` in int32; integers follow each other along the first axis, also across words.
        bits: Bits of an integer, 1 to 8.

    Returns:
        Integers from 0 to `2**bits - 1`, `(32 * words // bits, columns)` in uint8.

    Raises:
        ValueError: If the words are no int32.

    Example:

    >>> unpack_integers(np.array([[0x21], [0x43]], "int32"), 4)[:, 0]
    array([1, 2, 0, 0, 0, 0, 0, 0, 3, 4, 0, 0, 0, 0, 0, 0], dtype=uint8)
    """
    require_dtypes("packed integers", words, ("int32", "uint32"))
    count = 32 * len(words) // bits
    # as many words as hold a whole number of integers
    together = bits // math.gcd(bits, 32)
    padded = np.pad(words.view("uint32"), ((0, -len(words) % together), (0, 0)))
    rows = padded.reshape(-1, together, words.shape[1])
    integers = np.empty((len(rows), 32 * together // bits, words.shape[1]), "uint8")
    for index in range(integers.shape[1]):
        word, shift = divmod(index * bits, 32)
        value = rows[:, word] >> np.uint32(shift)
        if shift + bits > 32:
            value |= rows[:, word + 1] << np.uint32(32 - shift)
        integers[:, index] = value & np.uint32(2**bits - 1)
    return integers.reshape(-1, words.shape[1])[:count]


def of_blocks(values: np.ndarray, block: tuple[int, int], shape: Shape) -> np.ndarray:
    """Returns a value for each place of a weight from one for each block; blocks at the edges may be smaller.

    Args:
        values: One value for each block, `(ceil(outputs / rows), ceil(inputs / columns))`.
        block: Rows and columns of a block.
        shape: Shape of the weight.

    Example:

    >>> of_blocks(np.array([[1, 2]]), (2, 2), (2, 3))
    array([[1, 1, 2],
           [1, 1, 2]])
    """
    for axis, (size, side) in enumerate(zip(block, shape, strict=True)):
        values = np.repeat(values, min(size, side), axis=axis)  # a file may say any size
    return values[: shape[0], : shape[1]]
