"""Trains a classifier for texts or pairs of texts, and exports it.

    python -m recipes.classify                                            # learns the language of dates, in minutes
    python -m recipes.classify --config recipes/configs/sst2.yaml
    python -m recipes.classify --data.train a.tsv --data.validation b.tsv --run_folder runs/mine

One label, several (`--model.problem multi_label --data.label_separator ,`) or a number (`--model.problem regression`).
Long texts are read in windows that overlap (`--model.stride 32`), rare labels weighted (`--training.class_weights
balanced`). The temperature of the probabilities is fitted to the validation data.
The same command resumes an interrupted run.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Iterable, Sequence
from typing import Any, Literal

import numpy as np

import zoo
from recipes.common.charts import plot_agreement, plot_confusion, title_of
from recipes.common.config import run_recipe, setting
from recipes.common.data.data_config import TestedDataConfig
from recipes.common.data.data_sets import Source, open_parts
from recipes.common.data.labelled_text import (
    LABELLED,
    LabelledText,
    columns_of,
    read_examples,
    require_known_labels,
    unknown_labels,
)
from recipes.common.errors import ConfigError, DataError, shown
from recipes.common.evaluation.calibrated import calibrate, calibration_scores
from recipes.common.evaluation.error_lists import ERRORS_FILE, label_errors, write_errors
from recipes.common.evaluation.evaluation import Evaluation
from recipes.common.evaluation.evaluations import evaluate_labels, labels_of
from recipes.common.evaluation.held_out import HeldOut, open_rows
from recipes.common.evaluation.label_metrics import linear_baseline
from recipes.common.finish import Outcome
from recipes.common.run_folder import RunFolder
from recipes.common.runner import Recipe
from recipes.common.training.class_weights import LabelTrainingConfig, class_weights, print_weights
from recipes.common.training.encoder_recipe import (
    EncoderTokenizerConfig,
    train_encoder_task,
)
from recipes.common.training.fitting import prepare
from recipes.common.training.models import HeadConfig, head_options, make_or_load_task
from recipes.common.training.windowed import WindowedModelConfig, length_options


@dataclasses.dataclass(frozen=True)
class DataConfig(TestedDataConfig):
    """Where the examples come from."""

    train: list[str] = setting(
        ["date_languages"], "TSV, CSV, JSON-lines (or .gz) or Parquet files, or a data set.", offers="paths"
    )
    text_columns: list[str] = setting(
        ["1"], "Column of the text, or the two columns of a pair: numbers from 1, or names.", describes_files=True
    )
    label_column: str = setting("2", "Column of the label.", describes_files=True)
    header: bool | None = setting(
        None,
        "Whether the first row of a table names its columns. null: yes if columns are given by name.",
        describes_files=True,
    )
    label_separator: str | None = setting(None, "String that separates several labels of a text.", describes_files=True)


@dataclasses.dataclass(frozen=True)
class ClassifierConfig(WindowedModelConfig, HeadConfig):
    """The architecture."""

    problem: Literal["single_label", "multi_label", "regression"] = setting("single_label", "What is predicted.")


@dataclasses.dataclass(frozen=True)
class ClassifyConfig:
    """Trains a classifier of texts and exports it as a SavedModel that labels strings."""

    run_folder: str = setting(
        "runs/classify", "Folder of the run. The same command resumes the run in it.", offers="paths"
    )
    data: DataConfig = DataConfig()
    tokenizer: EncoderTokenizerConfig = EncoderTokenizerConfig()
    model: ClassifierConfig = ClassifierConfig()
    training: LabelTrainingConfig = LabelTrainingConfig()
    calibrate: bool = setting(True, "Whether to fit the temperature of probabilities to the validation data.")
    tune_thresholds: bool = setting(False, "Whether to choose the threshold of each label on the validation data.")
    baseline: bool = setting(True, "Whether to train a linear model on TF-IDF as a baseline.", may_change=True)
    export: bool = setting(True, "Whether to write the SavedModel.", may_change=True)


def steps(config: ClassifyConfig, run: RunFolder) -> Outcome:
    """Reads the data, makes the model, trains and measures it."""
    problem = config.model.problem
    train_examples, validation_examples, test_examples = open_examples_of(config, run)
    task = make_model(config, run, train_examples)
    if problem != "regression":
        validation_rows, test_rows = (
            [(labels_of(each), each.origin) for each in examples] for examples in (validation_examples, test_examples)
        )
        require_known_labels(task.labels.names, validation_rows)
        # before the training, and not after it
        unknown_labels(task.labels.names, test_rows, "label")
    validation = columns_of(validation_examples)
    train_encoder_task(
        task,
        run,
        config.training,
        columns_of(train_examples),
        validation,
        metric=task.default_metrics()[0].name,
        mode="min" if problem == "regression" else "max",
        **weights_of(config, task, train_examples),
    )
    if config.calibrate and problem != "regression":
        calibrate(task, *validation)
    if config.tune_thresholds:
        thresholds = task.tune_thresholds(*validation)
        print("thresholds:", ", ".join(f"{label} {threshold:.3f}" for label, threshold in thresholds.items()))
    task.save_to_preset(run.path / "model")
    texts, truth = columns_of(test_examples)
    evaluation = evaluate_labels(task, test_examples, "test")
    is_fitted = test_examples == validation_examples
    draw(run, task, truth, evaluation.outputs, is_fitted)
    run.final_steps.add(ERRORS_FILE, list_errors, run, task, test_examples, evaluation)
    results = evaluation.results()
    if problem != "regression":
        numbers = numbers_of(task, truth)
        results.update(calibration_scores(run, task, evaluation.predictions, numbers, is_fitted=is_fitted))
    if config.tune_thresholds:
        results["thresholds"] = {name: round(value, 4) for name, value in zip(task.labels, task.threshold, strict=True)}
    if config.baseline:
        name = f"TF-IDF + {'ridge' if problem == 'regression' else 'logistic'} regression"
        try:
            results[name] = linear_baseline(*columns_of(train_examples), texts, truth, problem)
        except ValueError as error:
            # texts without words, for example
            print(f"{name} is left out: {error}")
    inputs = tuple(column[:3] for column in texts) if task.preprocessor.pairs else texts[:3]
    examples = list(zip(*inputs, strict=True)) if task.preprocessor.pairs else inputs

    def trial(served: Any) -> Iterable[tuple[Any, Any, Any]]:
        outputs = served.serve(*inputs) if task.preprocessor.pairs else served.serve(inputs)
        return zip(
            examples,
            np.asarray(next(iter(outputs.values())) if len(outputs) == 1 else outputs["probabilities"]),
            task.predict(inputs),
            strict=True,
        )

    names = ", ".join(task.labels.strings)
    numbers = "value" if problem == "regression" else f"probabilities of {names}:"
    return Outcome(task, results, trial, examples, test_is_validation=is_fitted, numbers=numbers)


def check(config: ClassifyConfig) -> None:
    """Checks what can be checked before the data are read.

    Args:
        config: The configuration.
    """
    prepare(config)
    model = config.model
    if (config.data.label_separator is None) == (model.problem == "multi_label"):
        raise ConfigError("data.label_separator and model.problem 'multi_label' must be given together")
    if config.tune_thresholds and model.problem != "multi_label":
        raise ConfigError(f"tune_thresholds must be false with model.problem {model.problem!r}, got true")
    if config.training.class_weights is not None and model.problem == "regression":
        weights = shown(config.training.class_weights)
        raise ConfigError(f"training.class_weights must be null with model.problem 'regression', got {weights}")
    if model.stride is not None and len(config.data.text_columns) > 1:
        raise ConfigError(f"model.stride must be null with pairs of texts, which have no windows, got {model.stride}")


def open_examples_of(config: ClassifyConfig, run: RunFolder) -> list[Sequence[LabelledText]]:
    """Returns training, validation and test examples, and says what was left out."""
    return open_parts(config.data, source_of(config.data, config.model.problem == "regression"), account=run.data)


def source_of(data: DataConfig, numeric: bool) -> Source:
    """Returns how examples are read; with labels that are numbers, or not."""
    columns = {"text_columns": data.text_columns, "label_column": data.label_column, "header": data.header}
    options = {**columns, "label_separator": data.label_separator, "numeric": numeric}
    return Source(LABELLED, lambda files, bad: read_examples(files, bad, **options))


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
        **head_options(model),
        **length_options(model),
        # of a model that was calibrated, they are fitted anew
        "temperature": 1.0,
        "threshold": 0.5,
    }

    def texts() -> Iterable[str]:
        return (text for example in examples for text in example.texts)

    return make_or_load_task(zoo.TextClassifier, model, config.tokenizer, run, texts, **options)


def weights_of(config: ClassifyConfig, task: zoo.TextClassifier, examples: Sequence[LabelledText]) -> dict[str, Any]:
    """Returns the options of the training that weigh rare labels."""
    several = config.model.problem == "multi_label"
    found = [label for example in examples for label in labels_of(example)]
    weights = class_weights(config.training.class_weights, task.labels, found, len(examples) if several else None)
    if weights is None:
        return {}
    print_weights(task.labels, weights)
    return {"loss": zoo.training.WeightedBinaryCrossEntropy(weights)} if several else {"class_weight": weights}


def numbers_of(task: zoo.TextClassifier, truth: Sequence[Any]) -> np.ndarray:
    """Returns the number of each label, -1 for one that the task does not know; or zeros and ones of several."""
    numbers = {name: number for number, name in enumerate(task.labels)}
    if task.preprocessor.problem == "single_label":
        return np.array([numbers.get(label, -1) for label in truth])
    return np.array([[float(name in labels) for name in numbers] for labels in truth])


def list_errors(
    run: RunFolder, task: zoo.TextClassifier, examples: Sequence[LabelledText], evaluation: Evaluation
) -> None:
    """Writes the wrong predictions, the surest first; of a regression all, the most distant first."""
    where = [(*example.texts, example.origin) for example in examples]
    truth, predicted = [example.label for example in examples], evaluation.outputs
    names = ["text", "origin"] if len(examples[0].texts) == 1 else ["first text", "second text", "origin"]
    if task.preprocessor.problem == "regression":
        rows = [
            (abs(given - right), given, right, *more)
            for given, right, more in zip(predicted, truth, where, strict=True)
        ]
        write_errors(run, ["distance", "predicted", "right", *names], rows)
    else:
        rows = label_errors(task.labels.strings, truth, predicted, evaluation.predictions, task.threshold, where)
        write_errors(run, ["confidence", "predicted", "right", "probability of the right one", *names], rows)


def draw(
    run: RunFolder, task: zoo.TextClassifier, truth: Sequence[Any], predicted: Sequence[Any], is_validation: bool
) -> None:
    """Draws predicted labels over right ones."""
    title = title_of("examples", is_validation)
    if task.preprocessor.problem == "regression":
        run.draw("agreement.png", plot_agreement, truth, predicted, title=title)
    elif task.preprocessor.problem == "single_label":
        run.draw("confusion.png", plot_confusion, truth, predicted, title=title)


def evaluate(task: Any, held_out: HeldOut) -> tuple[Evaluation, int]:
    """Returns what a model makes of data, read and measured as a run does, and how many rows were left out."""
    numeric = task.preprocessor.problem == "regression"
    examples, left_out = open_rows(held_out, source_of(held_out.data, numeric))
    needed, found = 2 if task.preprocessor.pairs else 1, len(examples[0].texts)
    if found != needed:
        raise DataError(f"data.text_columns must name {needed} for this {type(task).__name__}, the data have {found}")
    return evaluate_labels(task, examples), left_out


main = Recipe("classify", steps, check, kinds=("TextClassifier",), evaluate=evaluate)


if __name__ == "__main__":
    run_recipe(main, ClassifyConfig, "classify")
