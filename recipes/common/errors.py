"""The errors that a user of a recipe can put right."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator


class RecipeError(Exception):
    """An input, a config or a folder that a recipe cannot work with; the message says what to change.

    `recipes.common.config.run_recipe` prints it as one message without a traceback. Everything else is a bug and keeps
    its traceback.
    """


class ConfigError(RecipeError, ValueError):
    """An unknown key, a value of the wrong type or an unreadable config file."""


class DataError(RecipeError, ValueError):
    """A data file that is missing, damaged or not in the format asked for."""


class RunFolderError(RecipeError):
    """A run folder that belongs to another config, to another program or to a running process."""


@contextlib.contextmanager
def errors_of(key: str) -> Iterator[None]:
    """Turns what a library says to the value of a key into a `ConfigError` of one line that begins with the key.

    Args:
        key: The key.

    Example:

    >>> with errors_of("sampler"):
    ...     sampler = get_sampler({"name": "bean"})
    """
    try:
        yield
    except RecipeError:
        raise
    except (OSError, TypeError, ValueError, ArithmeticError, LookupError, AttributeError) as error:
        text = " ".join(str(error).split()) or type(error).__name__
        raise ConfigError(f"{key}: {text if len(text) <= 500 else text[:500] + '...'}") from error
