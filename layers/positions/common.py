"""What the position layers share: checks of their arguments and the number format of angles and distances."""

import keras
from keras import ops


def float32_or_wider(dtype: str) -> str:
    """The number format for angles and attention scores: float32 under a half-precision policy, else `dtype` itself."""
    return "float64" if keras.backend.standardize_dtype(dtype) == "float64" else "float32"


def check_positive_integer(owner: str, name: str, value) -> int:
    """Returns `value` if it is an integer above zero, else raises a `ValueError` that names the argument."""
    if isinstance(value, bool) or not isinstance(value, int) or value < 1:
        raise ValueError(f"{owner}: `{name}` must be a positive integer, got {value!r}.")
    return value


def check_even(owner: str, name: str, value) -> int:
    """Returns `value` if it is an even positive integer (sines and cosines come in pairs), else raises."""
    check_positive_integer(owner, name, value)
    if value % 2:
        raise ValueError(f"{owner}: `{name}` must be even, because features are used in pairs, got {value}.")
    return value


def check_choice(owner: str, name: str, value, allowed: tuple[str, ...]) -> str:
    """Returns `value` if it is one of `allowed`, else raises a `ValueError` that lists them."""
    if value not in allowed:
        raise ValueError(f"{owner}: `{name}` must be one of {', '.join(map(repr, allowed))}, got {value!r}.")
    return value


def check_above_zero(owner: str, name: str, value) -> float:
    """Returns `value` as a float if it is a number above zero, else raises."""
    if isinstance(value, bool) or not isinstance(value, int | float) or not value > 0:
        raise ValueError(f"{owner}: `{name}` must be a number above zero, got {value!r}.")
    return float(value)


def integer_positions(owner: str, name: str, positions, ranks: tuple[int, ...] | None = None):
    """Returns `positions` as a tensor of integers.

    Args:
        owner: name of the layer, for the message.
        name: name of the argument, for the message.
        positions: tensor, array or list of integers.
        ranks: allowed numbers of axes, `None` for any.

    Raises:
        ValueError: the numbers are not integers (a float would lose digits in half precision), or the rank is wrong.
    """
    positions = ops.convert_to_tensor(positions)
    dtype = keras.backend.standardize_dtype(positions.dtype)
    if not dtype.startswith(("int", "uint")):
        raise ValueError(f"{owner}: `{name}` must hold integers, got dtype {dtype}.")
    if ranks is not None and len(positions.shape) not in ranks:
        raise ValueError(
            f"{owner}: `{name}` must have shape (length,) or (batch, length), got shape {tuple(positions.shape)}."
        )
    return positions


def distances(owner: str, query_positions, key_positions):
    """How far each key stands behind (positive: to the right of) each query.

    Args:
        owner: name of the layer, for messages.
        query_positions: integers, shape `(query_length,)` or `(batch, query_length)`.
        key_positions: integers, shape `(key_length,)` or `(batch, key_length)`.

    Returns:
        `key_positions - query_positions`, int32, shape `(1 or batch, query_length, key_length)`.
    """
    query_positions = integer_positions(owner, "query_positions", query_positions, ranks=(1, 2))
    key_positions = integer_positions(owner, "key_positions", key_positions, ranks=(1, 2))
    difference = ops.expand_dims(ops.cast(key_positions, "int32"), -2) - ops.expand_dims(
        ops.cast(query_positions, "int32"), -1
    )
    return ops.expand_dims(difference, 0) if len(difference.shape) == 2 else difference


def bias_shape(num_heads: int, query_positions_shape, key_positions_shape) -> tuple:
    """Static shape `(1 or batch, num_heads, query_length, key_length)` of a bias of the scores."""
    batch = 1
    for shape in (query_positions_shape, key_positions_shape):
        if len(shape) == 2 and batch in (1, None):
            batch = shape[0]
    return (batch, num_heads, query_positions_shape[-1], key_positions_shape[-1])
