"""Warnings that name the line of the user, however many functions of this package lie between."""

import sys
import warnings


def warn_user(message: str) -> None:
    """Warns, with the file and line that called this package.

    Args:
        message: What to say.

    Example:

    >>> warn_user("path/to/model has no weights for the head of this task: it starts untrained.")
    """
    # level 1 is the line below, level 2 that of the caller
    frame, level = sys._getframe(1), 2
    while frame.f_back is not None and frame.f_globals.get("__name__", "").partition(".")[0] == "zoo":
        frame, level = frame.f_back, level + 1
    warnings.warn(message, stacklevel=level)
