"""Classify: from labelled texts, or pairs of texts, to a SavedModel that labels strings.

    python -m recipes.classify                                            # learns the language of dates, in minutes
    python -m recipes.classify --config recipes/configs/sst2.yaml
    python -m recipes.classify --data.train a.tsv --data.validation b.tsv --run_folder runs/mine

One label, several (`--model.problem multi_label --data.label_separator ,`) or a number (`--model.problem regression`).
The same command resumes an interrupted run.
"""

from __future__ import annotations

import dataclasses
import time
from collections.abc import Iterable, Sequence
from typing import Any, Literal

import numpy as np

import zoo
from recipes.common.charts import plot_agreement, plot_confusion
from recipes.common.config import run_recipe, setting
from recipes.common.data_sets import open_parts
from recipes.common.encoder_recipe import (
    EncoderModelConfig,
    EncoderTokenizerConfig,
    EncoderTrainingConfig,
    train_encoder_task,
)
from recipes.common.errors import ConfigError, DataError, shown
from recipes.common.finish import finish
from recipes.common.label_metrics import label_scores, linear_baseline
from recipes.common.labelled_text import (
    LABELLED,
    LabelledText,
    columns_of,
    read_examples,
    require_known_labels,
    unknown_labels,
)
from recipes.common.models import make_or_load_task
from recipes.common.run_folder import RunFolder
from recipes.common.training import prepare


@dataclasses.dataclass(frozen=True)
class DataConfig:
    """Where the examples come from."""

    train: list[str] = setting(["date_languages"], "TSV, CSV or JSON-lines files (or .gz), or the name of a data set.")
    validation: list[str] = setting([], "Likewise; empty for the validation part of the data set that train names.")
    test: list[str] = setting([], "Likewise; empty for the test part of the data set, or else the validation part.")
    text_columns: list[str] = setting(["1"], "Column of the text, or those of a pair: numbers from 1, or names.")
    label_column: str = setting("2", "Column of the label.")
    header: bool | None = setting(None, "Whether tables begin with column names; null: no, but stop if it looks so.")
    label_separator: str | None = setting(None, "What separates labels, where a text may have several.")
    on_error: Literal["raise", "skip"] = setting("raise", "At a malformed row: stop, or skip and count it.")


@dataclasses.dataclass(frozen=True)
class ClassifierConfig(EncoderModelConfig):
    """The architecture."""

    problem: Literal["single_label", "multi_label", "regression"] = setting("single_label", "What is predicted.")
    pooling: Literal["first", "mean", "max", "last", "pooler"] = setting("mean", "Which vector stands for a text.")
    head_dropout: float = setting(0.1, "Rate of the dropout before the last linear map.", least=0, below=1)


@dataclasses.dataclass(frozen=True)
class ClassifyConfig:
    """Trains a classifier of texts and exports it as a SavedModel that labels strings."""

    run_folder: str = setting("runs/classify", "Folder of the run; the same command resumes what it holds.")
    data: DataConfig = DataConfig()
    tokenizer: EncoderTokenizerConfig = EncoderTokenizerConfig()
    model: ClassifierConfig = ClassifierConfig()
    training: EncoderTrainingConfig = EncoderTrainingConfig()
    baseline: bool = setting(True, "Whether to train a linear model on TF-IDF as a baseline.", harmless=True)
    export: bool = setting(True, "Whether to write the SavedModel.", harmless=True)


def main(config: ClassifyConfig) -> dict[str, Any]:
    """Runs the recipe.

    Args:
        config: The configuration.

    Returns:
        The results, as written to `results.json` in the run folder.
    """
    started = time.monotonic()
    prepare(config)
    if (config.data.label_separator is None) == (config.model.problem == "multi_label"):
        raise ConfigError("data.label_separator and model.problem 'multi_label' must be given together")
    with RunFolder(config.run_folder, config) as run:
        train_examples, validation_examples, test_examples = open_examples_of(config)
        task = make_model(config, run, train_examples)
        unknown: dict[str, int] = {}
        if config.model.problem != "regression":
            several = config.model.problem == "multi_label"
            validation_rows, test_rows = (
                [(each.label if several else [each.label], each.origin) for each in examples]
                for examples in (validation_examples, test_examples)
            )
            require_known_labels(task.labels.names, validation_rows)
            unknown = unknown_labels(task.labels.names, test_rows, "label")
        seconds, _ = train_encoder_task(
            task,
            run,
            config.training,
            columns_of(train_examples),
            columns_of(validation_examples),
            metric=task.default_metrics()[0].name,
            mode="min" if config.model.problem == "regression" else "max",
        )
        texts, truth = columns_of(test_examples)
        predicted = task.classify(texts)
        draw(run, task, truth, predicted)
        results: dict[str, Any] = {"parameters": task.count_params(), "test_examples": len(truth), **unknown}
        results.update(label_scores(truth, predicted, config.model.problem))
        if config.baseline:
            problem = config.model.problem
            name = f"TF-IDF + {'ridge' if problem == 'regression' else 'logistic'} regression"
            try:
                results[name] = linear_baseline(*columns_of(train_examples), texts, truth, problem)
            except ValueError as error:
                # texts without words, for example
                print(f"{name} is left out: {error}")
        results["training_seconds"] = round(seconds, 1)

        def trial(served: Any) -> Iterable[tuple[Any, Any, Any]]:
            inputs = tuple(column[:3] for column in texts) if task.preprocessor.pairs else texts[:3]
            outputs = served.serve(*inputs) if task.preprocessor.pairs else served.serve(inputs)
            return zip(
                zip(*inputs, strict=True) if task.preprocessor.pairs else inputs,
                np.asarray(next(iter(outputs.values())) if len(outputs) == 1 else outputs["probabilities"]),
                task.predict(inputs),
                strict=True,
            )

        return finish(run, "classify", task, results, started, export={} if config.export else None, trial=trial)


def open_examples_of(config: ClassifyConfig) -> list[Sequence[LabelledText]]:
    """Returns training, validation and test examples, and says what was left out."""
    data = config.data
    return open_parts(
        data,
        LABELLED,
        lambda files, bad: read_examples(
            files,
            bad,
            text_columns=data.text_columns,
            label_column=data.label_column,
            header=data.header,
            label_separator=data.label_separator,
            numeric=config.model.problem == "regression",
        ),
    )


def make_model(config: ClassifyConfig, run: RunFolder, examples: Sequence[LabelledText]) -> zoo.TextClassifier:
    """Returns the classifier with initial weights, or on the backbone of a saved model."""
    model = config.model
    labels: Any = 1
    if model.problem == "single_label":
        labels = sorted({example.label for example in examples})
        if len(labels) < 2:
            raise DataError(f"the training data must have two labels at least, got {shown(labels)}")
    elif model.problem == "multi_label":
        labels = sorted({label for example in examples for label in example.label})
    options = {
        "labels": labels,
        "problem": model.problem,
        "pairs": len(examples[0].texts) == 2,
        "pooling": model.pooling,
        "head_dropout": model.head_dropout,
        "truncate": True,
    }

    def texts() -> Iterable[str]:
        return (text for example in examples for text in example.texts)

    return make_or_load_task(zoo.TextClassifier, model, config.tokenizer, run, texts, **options)


def draw(run: RunFolder, task: zoo.TextClassifier, truth: Sequence[Any], predicted: Sequence[Any]) -> None:
    """Draws predicted labels over right ones."""
    if task.preprocessor.problem == "regression":
        plot_agreement(truth, predicted, run.plots / "agreement.png", "Test examples")
    elif task.preprocessor.problem == "single_label":
        plot_confusion(truth, predicted, run.plots / "confusion.png", "Test examples")


if __name__ == "__main__":
    run_recipe(main, ClassifyConfig, "classify")
