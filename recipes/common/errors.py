"""The errors that a user of a recipe can put right."""


class RecipeError(Exception):
    """An input, a config or a folder that a recipe cannot work with; the message says what to change.

    `recipes.common.command_line.run` prints it as one message without a traceback. Everything else is a bug and
    keeps its traceback.
    """


class ConfigError(RecipeError, ValueError):
    """An unknown key, a value of the wrong type or an unreadable config file."""


class DataError(RecipeError, ValueError):
    """A data file that is missing, damaged or not in the format asked for."""


class RunFolderError(RecipeError):
    """A run folder that belongs to another config, to another program or to a running process."""
