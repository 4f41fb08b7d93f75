"""What a layer can take, read from the arguments of its call, so that a block need not know its class."""

import functools
import inspect
from collections.abc import Callable
from typing import Any

import keras

from layers.errors import describe


@functools.cache
def _arguments(call: Callable[..., Any]) -> tuple[frozenset[str], bool]:
    parameters = inspect.signature(call).parameters.values()
    named = frozenset(parameter.name for parameter in parameters if parameter.kind != parameter.VAR_KEYWORD)
    return named, any(parameter.kind == parameter.VAR_KEYWORD for parameter in parameters)


def accepts_argument(layer: keras.layers.Layer, argument: str) -> bool:
    """Returns whether the call of a layer has an argument of that name, or accepts any argument.

    Args:
        layer: The layer.
        argument: Name of the argument.

    Example:

    >>> accepts_argument(keras.layers.GRU(8), "mask"), accepts_argument(keras.layers.Dense(8), "mask")
    (True, False)
    """
    return is_argument(type(layer).call, argument)


def is_argument(function: Callable[..., Any], name: str) -> bool:
    """Returns whether a function has an argument of that name, or accepts any argument."""
    named, takes_any = _arguments(function)
    return takes_any or name in named


def mask_argument(layer: keras.layers.Layer, mask: Any) -> dict[str, Any]:
    """Returns the padding mask as a keyword argument of a layer; an empty dictionary if the layer takes no mask.

    Args:
        layer: The layer. It takes a padding mask if its call has an argument `padding_mask` or `mask`.
        mask: True where a position is real, `(batch, length)`; None where all are.
    """
    if mask is None:
        return {}
    return next(({name: mask} for name in ("padding_mask", "mask") if accepts_argument(layer, name)), {})


def arguments_for(layer: keras.layers.Layer, role: str, **arguments: Any) -> dict[str, Any]:
    """Returns the arguments that are neither None nor False.

    Args:
        layer: The layer that is called with them.
        role: What the layer is, for the error message.
        arguments: Arguments of the call, by name.

    Raises:
        ValueError: If the call of the layer does not have one of these arguments.
    """
    given = {name: value for name, value in arguments.items() if value is not None and value is not False}
    refused = sorted(name for name in given if not accepts_argument(layer, name))
    if refused:
        raise ValueError(
            f"{', '.join(refused)} must be None with {role}={layer!r}: its call has no argument of that name, got "
            f"{', '.join(describe(given[name]) for name in refused)}."
        )
    return given
