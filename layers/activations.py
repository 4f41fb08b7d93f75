"""Activation functions by the names that model configurations use."""

from collections.abc import Callable
from typing import Any

from keras import ops


def relu_squared(x: Any) -> Any:
    """Returns `max(x, 0)^2` (So et al. 2021, "Primer", section 4)."""
    return ops.square(ops.relu(x))


def gelu(x: Any) -> Any:
    """Returns `x * Phi(x)` with the exact normal distribution function (Hendrycks and Gimpel 2016, section 2)."""
    return ops.gelu(x, approximate=False)


def gelu_tanh(x: Any) -> Any:
    """Returns the tanh approximation of GELU (Hendrycks and Gimpel 2016, section 2)."""
    return ops.gelu(x, approximate=True)


def identity(x: Any) -> Any:
    """x itself: turns a gated network into a bilinear one."""
    return x


ACTIVATIONS = {
    "relu": ops.relu,
    "gelu": gelu,
    "gelu_tanh": gelu_tanh,
    "silu": ops.silu,
    "relu_squared": relu_squared,
    "sigmoid": ops.sigmoid,
    "tanh": ops.tanh,
    "identity": identity,
}


def get_activation(name: str) -> Callable:
    """The activation function of that name.

    Args:
        name: "relu", "gelu" (exact), "gelu_tanh" (approximation), "silu", "relu_squared", "sigmoid", "tanh" or
            "identity".

    Raises:
        ValueError: If there is none of that name.

    Example:

    >>> get_activation("relu_squared")(3.0)
    9.0
    """
    if name not in ACTIVATIONS:
        raise ValueError(f"activation must be one of {', '.join(map(repr, ACTIVATIONS))}, got {name!r}.")
    return ACTIVATIONS[name]
