"""Weights of which each device along the axis "data" has a part: gathered where they are used, gradients in parts."""

from collections.abc import Sequence
from typing import Any

import keras

from zoo.distribution.layouts import DATA, ModelLayouts


def gather_values(variables: Sequence[keras.Variable], values: Sequence[Any]) -> list[Any]:
    """Returns values of variables, of which a device has the parts that others along the axis "data" have, too.

    What the axis "model" divides stays divided. The gradients by the given values come in parts again: each device
    adds up those of its own part.

    Args:
        variables: The variables.
        values: A value of each, in the program of a training step.

    Reference:
        Rajbhandari et al. 2020, "ZeRO", section 5.3 (stage 3: parameters are gathered, gradients scattered).
    """
    return [
        _to(value, _layout(variable, whole=True), _layout(variable)) for variable, value in _pairs(variables, values)
    ]


def divide_values(variables: Sequence[keras.Variable], values: Sequence[Any]) -> list[Any]:
    """Returns values of which each device has its part alone.

    Args:
        variables, values: As for `gather_values`.
    """
    return [_to(value, _layout(variable), _layout(variable)) for variable, value in _pairs(variables, values)]


def _pairs(variables: Sequence[keras.Variable], values: Sequence[Any]) -> Any:
    return zip(variables, values, strict=True)


def _layout(variable: keras.Variable, whole: bool = False) -> Any:
    """The layout of a variable that the axis "data" divides, or the same without this axis; None for any other."""
    layouts = keras.distribution.distribution()
    if not isinstance(layouts, ModelLayouts) or not layouts.divides_along_data:
        return None
    axes = layouts.get_variable_layout(variable).axes
    if DATA not in axes:
        return None
    axes = tuple(None if whole and axis == DATA else axis for axis in axes)
    return keras.distribution.TensorLayout(axes, layouts.device_mesh).backend_layout


def _to(value: Any, layout: Any, of_gradient: Any) -> Any:
    if layout is None:
        return value
    import jax

    @jax.custom_vjp
    def move(value: Any) -> Any:
        return jax.lax.with_sharding_constraint(value, layout)

    move.defvjp(
        lambda value: (move(value), None),
        lambda _, gradient: (jax.lax.with_sharding_constraint(gradient, of_gradient),),
    )
    return move(value)
