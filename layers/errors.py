"""How errors show a value."""

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
