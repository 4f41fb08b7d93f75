"""How recipes begin and end alike: a task of a preset; saved model, export that is tried, results, model card."""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any, TypeVar

import numpy as np

import zoo
from recipes.common import card
from recipes.common.errors import ConfigError, DataError
from recipes.common.run_folder import RunFolder
from zoo.backbones import Backbone
from zoo.generation import Sampler, get_sampler
from zoo.presets import preset_config
from zoo.storage import read_description
from zoo.tasks import Task
from zoo.tokenizers import Tokenizer

AnyTask = TypeVar("AnyTask", bound=Task)


def make_task(
    kind: type[AnyTask], preset: str, tokenizer: Tokenizer, options: dict[str, Any], **task_options: Any
) -> AnyTask:
    """Returns a task with initial weights, and says how large it is.

    Args:
        kind: The class.
        preset: Name of the architecture.
        tokenizer: The tokenizer, which decides about the size of the vocabulary.
        options: Choices that differ from the preset.
        **task_options: Arguments of the task.

    Raises:
        ConfigError: If there is no such preset or choice.
    """
    try:
        config = preset_config(preset, vocabulary_size=tokenizer.vocabulary_size, **options)
        task = kind(Backbone.from_config(config), tokenizer, **task_options)
    except (TypeError, ValueError) as error:
        raise ConfigError(f"model: {error}") from error
    print(f"{preset}: {task.count_params():,} parameters")
    return task


def make_sampler(values: dict[str, Any]) -> Sampler:
    """Returns the sampler of a key such as `sampler`.

    Args:
        values: Its name and options.

    Raises:
        ConfigError: If there is no such sampler or option.

    Example:

    >>> make_sampler({"name": "beam", "num_beams": 5})
    """
    try:
        return get_sampler(values)
    except (TypeError, ValueError) as error:
        raise ConfigError(f"sampler: {error}") from error


TASKS = ("CausalLM", "MaskedLM", "Seq2SeqLM", "TextClassifier", "TextEmbedder", "TokenClassifier")


def load_task(directory: str, kind: str | None = None) -> Task:
    """Returns the task of a saved model.

    Args:
        directory: What `from_preset` takes.
        kind: One of `TASKS`; None for the kind that was saved, which models of other libraries do not tell.

    Raises:
        ConfigError: If there is no such kind.
        DataError: If there is no saved model.
    """
    if kind not in (None, *TASKS):
        raise ConfigError(f"task must be one of {', '.join(TASKS)}, got {kind!r}")
    try:
        return getattr(zoo, kind or read_description(directory).task).from_preset(directory)
    except (OSError, ValueError) as error:
        raise DataError(str(error)) from error


def start_from(kind: type[AnyTask], directory: str, **task_options: Any) -> AnyTask:
    """Returns a task on the backbone and tokenizer of a saved model, and says how large it is.

    Args:
        kind: The class.
        directory: What `from_preset` takes; of a model of the same kind or another, whose head is left.
        **task_options: Arguments of the task.

    Raises:
        ConfigError: If there is no such model, or its backbone does not fit the task.
    """
    try:
        task = kind.from_preset(directory, **task_options)
    except (OSError, TypeError, ValueError) as error:
        raise ConfigError(f"model.start_from: {error}") from error
    print(f"{directory}: {task.count_params():,} parameters")
    return task


def finish(
    run: RunFolder,
    recipe: str,
    task: Task,
    results: dict[str, Any],
    started: float,
    *,
    export: dict[str, Any] | None,
    trial: Callable[[Any], Iterable[tuple[Any, Any, Any]]],
) -> dict[str, Any]:
    """Saves the model, exports it and tries the export, and writes results and model card.

    Args:
        run: The run folder.
        recipe: Name of the recipe.
        task: The trained task.
        results: What was measured; sizes and times are added.
        started: `time.monotonic()` when the recipe began.
        export: Arguments of `task.export`; None for no export.
        trial: Given the loaded SavedModel, tries it: `(input, output, what the task itself gives)` of a few examples,
            the latter two strings, lists of strings, or arrays of numbers.

    Returns:
        The results.

    Raises:
        RuntimeError: If the export gives other outputs than the task.
    """
    task.save_to_preset(run.path / "model")
    if export is not None:
        import tensorflow as tf

        task.export(run.export, **export)
        for given, output, expected in trial(tf.saved_model.load(str(run.export))):
            if not _same(output, expected):
                raise RuntimeError(f"The export in {run.export} makes {output!r} of {given!r}, the task {expected!r}.")
            print(f"export: {given!r} -> {_shown(output)}")
        results["export_megabytes"] = round(_size(run.export) / 1e6, 2)
    results["total_seconds"] = round(time.monotonic() - started, 1)
    run.write_text("results.json", json.dumps(results, indent=2) + "\n")
    card.write_model_card(run, recipe, task, results)
    print(json.dumps(results, indent=2))
    return results


def decoded(texts: Any) -> list[str]:
    """Returns a string tensor as a list of texts.

    Args:
        texts: `tf.string` tensor `(batch,)`.
    """
    return [text.decode("utf-8") for text in texts.numpy()]


def _same(output: Any, expected: Any) -> bool:
    if isinstance(expected, (str, list)):
        return output == expected
    return bool(np.allclose(output, expected, rtol=1e-4, atol=1e-5))


def _shown(output: Any) -> str:
    if isinstance(output, (str, list)):
        return repr(output)
    return np.array2string(np.asarray(output), precision=3, threshold=8, edgeitems=3)


def _size(folder: Path) -> int:
    return sum(path.stat().st_size for path in folder.rglob("*") if path.is_file())
