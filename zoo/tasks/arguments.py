"""Arguments of tasks and of the preprocessors that they make: their names and types."""

import inspect
import typing
from typing import Any

import keras


def parameters_of(*kinds: type) -> dict[str, Any]:
    """Returns the arguments of classes: their names and types.

    Args:
        *kinds: A task, and the preprocessor that it makes.
    """
    found: dict[str, Any] = {}
    for kind in kinds:
        found = keyword_arguments(kind) | found
    return found


def keyword_arguments(made: type) -> dict[str, Any]:
    """Returns the keyword arguments of a class, including those that it passes on.

    Args:
        made: The class.
    """
    found: dict[str, Any] = {}
    for kind in made.__mro__:
        # those that `**options` takes are named further up
        if issubclass(kind, keras.Model) and kind.__module__.startswith("keras."):
            break
        parameters = inspect.signature(kind.__init__).parameters.values()
        hints = typing.get_type_hints(kind.__init__)
        names = [parameter.name for parameter in parameters if parameter.kind is parameter.KEYWORD_ONLY]
        found = {name: hints.get(name, Any) for name in names} | found
    return found


def default_of(kind: type, name: str) -> Any:
    """Returns the default of an argument of a class.

    Args:
        kind: The class.
        name: Name of the argument, which the class or one of its bases has.
    """
    signatures = (inspect.signature(base.__init__).parameters for base in kind.__mro__)
    return next(parameters[name].default for parameters in signatures if name in parameters)
