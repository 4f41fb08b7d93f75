"""Recipes: from data to a model with one command, `python -m recipes.NAME`."""

import sys
from types import TracebackType


def _say_interrupted(kind: type[BaseException], error: BaseException, traceback: TracebackType | None) -> None:
    if issubclass(kind, KeyboardInterrupt):
        print(f"\n{sys.orig_argv[2]}: interrupted", file=sys.stderr)
    else:
        sys.__excepthook__(kind, error, traceback)


# Python imports this first where it runs a recipe, and for some seconds all else; `run_recipe` comes behind that
if sys.argv[0] == "-m" and sys.orig_argv[1:2] == ["-m"]:
    sys.excepthook = _say_interrupted
