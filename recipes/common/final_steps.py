"""The last steps of a command: samples, plots, pages, exports and cards, which may fail without the results."""

from __future__ import annotations

import contextlib
import sys
import traceback
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from typing import Any

from recipes.common.errors import RecipeError


class UnfinishedError(RecipeError):
    """Final steps have failed, and nothing else; the message names them."""

    status = 1


class FinalSteps:
    """Steps that wait until the results are written. One that fails is named in a warning, and the others go on.

    Args:
        folder: Where the results are, for the error.

    Attributes:
        failed: Names of the steps that failed, in their order.

    Example:

    >>> steps = FinalSteps("runs/dates")
    >>> steps.add("plots/loss.png", draw, history, "runs/dates/plots/loss.png")
    >>> write_results()
    >>> steps.run()
    >>> steps.raise_failed()
    """

    def __init__(self, folder: str | Path) -> None:
        self._folder = folder
        self._waiting: list[tuple[str, Callable[[], Any]]] = []
        self.failed: list[str] = []

    def add(self, name: str, step: Callable[..., Any], *arguments: Any, **options: Any) -> None:
        """Keeps a step for `run`.

        Args:
            name: What it makes, such as a file relative to the folder.
            step: The step.
            *arguments, **options: Its arguments.
        """
        self._waiting.append((name, partial(step, *arguments, **options)))

    @property
    def unfinished(self) -> list[str]:
        """Names of the steps that failed or wait."""
        return list(dict.fromkeys([*self.failed, *(name for name, _ in self._waiting)]))

    def run(self) -> None:
        """Runs what was added, in this order."""
        while self._waiting:
            self.attempt(*self._waiting.pop(0))

    def attempt(self, name: str, step: Callable[..., Any], *arguments: Any, **options: Any) -> Any:
        """Runs a step at once and returns its result; None where it fails.

        Args:
            name, step, *arguments, **options: See `add`.
        """
        try:
            return step(*arguments, **options)
        except Exception as error:  # of any kind: a trained run is worth more
            # as in `run_recipe`: what nobody can put right is a bug, and keeps its traceback
            if not isinstance(error, RecipeError | OSError | MemoryError):
                traceback.print_exc()
            text = " ".join(str(error).split())
            print(f"warning: {name} failed: {type(error).__name__}: {text}", file=sys.stderr)
            if name not in self.failed:
                self.failed.append(name)
            return None

    @contextlib.contextmanager
    def including(self, name: str) -> Iterator[None]:
        """A context with another run, whose model is there even if some of its final steps fail: one failed step here.

        Args:
            name: What the other run makes.

        Example:

        >>> with steps.including("teacher"):
        ...     language_model.main(config_of_teacher)
        """
        try:
            yield
        except UnfinishedError as error:
            print(f"warning: {name}: {error}", file=sys.stderr)
            self.failed.append(name)

    def raise_failed(self) -> None:
        """Ends the command where a step has failed.

        Raises:
            UnfinishedError: If one has.
        """
        if self.failed:
            raise UnfinishedError(
                f"{', '.join(self.failed)} failed, see the warnings; all else is in {str(self._folder)!r}, and the "
                "same command does the rest"
            )
