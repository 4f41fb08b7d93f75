"""How errors show a value."""

from typing import Any


def describe(value: Any) -> str:
    """Returns how an error shows a value: a tensor by its shape, a number, a string or None by itself, others by type.

    Args:
        value: Any value; a tensor's values are not read.

    Example:

    >>> describe(keras.ops.zeros((2, 5))), describe(None), describe({})
    ('shape (2, 5)', 'None', 'a dict')
    """
    if hasattr(value, "shape"):
        return f"shape {tuple(value.shape)}"
    if value is None or isinstance(value, (bool, int, float, str)):
        return repr(value)
    return f"a {type(value).__name__}"
