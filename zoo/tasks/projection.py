"""Linear maps of the vector of a text."""

import dataclasses
from typing import Any

import keras

from layers.activations import ACTIVATIONS, get_activation
from zoo.config.checks import require

_MOST_UNITS = 2**16


@dataclasses.dataclass(frozen=True)
class ProjectionOptions:
    """What a map computes.

    Args:
        units: Number of outputs.
        activation: Name of the function of its outputs, see `layers.activations`.
        use_bias: Whether it has a bias.

    Raises:
        ValueError: If a value is out of range.
    """

    units: int
    activation: str = "identity"
    use_bias: bool = True

    def __post_init__(self) -> None:
        require(1 <= self.units <= _MOST_UNITS, "units of a projection", self.units, f"from 1 to {_MOST_UNITS}")
        names = sorted(ACTIVATIONS)
        require(self.activation in names, "activation of a projection", self.activation, f"one of {names}")


@keras.saving.register_keras_serializable("keras_transformer_zoo")
class Projection(keras.layers.Dense):
    """A linear map with an activation by its name.

    Args:
        units, activation, use_bias: See `ProjectionOptions`.
        **kwargs: As for `keras.layers.Dense`.

    Call arguments:
        inputs: `(..., dim)`.

    Returns:
        `(..., units)`.

    Example:

    >>> Projection(3, "tanh")(keras.ops.ones((2, 8))).shape
    (2, 3)
    """

    def __init__(self, units: int, activation: str = "identity", use_bias: bool = True, **kwargs: Any) -> None:
        super().__init__(units, activation=None, use_bias=use_bias, **kwargs)
        self.options = ProjectionOptions(units, activation, bool(use_bias))

    def call(self, inputs: Any, training: bool | None = None) -> Any:
        return get_activation(self.options.activation)(super().call(inputs, training=training))

    def get_config(self) -> dict[str, Any]:
        return {**super().get_config(), "activation": self.options.activation}
