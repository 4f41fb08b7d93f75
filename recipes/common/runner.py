"""A run of a recipe, from its config to its results; a recipe fills in what is its own, its steps."""

from __future__ import annotations

import dataclasses
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any

import zoo
from recipes.common.finish import finish
from recipes.common.run_folder import RunFolder
from recipes.common.training.fitting import prepare


@dataclasses.dataclass(frozen=True)
class Outcome:
    """What the steps of a recipe have made: the trained task, what was measured, and how its export is tried.

    Args:
        task: The trained task.
        results: What was measured. The number of its parameters, the best epoch and the seconds of training are added.
        trial, examples, numbers, test_is_validation: See `finish`.
        export: Arguments of the export, if the config asks for one.
    """

    task: zoo.Task
    results: dict[str, Any]
    trial: Callable[[Any], Iterable[tuple[Any, Any, Any]]]
    examples: Sequence[Any]
    export: Mapping[str, Any] = dataclasses.field(default_factory=dict)
    test_is_validation: bool | None = None
    numbers: str = ""


def run_steps(
    config: Any, recipe: str, steps: Callable[[Any, RunFolder], Outcome], check: Callable[[Any], None] = prepare
) -> dict[str, Any]:
    """Checks a config, runs the steps of a recipe in its run folder, and writes results, export, card and pages.

    Args:
        config: The config, with the keys `run_folder` and `export`.
        recipe: Name of the recipe.
        steps: Reads the data, makes the task, trains and measures it.
        check: Checks what can be checked before the data are read, and makes ready for a model.

    Returns:
        The results, as written to `results.json` in the run folder.
    """
    started = time.monotonic()
    check(config)
    with RunFolder(config.run_folder, config) as run:
        outcome = steps(config, run)
        results = {"parameters": outcome.task.count_params(), **outcome.results}
        results |= {**run.best, "training_seconds": round(run.training_seconds, 1)}
        return finish(
            run,
            recipe,
            outcome.task,
            results,
            started,
            export=dict(outcome.export) if config.export else None,
            trial=outcome.trial,
            examples=outcome.examples,
            test_is_validation=outcome.test_is_validation,
            numbers=outcome.numbers,
        )
