"""Arguments of constructors: which there are, and how they are written to Keras files and read."""

import functools
import inspect
import operator
from typing import Any, ClassVar, Self

import keras


class ConfigFromArguments:
    """A mix-in: `get_config` returns the arguments of the constructor, and `from_config` takes them.

    A class keeps each argument as the attribute of its name. So an attribute that is changed later is written as it is
    then. Layers and other objects with a `get_config`, and functions, are written as Keras does, and are read as
    objects, those in lists and dictionaries too. If the constructor passes `**kwargs` on to a class of Keras, what that
    class writes is added.

    A subclass with a `get_config` of its own adds its arguments to those of its base itself.

    Attributes:
        argument_attributes: The attributes of arguments that are kept under another name, such as
            `{"dropout": "dropout_rate", "scoring": "router.scoring"}`.

    Example:

    >>> class Scaled(ConfigFromArguments, keras.layers.Layer):
    ...     def __init__(self, factor, **kwargs):
    ...         super().__init__(**kwargs)
    ...         self.factor = factor
    >>> Scaled(2.0).get_config()["factor"]
    2.0
    """

    argument_attributes: ClassVar[dict[str, str]] = {}

    def get_config(self) -> dict[str, Any]:
        """Returns the arguments of the constructor, as plain values."""
        names, has_keras_options = _written_arguments(type(self))
        config = super().get_config() if has_keras_options else {}
        return {**config, **{name: self.stored_argument(name) for name in names}}

    @classmethod
    def from_config(cls, config: dict[str, Any]) -> Self:
        """Returns the object of a configuration.

        Args:
            config: The result of `get_config`.
        """
        return cls(**{name: _loaded(value) for name, value in config.items()})

    def stored_argument(self, name: str) -> Any:
        """Returns an argument of the constructor as a plain value.

        Args:
            name: Its name.

        Raises:
            TypeError: If the object does not keep it.
        """
        path = self.argument_attributes.get(name, name)
        if path == "dtype" and isinstance(self, keras.layers.Layer):
            # the attribute of a layer is the type of its weights alone
            path = "dtype_policy"
        try:
            value = operator.attrgetter(path)(self)
        except AttributeError as error:
            raise TypeError(
                f"{type(self).__name__} must keep the argument {name!r} as self.{path} to be saved, which is missing. "
                "`argument_attributes` can name another attribute."
            ) from error
        if isinstance(value, keras.Variable):
            raise TypeError(
                f"{type(self).__name__} must keep the argument {name!r} as self.{path} to be saved, got a weight. "
                "`argument_attributes` can name another attribute."
            )
        return _stored(value)


def _stored(value: Any) -> Any:
    """A value as a plain one, with all that it holds."""
    if isinstance(value, dict):
        return {key: _stored(each) for key, each in value.items()}
    if isinstance(value, list):
        return [_stored(each) for each in value]
    if type(value) is tuple:
        return tuple(_stored(each) for each in value)
    if isinstance(value, keras.initializers.Initializer):
        return keras.initializers.serialize(value)
    if hasattr(value, "get_config"):
        return serialized_part(value)
    return keras.saving.serialize_keras_object(value) if callable(value) else value


def serialized_part(part: Any) -> dict[str, Any]:
    """Returns the configuration of a part that the layer that holds it builds.

    A part that several layers share is one object again after the model is loaded from a file.

    Args:
        part: A layer, or another object with a `get_config` that is registered with Keras.
    """
    # Keras finds shared objects by a number. When it saves an object for the first time, it adds the number after it
    # has copied the configuration. So the object is saved twice: the second result has the number.
    keras.saving.serialize_keras_object(part)
    config = keras.saving.serialize_keras_object(part)
    config.pop("build_config", None)
    return config


def _loaded(value: Any) -> Any:
    """An object of what Keras stores of it, also within lists and dictionaries; other values as they are."""
    if isinstance(value, dict):
        is_object = {"class_name", "config"} <= value.keys()
        # arrays, slices and lambdas have no module
        if is_object and ("module" in value or str(value["class_name"]).startswith("__")):
            return keras.saving.deserialize_keras_object(value)
        return {key: _loaded(each) for key, each in value.items()}
    if isinstance(value, list):
        return [_loaded(each) for each in value]
    return tuple(map(_loaded, value)) if type(value) is tuple else value


def constructor_arguments(cls: type) -> dict[str, inspect.Parameter]:
    """Returns the arguments of a layer's constructor by name, without those of every Keras layer.

    If the constructor has `**kwargs`, the arguments of its base classes are included.

    Args:
        cls: Class of the layer.

    Example:

    >>> list(constructor_arguments(DynamicTanh))
    ['alpha']
    """
    return _arguments(cls.__mro__)[0]


@functools.cache
def _written_arguments(cls: type) -> tuple[tuple[str, ...], bool]:
    """The arguments that `get_config` of the mix-in writes, and whether a class of Keras has options besides."""
    order = cls.__mro__
    by_hand = [place for place in range(order.index(ConfigFromArguments)) if "get_config" in vars(order[place])]
    if not by_hand:
        options, reaches_keras = _arguments(order)
        return tuple(options), reaches_keras
    options, reaches_keras = _arguments(order[by_hand[-1] + 1 :])
    # a subclass of the one that writes its own adds to them
    known = _arguments(order[by_hand[0] :])[0]
    added = [name for name in _arguments(order[: by_hand[0]])[0] if name not in known]
    return (*options, *added), reaches_keras


def _arguments(classes: tuple[type, ...]) -> tuple[dict[str, inspect.Parameter], bool]:
    """The arguments of the constructors of classes and their bases, and whether `**kwargs` reach a class of Keras."""
    options: dict[str, inspect.Parameter] = {}
    for base in classes:
        if base.__module__.partition(".")[0] == "keras":
            return options, True
        if "__init__" not in vars(base):
            continue
        parameters = list(inspect.signature(base.__init__).parameters.values())[1:]
        options = {p.name: p for p in parameters if p.kind not in (p.VAR_KEYWORD, p.VAR_POSITIONAL)} | options
        if all(p.kind != p.VAR_KEYWORD for p in parameters):
            break
    return options, False
