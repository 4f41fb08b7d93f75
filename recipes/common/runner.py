"""A run of a recipe, from its config to its results; a recipe fills in what is its own, its steps."""

from __future__ import annotations

import dataclasses
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any, Literal

import zoo
from recipes.common.errors import ConfigError
from recipes.common.evaluation.evaluation import Evaluation
from recipes.common.evaluation.held_out import OF_TRAINING, HeldOut
from recipes.common.finish import Outcome, finish
from recipes.common.run_folder import RunFolder, has_ended
from recipes.common.training.fitting import prepare


@dataclasses.dataclass(frozen=True)
class Recipe:
    """A recipe: the steps of its run, and how models of its kind are evaluated on data that somebody chooses.

    Args:
        name: Its name.
        steps: Reads the data, makes the task, trains and measures it.
        check: Checks what can be checked before the data are read, and makes ready for a model.
        kinds: Names of the kinds of its models.
        evaluate: Reads rows and returns what a model makes of them, and how many rows were left out. None for a recipe
            whose models are evaluated by those that train their kinds.
        takes: What its evaluation takes besides data: "options" of `generate`, the "length" of a window, or nothing.

    Example:

    >>> main = Recipe("classify", steps, check, kinds=("TextClassifier",), evaluate=evaluate)
    >>> main(ClassifyConfig())["accuracy"]
    0.97
    """

    name: str
    steps: Callable[[Any, RunFolder], Outcome]
    check: Callable[[Any], None] = prepare
    kinds: tuple[str, ...] = ()
    evaluate: Callable[[Any, HeldOut], tuple[Evaluation, int]] | None = None
    takes: Literal["options", "length"] | None = None

    def __call__(self, config: Any) -> dict[str, Any]:
        """Checks a config, runs the steps in its run folder, and writes results, export, card and pages.

        Args:
            config: The config, with the keys `run_folder` and `export`.

        Returns:
            The results, as written to `results.json` in the run folder.
        """
        started = time.monotonic()
        self.check(config)
        with RunFolder(config.run_folder, config) as run:
            return finish(run, self.name, self.steps(config, run), started)

    def evaluated(self, task: zoo.Task, held_out: HeldOut) -> Evaluation:
        """Returns what a model makes of data, read and measured as the recipe does it.

        Args:
            task: The model.
            held_out: The data.

        Raises:
            ConfigError: If the recipe trains models of another kind, or an option says nothing of these.
            DataError: If anything is wrong with the data.
        """
        kind = type(task).__name__
        if self.evaluate is None or not isinstance(task, tuple(getattr(zoo, name) for name in self.kinds)):
            raise ConfigError(f"recipes.{self.name} trains a {' or '.join(self.kinds)}, this model is a {kind}")
        if held_out.options and self.takes != "options":
            raise ConfigError(f"options must be empty for a {kind} of recipes.{self.name}, got {held_out.options!r}")
        if held_out.length is not None and self.takes != "length":
            raise ConfigError(f"length must be null with recipes.{self.name}, got {held_out.length}")
        held_out.refuse("deduplicate", because=OF_TRAINING)
        evaluation, left_out = self.evaluate(task, held_out)
        return dataclasses.replace(evaluation, others={**evaluation.others, "left_out": left_out})


def trained_within(run: RunFolder, folder: Path, main: Callable[[Any], Any], wanted: Any) -> str:
    """Returns the folder of a model that a run needs, trained by another recipe if it is not there yet.

    Args:
        run: The run.
        folder: The folder of the other run, within that of this one.
        main: The other recipe.
        wanted: The config that the other run must have.
    """
    if not has_ended(folder, wanted):
        print(f"training the model in {folder}")
        with run.final_steps.including(folder.name):
            main(wanted)
        # seed and policy are those of this run again
        prepare(run.config)
    return str(folder / "model")
