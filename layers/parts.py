"""Parts that are passed to a layer: their serialization, and the arguments of their constructors."""

import inspect
from typing import Any

import keras


def serialized_part(part: Any) -> dict[str, Any] | None:
    """Returns the configuration of a part that the layer that holds it builds; None for None.

    A part that several layers share is one object again after the model is loaded from a file.

    Args:
        part: A layer, or another object with a `get_config` that is registered with Keras.
    """
    if part is None:
        return None
    # Keras finds shared objects by a number. When it saves an object for the first time, it adds the number after it
    # has copied the configuration. So the object is saved twice: the second result has the number.
    keras.saving.serialize_keras_object(part)
    config = keras.saving.serialize_keras_object(part)
    config.pop("build_config", None)
    return config


def constructor_options(cls: type) -> dict[str, inspect.Parameter]:
    """Returns the arguments of a layer's constructor by name, without those of every Keras layer.

    If the constructor has `**kwargs`, the arguments of its base classes are included.

    Args:
        cls: Class of the layer.

    Example:

    >>> list(constructor_options(DynamicTanh))
    ['alpha']
    """
    options: dict[str, inspect.Parameter] = {}
    for base in cls.__mro__:
        if base.__module__.partition(".")[0] == "keras":
            break
        if "__init__" not in vars(base):
            continue
        parameters = list(inspect.signature(base.__init__).parameters.values())[1:]
        options = {p.name: p for p in parameters if p.kind not in (p.VAR_KEYWORD, p.VAR_POSITIONAL)} | options
        if all(p.kind != p.VAR_KEYWORD for p in parameters):
            break
    return options
