"""How errors show a value, and names of other libraries."""

from collections.abc import Collection, Mapping
from typing import Any


def describe(value: Any) -> str:
    """Returns the text by which an error shows a value.

    Tensors are shown by their shape, numbers, strings and None by their value, other objects by their type.

    Args:
        value: Any value. The entries of a tensor are not read.

    Example:

    >>> describe(keras.ops.zeros((2, 5))), describe(None), describe({})
    ('shape (2, 5)', 'None', 'a dict')
    """
    if hasattr(value, "shape"):
        return f"shape {tuple(value.shape)}"
    if value is None or isinstance(value, (bool, int, float, str)):
        return repr(value)
    return f"a {type(value).__name__}"


def refuse_names(caller: str, given: Collection[str], instead: Mapping[str, str]) -> None:
    """Raises an error if an argument has the name that another library gives it.

    Args:
        caller: What is called, for the error.
        given: Names of the arguments.
        instead: What to use in place of each name of another library.

    Raises:
        TypeError: If one of the names is given.

    Example:

    >>> refuse_names("MultiHeadAttention()", ["num_heads", "key_dim"], {"key_dim": "head_dim"})
    TypeError: MultiHeadAttention() takes no key_dim: use head_dim.
    """
    for name in given:
        if name in instead:
            raise TypeError(f"{caller} takes no {name}: use {instead[name]}.")
