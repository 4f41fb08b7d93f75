"""Trains combinations of choices with several seeds, and shows which differences are more than noise.

    python -m recipes.compare language_model --vary model.options.position.kind=rotary,alibi,learned --seeds 3
    python -m recipes.compare classify --config recipes/configs/sst2.yaml --vary training.learning_rate=1e-3,5e-4 \\
        --vary model.pooling=mean,first --metric accuracy --processes 2

All combinations of the choices are trained, each with every seed; the first combination is the baseline. The same
command goes on where an interrupted one was, and uses the runs that have ended; more choices or seeds add runs.
"""

from __future__ import annotations

import dataclasses
import itertools
import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, ClassVar

import filelock
import keras
import tqdm

import zoo
from recipes.command.printing import print_result
from recipes.common.config import parse, run_recipe, setting
from recipes.common.config_sources import read_yaml
from recipes.common.data.account import require_same_files
from recipes.common.errors import ConfigError, RecipeError, RunFolderError, errors_of
from recipes.common.evaluation.comparison import draw, write_tables
from recipes.common.final_steps import FinalSteps
from recipes.common.processes import run_all
from recipes.common.recipe_modules import config_class_of, find_recipe
from recipes.common.run_folder import changes, data_paths, find_run, trained
from recipes.common.training.fitting import TrainingConfig, prepare
from recipes.common.varied_runs import Choice, Run, main_metric, read_choices


@dataclasses.dataclass(frozen=True)
class CompareConfig:
    """Trains a configuration of a recipe with choices varied and seeds repeated, and compares the results."""

    resumes: ClassVar[bool] = True
    recipe: str = setting(
        help="Name of the recipe, or the module of one of your own (my_package.my_recipe).", words="first"
    )
    vary: list[str] = setting(
        [],
        "A key of the recipe with its values in YAML: KEY=VALUE,VALUE. If given several times, all "
        "combinations are trained.",
        words="again",
    )
    seeds: int = setting(3, "Number of runs of each combination, with consecutive seeds.", least=1, most=1000)
    metric: list[str] = setting(
        [], "Names of the results to compare, as in results.json. Empty: the first result of the recipe."
    )
    processes: int = setting(2, "Number of runs at the same time. They share the cores.", least=1, most=1000)
    folder: str | None = setting(None, "Folder of the runs and the tables. null: runs/compare_RECIPE.", offers="paths")
    settings: dict[str, list[str]] = setting(
        {},
        "Keys of the recipe, as words of a command line. On the command line, write them as for the recipe.",
        words="rest",
    )


def main(config: CompareConfig) -> list[dict[str, Any]]:
    """Runs the recipe.

    Args:
        config: The configuration.

    Returns:
        The rows of the table, one for each combination of choices.

    Raises:
        RecipeError: If a run fails; the others are compared all the same.
        ConfigError: If no run has a result of that name; those of other names are compared all the same.
    """
    module = find_recipe(config.recipe)
    folder = Path(config.folder or f"runs/compare_{config.recipe.rpartition('.')[2]}")
    choices = read_choices(config.vary)
    runs = make_runs(config, module.__name__, config_class_of(module), folder, choices)
    with errors_of("folder"):
        folder.mkdir(parents=True, exist_ok=True)
    try:
        with filelock.FileLock(folder / "compare.lock", blocking=False):
            failed = train(config, runs)
            steps = FinalSteps(folder)
            rows = report(config, runs, choices, folder, steps)
    except filelock.Timeout as error:
        raise RunFolderError(f"another process compares in {str(folder)!r}; name another folder") from error
    if failed:
        names = ", ".join(failed)
        raise RecipeError(f"{len(failed)} of {len(runs)} runs failed: {names}; the same command tries them again")
    check_metrics(config.metric, [run.numbers() or {} for run in runs])
    steps.raise_failed()
    return rows


def make_runs(
    config: CompareConfig, module: str, config_class: type, folder: Path, choices: Sequence[Choice]
) -> list[Run]:
    """Returns the runs, of each choice those of all seeds, after what can be checked before any begins.

    Args:
        config: The configuration.
        module: The recipe.
        config_class: The class of its configs.
        folder: Folder of all runs.
        choices: The choices.

    Raises:
        ConfigError: An unknown key, a value that is not allowed, a model that cannot be.
        RunFolderError: If a folder belongs to a run with another config.
    """
    others = {name: words for name, words in config.settings.items() if name != "config"}
    if "run_folder" in others or any({"run_folder", "training.seed"} & set(choice.values) for choice in choices):
        raise ConfigError("run_folder and training.seed must not be varied: --folder and --seeds decide about them")
    words = [word for file in config.settings.get("config", ()) for word in ("--config", file)]
    words += [word for name, given in others.items() for word in (f"--{name}", *given)]
    # nobody looks at so many exports
    is_given = "export" in others or any(
        "export" in read_yaml(file, set()) for file in config.settings.get("config", ())
    )
    fixed = {"export": False} if hasattr(config_class, "export") and not is_given else {}
    # a key without a default may be one that is varied
    first = parse(config_class, words, values=choices[0].values).training.seed
    runs = []
    for choice, seed in itertools.product(choices, range(first, first + config.seeds)):
        values = {**fixed, **choice.values, "training.seed": seed}
        values["run_folder"] = str(folder / "runs" / choice.folder / f"seed_{seed}")
        run = Run(module, parse(config_class, words, values=values), choice, seed, folder)
        if seed == first and isinstance(run.config.training, TrainingConfig):
            check(run)
        refuse_another(run)
        runs.append(run)
    return runs


def check(run: Run) -> None:
    """Raises a `ConfigError` for what a recipe finds out before it reads data, and leaves this process as it was."""
    policy = keras.config.dtype_policy()
    try:
        prepare(run.config)
    except ConfigError as error:
        raise ConfigError(f"{run.choice.label}: {error}") from error
    finally:
        keras.config.set_dtype_policy(policy)


def refuse_another(run: Run) -> None:
    """Raises a `RunFolderError` if the folder belongs to a run with another config or data that has been trained."""
    stored = find_run(run.config.run_folder)
    if stored is None or (stored.results is None and trained(stored.path) is None):
        return
    require_same_files(stored.path, data_paths(run.config))
    changed = changes(stored.config_yaml, run.config)
    if changed:
        lines = [f"  {key}: {before!r} there, {now!r} now" for key, (before, now) in changed.items()]
        raise RunFolderError(
            f"{run.config.run_folder} belongs to a run with another config; name another folder:\n" + "\n".join(lines)
        )


def train(config: CompareConfig, runs: Sequence[Run]) -> list[str]:
    """Trains what has not been trained yet, and returns the names of the runs that failed."""

    def note(run: Run) -> None:
        # others may have it, and none of the work is lost
        try:
            check_metrics(config.metric, [run.numbers() or {}])
        except ConfigError as error:
            tqdm.tqdm.write(f"{run.name}: {error}; another --metric, given afterwards, takes the runs that have ended")

    ended = {run: numbers for run in runs if run.has_ended() and (numbers := run.numbers()) is not None}
    if len(ended) == len(runs):
        check_metrics(config.metric, list(ended.values()))
    for run in ended:
        note(run)
    print(f"{len(runs)} runs, of which {len(ended)} have ended before")
    return run_all([run for run in runs if run not in ended], config.processes, note)


def check_metrics(metrics: Sequence[str], runs: Sequence[Mapping[str, float]]) -> None:
    """Checks that some runs have the results that are to be compared.

    Args:
        metrics: Names of results; none for the recipe's first one.
        runs: The numbers of runs.

    Raises:
        ConfigError: If none has one of them, or none is given and known.
    """
    found = list(dict.fromkeys(name for numbers in runs for name in numbers))
    for name in metrics:
        if name not in found:
            raise ConfigError(f"metric must be among {', '.join(found)}, got {name!r}")
    if not metrics and main_metric(runs) is None:
        raise ConfigError(f"metric must be given, of {', '.join(found)}")


def report(
    config: CompareConfig, runs: Sequence[Run], choices: Sequence[Choice], folder: Path, steps: FinalSteps
) -> list[dict[str, Any]]:
    """Writes tables and pictures of the runs that have results, and returns the rows."""
    ended = {run: numbers for run in runs if (numbers := run.numbers()) is not None}
    if not ended:
        return []
    results = {
        choice.label: {run.seed: numbers for run, numbers in ended.items() if run.choice is choice}
        for choice in choices
    }
    # those that no run has are an error, after all else is written
    metrics = [name for name in config.metric if any(name in numbers for numbers in ended.values())]
    usual = main_metric(list(ended.values()))
    if not metrics and usual is not None:
        metrics = [usual]
    rows, text = write_tables(choices, results, metrics, folder)
    zoo.storage.write_text_atomically(folder / "comparison.json", json.dumps(rows, indent=2) + "\n")
    if metrics:
        steps.attempt("pictures", draw, choices, list(ended), rows, folder)
    print_result(f"\n{text}\n{folder}: table.md, table.csv, runs.csv, comparison.json, comparison.png, curves.png")
    return rows


if __name__ == "__main__":
    run_recipe(main, CompareConfig, "compare")
