"""Parts that are passed to a layer: how they are serialized, and which options they can be made with."""

import inspect
from typing import Any

import keras


def serialized_part(part: Any) -> dict[str, Any] | None:
    """Returns the configuration of a part that is built by the layer that holds it; None for None.

    A part that several layers of a model share is one object again when the model is loaded from a file.

    Args:
        part: A layer, or another object with a `get_config` that is registered with Keras.
    """
    if part is None:
        return None
    # The first time that Keras saves an object it adds the number by which it finds shared ones only later, to a
    # dictionary that it has copied by then. The second time it is there from the beginning.
    keras.saving.serialize_keras_object(part)
    config = keras.saving.serialize_keras_object(part)
    config.pop("build_config", None)
    return config


def constructor_options(cls: type) -> dict[str, inspect.Parameter]:
    """Returns the arguments of a layer's constructor by name, without those of every Keras layer.

    Arguments of the classes that it is derived from count where it takes any, to hand them on.

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
