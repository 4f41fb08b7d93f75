"""Evaluates runs or saved models: scores with intervals and paired tests.

    python -m recipes.evaluate runs/dates
    python -m recipes.evaluate runs/sst2 --split validation
    python -m recipes.evaluate runs/sst2 --data.test reviews.tsv --data.header true
    python -m recipes.evaluate runs/baseline runs/mine --output runs/baseline_and_mine
    python -m recipes.evaluate hf://owner/name --task CausalLM --data.test held_out.txt

A run is evaluated on its own test data, read with its own keys; keys given here override them. Other models are
evaluated as the recipe of their kind does it. Several models are compared with the first one.
"""

from __future__ import annotations

import dataclasses
import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Literal

import zoo
from recipes import (
    answer,
    classify,
    distill,
    embed,
    finetune,
    language_model,
    prefer,
    pretrain_masked_lm,
    rerank,
    summarize,
    tag,
    translate,
)
from recipes.command.printing import print_result
from recipes.common.charts import plot_intervals
from recipes.common.config import parse, run_recipe, setting
from recipes.common.errors import ConfigError, DataError, errors_of, shown
from recipes.common.evaluation.evaluation import Evaluation
from recipes.common.evaluation.held_out import HeldOut, data_for
from recipes.common.evaluation.intervals import compare_models, table
from recipes.common.final_steps import FinalSteps
from recipes.common.recipe_modules import config_class_of, find_recipe
from recipes.common.run_folder import find_run
from recipes.common.saved_models import TASKS, load_task, make_sampler, require_texts_alone, require_trained, saved_kind
from recipes.common.training.distill_data import as_config_of

RECIPES = {
    module.main.name: module.main
    for module in (
        *(translate, summarize, language_model, pretrain_masked_lm, classify, tag, answer, embed, rerank, finetune),
        prefer,
    )
}
# the recipe that trains models of a kind, where a model is not one of a run: the first one
_OF_KIND = {kind: recipe.name for recipe in reversed(RECIPES.values()) for kind in recipe.kinds}


@dataclasses.dataclass(frozen=True)
class EvaluateConfig:
    """Scores runs and saved models on data: BLEU, ROUGE, perplexity, accuracy, F1 or correlation, by their recipe."""

    models: list[str] = setting(
        help="Folders of runs or saved models, also of the Transformers library, or hf://owner/name.",
        words="first",
        offers="paths",
    )
    recipe: str | None = setting(None, f"One of {', '.join(RECIPES)}; null: that of the run, or of the kind of model.")
    task: str | None = setting(None, f"One of {', '.join(TASKS)}; null for the kind that was saved.", offers=TASKS)
    split: Literal["train", "validation", "test"] = setting("test", "Part of the data to evaluate on.")
    data: dict[str, list[str]] = setting(
        {}, "Keys of the recipe's data that differ from those of the run: --data.test FILE, --data.header true."
    )
    options: dict[str, Any] = setting({}, "Arguments of generate() that differ from those of the run: {sampler: beam}.")
    output: str = setting(
        "runs/evaluation", "Folder for scores, predictions beside references, and a picture.", offers="paths"
    )
    shown: int = setting(3, "Number of rows to print.", least=0, most=1000)
    length: int | None = setting(
        None,
        "Language models: number of tokens of a window. null: as in training, or as many as the model takes.",
        least=1,
    )
    resamples: int = setting(1000, "Number of resamples of the bootstrap.", least=100, most=10**6)
    seed: int = setting(0, "Seed of the bootstrap.", least=0, most=2**32 - 1)


@dataclasses.dataclass(frozen=True)
class Subject:
    """A model: its name here, where it is, the recipe of its run, and its folder (None where it is not one of a run).

    A student of recipes.distill is taken as a model of the recipe that trains its kind, `student`.
    """

    name: str
    path: str
    recipe: str | None
    folder: Path | None
    student: str | None


def main(config: EvaluateConfig) -> dict[str, Any]:
    """Runs the recipe.

    Args:
        config: The configuration.

    Returns:
        `models`, the scores and intervals of each; `comparisons` with the first one; and what was evaluated.
    """
    require_texts_alone(config.options, "return_scores", "return_cache", "num_results")
    if config.options.get("sampler") is not None:
        make_sampler(config.options["sampler"])
    unread = [part for part in ("train", "validation", "test") if part in config.data and part != config.split]
    if unread:
        raise ConfigError(f"data.{unread[0]} is not read with split {config.split!r}")
    with errors_of("output"):
        Path(config.output).mkdir(parents=True, exist_ok=True)
    subjects = find_subjects(config.models)
    recipe = recipe_of(config, subjects)
    evaluations: dict[str, Evaluation] = {}
    source = data = None
    for subject in subjects:
        task = load_task(subject.path, config.task)
        if recipe is None:
            recipe = recipe_of_kind(task)
        if data is None:
            source = next(filter(None, (config_of(each, recipe) for each in subjects)), None)
            data = data_of(config, recipe, source)
        if len(subjects) > 1:
            print(f"{subject.name}: {subject.path}")
        run_config = config_of(subject, recipe)
        default = config_class_of(find_recipe(recipe))()
        own = data_for(data, (run_config or default).data, config.data)
        held_out = HeldOut(
            run_config, source, subject.folder, own, set(config.data), config.split, config.options, config.length
        )
        evaluations[subject.name] = RECIPES[recipe].evaluated(task, held_out)
    check_rows(evaluations)
    return score(config, recipe, subjects, evaluations)


def find_subjects(paths: list[str]) -> list[Subject]:
    """Returns the models, with short names where these differ.

    Args:
        paths: Where they are.

    Raises:
        ConfigError: If one is given twice, or there is none: before any of them is evaluated.
    """
    if len(set(paths)) != len(paths) or not paths:
        raise ConfigError(f"models must be different ones, at least one, got {paths}")
    subjects = []
    for path in paths:
        with errors_of("models"):
            require_trained(path)
            zoo.storage.find_reader(path)
        run = find_run(path) if Path(path).is_dir() else None
        folder = Path(path) if run is None else run.path
        name = folder.resolve().name if Path(path).is_dir() else path.rpartition("/")[2]
        recipe = None if run is None or run.recipe is None else run.recipe.removeprefix("recipes.")
        student = None
        if recipe == "distill":
            with errors_of("models"):
                student = saved_kind(path)
                recipe = _OF_KIND[student]
        subjects.append(Subject(name, path, recipe, None if run is None else run.path, student))
    names = [subject.name for subject in subjects]
    if len(set(names)) < len(names):
        subjects = [dataclasses.replace(subject, name=subject.path) for subject in subjects]
    return subjects


def recipe_of(config: EvaluateConfig, subjects: list[Subject]) -> str | None:
    """Returns the recipe whose data and scores are used: the one given, or that of the runs; None if there are none."""
    of_runs = dict.fromkeys(subject.recipe for subject in subjects if subject.recipe is not None)
    if config.recipe is None and len(of_runs) > 1:
        raise ConfigError(f"models must be of one recipe, these are of {', '.join(of_runs)}; --recipe names one")
    recipe = config.recipe or next(iter(of_runs), None)
    if recipe is not None and recipe not in RECIPES:
        raise ConfigError(f"recipe must be one of {', '.join(RECIPES)}, got {recipe!r}")
    return recipe


def recipe_of_kind(task: zoo.Task) -> str:
    """Returns the recipe that trains tasks of this kind."""
    kind = type(task)
    found = next((recipe for name, recipe in _OF_KIND.items() if isinstance(task, getattr(zoo, name))), None)
    if found is None:
        raise ConfigError(f"models: there is no recipe that evaluates a {kind.__name__}")
    return found


def config_of(subject: Subject, recipe: str) -> Any:
    """Returns the config of the run of a model, None where it is not one of a run of the recipe."""
    if subject.recipe != recipe or subject.folder is None:
        return None
    config_class = config_class_of(find_recipe(recipe))
    words = ["--config", str(subject.folder / "config.yaml")]
    if subject.student is None:
        return parse(config_class, words)
    return as_config_of(subject.student, parse(distill.DistillConfig, words), config_class())


def data_of(config: EvaluateConfig, recipe: str, source: Any) -> Any:
    """Returns the group `data` of the config of a run, or of a default one, with the keys that are given here."""
    config_class = config_class_of(find_recipe(recipe))
    given = dict(config.data)
    if source is None and config.split not in given:
        raise ConfigError(f"data.{config.split} must be given: no run of recipes.{recipe} names it")
    if "test" in given and not hasattr(config_class.data, "test"):
        # recipes without a test set test on the validation set
        given["validation"] = given.pop("test")
    chosen = parse(config_class, [word for name in given for word in (f"--data.{name}", *given[name])]).data
    if source is None:
        return chosen
    return dataclasses.replace(source.data, **{name: getattr(chosen, name) for name in given})


def check_rows(evaluations: Mapping[str, Evaluation]) -> None:
    """Raises a `DataError` if models were given other rows than the first; says which scores are not tested."""
    (first, of_first), *others = evaluations.items()
    for name, evaluation in others:
        if evaluation.fingerprint != of_first.fingerprint:
            both = (evaluation, of_first)
            counts = [f"{len(each.rows)} ({each.scores.get('too_long', 0)} too long)" for each in both]
            raise DataError(
                f"{name} was given other rows than {first}, {' and '.join(counts)}: leave out those that one of them "
                "cannot take"
            )
        windows = [each.scores.get("window") for each in (of_first, evaluation)]
        if windows[0] != windows[1]:
            print(f"{name} reads windows of {windows[1]} tokens, {first} of {windows[0]}; --length sets one for all")
        differing = [score for score, tokens in evaluation.guessed.items() if of_first.guessed.get(score) != tokens]
        if differing:
            print(f"{name} guesses other tokens than {first}: {', '.join(differing)}: not tested")


def score(
    config: EvaluateConfig, recipe: str, subjects: list[Subject], evaluations: Mapping[str, Evaluation]
) -> dict[str, Any]:
    """Writes scores, predictions and the picture, prints the scores, and returns them."""
    scores, comparisons = compare_models(evaluations, resamples=config.resamples, seed=config.seed)
    results = {
        "recipe": recipe,
        "split": config.split,
        "models": {
            subject.name: {
                "path": subject.path,
                **evaluations[subject.name].scores,
                "intervals": {
                    name: [round(bound, 4) for bound in values["interval"]]
                    for name, values in scores[subject.name].items()
                },
            }
            for subject in subjects
        },
        "comparisons": comparisons,
    }
    folder, text = Path(config.output), table(scores, comparisons)
    with errors_of("output"):
        zoo.storage.write_text_atomically(folder / "results.json", json.dumps(results, indent=2) + "\n")
        zoo.storage.write_text_atomically(folder / "table.md", text)
        rows = predictions(evaluations)
        lines = [json.dumps(row, ensure_ascii=False) + "\n" for row in rows]
        zoo.storage.write_text_atomically(folder / "predictions.jsonl", "".join(lines))
    steps = FinalSteps(folder)
    for row in rows[: config.shown]:
        print("\n".join(f"{name}: {shown(value, 300)}" for name, value in row.items()) + "\n")
    if any(scores.values()):
        print(text)
    if len(subjects) > 1 and scores[subjects[0].name]:
        panels = {
            name: {model: (of[name]["value"], of[name]["interval"], ()) for model, of in scores.items() if name in of}
            for name in scores[subjects[0].name]
        }
        title, path = "Scores with 95 % intervals over the test rows", folder / "comparison.png"
        steps.attempt("comparison.png", plot_intervals, panels, path, title)
    print(f"{folder}: results.json, table.md, predictions.jsonl ({len(rows)} rows)")
    print_result(json.dumps(results["models"], indent=2))
    steps.raise_failed()
    return results


def predictions(evaluations: Mapping[str, Evaluation]) -> list[dict[str, Any]]:
    """Returns the rows of the data with the outputs of all models."""
    columns = zip(*(evaluation.outputs for evaluation in evaluations.values()), strict=True)
    return [
        {**row, "outputs": dict(zip(evaluations, outputs, strict=True))}
        for row, outputs in zip(next(iter(evaluations.values())).rows, columns, strict=True)
    ]


if __name__ == "__main__":
    run_recipe(main, EvaluateConfig, "evaluate")
