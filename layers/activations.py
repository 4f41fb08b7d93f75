"""Activation functions by the names that model configurations use."""

import dataclasses
from collections.abc import Callable
from typing import Any

import keras
from keras import ops

from layers.fusion import graph_forms


def relu_squared(x: Any) -> Any:
    """Returns `max(x, 0)^2` (So et al. 2021, "Primer", section 4)."""
    return ops.square(ops.relu(x))


def gelu(x: Any) -> Any:
    """Returns `x * Phi(x)` with the exact normal distribution function (Hendrycks and Gimpel 2016, section 2)."""
    if keras.backend.backend() != "tensorflow" or graph_forms().keras_forms:
        return ops.gelu(x, approximate=False)
    # TensorFlow's graph optimizer recognises GELU by this order of operations
    return (ops.erf(x * 0.5**0.5) + 1.0) * 0.5 * x


def gelu_tanh(x: Any) -> Any:
    """Returns the tanh approximation of GELU (Hendrycks and Gimpel 2016, section 2)."""
    return ops.gelu(x, approximate=True)


def silu(x: Any) -> Any:
    """Returns `x * sigmoid(x)` (Elfwing et al. 2017, equation 2)."""
    return x * ops.sigmoid(x)


def quick_gelu(x: Any) -> Any:
    """Returns `x * sigmoid(1.702 x)`, an approximation of GELU (Hendrycks and Gimpel 2016, section 2)."""
    return x * ops.sigmoid(1.702 * x)


def identity(x: Any) -> Any:
    """Returns `x`. As the activation of a gated network it gives the bilinear network."""
    return x


ACTIVATIONS: dict[str, Callable[[Any], Any]] = {
    "relu": ops.relu,
    "gelu": gelu,
    "gelu_tanh": gelu_tanh,
    "quick_gelu": quick_gelu,
    "silu": silu,
    "relu_squared": relu_squared,
    "sigmoid": ops.sigmoid,
    "tanh": ops.tanh,
    "identity": identity,
}


def get_activation(name: str) -> Callable[[Any], Any]:
    """Returns the activation function of a name.

    Args:
        name: "relu", "gelu" (exact), "gelu_tanh" and "quick_gelu" (approximations), "silu", "relu_squared", "sigmoid",
            "tanh" or "identity".

    Raises:
        ValueError: If the name is unknown.

    Example:

    >>> get_activation("relu_squared")(3.0)
    9.0
    """
    if name not in ACTIVATIONS:
        raise ValueError(f"activation must be one of {', '.join(map(repr, ACTIVATIONS))}, got {name!r}.")
    return ACTIVATIONS[name]


@dataclasses.dataclass(frozen=True)
class GatedActivation:
    """The product inside a gated network, `activation(gate) * (up + up_offset)`.

    Args:
        activation: A name that `get_activation` knows.
        limit: If given, `gate` is clipped to at most `limit` and `up` to `[-limit, limit]`, before the activation.
        up_offset: Added to `up` after the clipping.

    Raises:
        ValueError: If the limit is not above 0 or the activation is unknown.

    Example:

    >>> float(GatedActivation("quick_gelu", limit=7.0, up_offset=1.0)(100.0, 100.0))
    55.99...

    Reference:
        Shazeer 2020, equation 5; with limit and offset: Agarwal et al. 2025, "gpt-oss-120b & gpt-oss-20b Model Card",
        section 2.2, and its published code.
    """

    activation: str
    limit: float | None = None
    up_offset: float = 0.0

    def __post_init__(self) -> None:
        if self.limit is not None and not self.limit > 0:
            raise ValueError(f"gate_limit must be above 0 or None, got {self.limit!r}.")
        get_activation(self.activation)

    def __call__(self, gate: Any, up: Any) -> Any:
        if self.limit is not None:
            gate, up = ops.minimum(gate, self.limit), ops.clip(up, -self.limit, self.limit)
        return get_activation(self.activation)(gate) * (up if self.up_offset == 0 else up + self.up_offset)
