"""Callbacks of one's own, by import path."""

from __future__ import annotations

import importlib
import inspect
from collections.abc import Sequence
from typing import Any

import keras

from recipes.common.errors import ConfigError, errors_of, nearest, shown

_KEY = "training.callbacks"


def check_callbacks(callbacks: Sequence[str | dict[str, Any]]) -> None:
    """Checks that callbacks can be imported and take the arguments that they are given; creates none.

    Args:
        callbacks: The key `training.callbacks`.

    Raises:
        ConfigError: If one cannot, naming its path.
    """
    for each in callbacks:
        path, options = _parts(each)
        kind = _imported(path)
        try:
            inspect.signature(kind).bind(**options)
        except TypeError as error:
            raise ConfigError(f"{_KEY}: {path} takes {inspect.signature(kind)}: {error}") from error


def make_callbacks(callbacks: Sequence[str | dict[str, Any]]) -> list[keras.callbacks.Callback]:
    """Returns callbacks.

    Args:
        callbacks: Import paths, `my_module.MyCallback`, or mappings of `class` to such a path and of the names of
            arguments to their values.

    Raises:
        ConfigError: If there is none at a path, or it cannot be made, naming the path.

    Example:

    >>> make_callbacks(["keras.callbacks.TerminateOnNaN", {"class": "my_module.Notify", "every": 3}])
    """
    made = []
    for each in callbacks:
        path, options = _parts(each)
        with errors_of(f"{_KEY}: {path}"):
            made.append(_imported(path)(**options))
    return made


def _parts(given: str | dict[str, Any]) -> tuple[str, dict[str, Any]]:
    options = {"class": given} if isinstance(given, str) else dict(given)
    path = options.pop("class", None)
    if not isinstance(path, str) or "." not in path:
        raise ConfigError(
            f"{_KEY} must hold import paths such as my_module.MyCallback, or mappings with the key class, got "
            f"{shown(given)}"
        )
    return path, options


def _imported(path: str) -> type[keras.callbacks.Callback]:
    module_name, _, name = path.rpartition(".")
    try:
        module = importlib.import_module(module_name)
    except Exception as error:  # a module of one's own may raise anything
        raise ConfigError(
            f"{_KEY}: {path}: the module {module_name} cannot be imported from the current folder or the installed "
            f"packages ({type(error).__name__}: {error})"
        ) from error
    kind = getattr(module, name, None)
    if kind is None:
        near = nearest(name, [each for each in vars(module) if not each.startswith("_")])
        raise ConfigError(f"{_KEY}: {path}: {module_name} has no {name}" + (f"; did you mean {near}?" if near else ""))
    if not (isinstance(kind, type) and issubclass(kind, keras.callbacks.Callback)):
        raise ConfigError(f"{_KEY}: {path} must be a subclass of keras.callbacks.Callback, got {shown(kind)}")
    return kind
