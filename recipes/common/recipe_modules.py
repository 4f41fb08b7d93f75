"""Recipes as modules: found by name, with the class of their configs."""

from __future__ import annotations

import dataclasses
import importlib
from types import ModuleType

from recipes.command.lists import recipes
from recipes.common.errors import ConfigError, errors_of, nearest


def find_recipe(name: str) -> ModuleType:
    """Returns the module of a recipe.

    Args:
        name: Its name in `python -m recipes.NAME`, or the module of somebody's own recipe, which has a dot.

    Raises:
        ConfigError: If there is none.

    Example:

    >>> find_recipe("translate").__name__
    'recipes.translate'
    """
    known = recipes()
    if "." not in name and name not in known:
        near = nearest(name, known)
        hint = f"did you mean {near!r}?" if near else f"known: {', '.join(known)}"
        raise ConfigError(f"recipe: there is no recipe {name!r}; {hint}")
    with errors_of("recipe"):
        try:
            return importlib.import_module(name if "." in name else f"recipes.{name}")
        except ModuleNotFoundError as error:
            raise ValueError(error) from error


def config_class_of(module: ModuleType) -> type:
    """Returns the class of the configs of a recipe that trains.

    Args:
        module: The recipe.

    Raises:
        ConfigError: If it has no class with the keys `run_folder` and `training.seed`.

    Example:

    >>> config_class_of(find_recipe("translate")).__name__
    'TranslateConfig'
    """
    for kind in vars(module).values():
        if isinstance(kind, type) and dataclasses.is_dataclass(kind) and kind.__module__ == module.__name__:
            if hasattr(kind, "run_folder") and hasattr(getattr(kind, "training", None), "seed"):
                return kind
    raise ConfigError(f"recipe must have the keys run_folder and training.seed, {module.__name__} has not")
