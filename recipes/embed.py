"""Embed: from pairs of texts with a similarity to a SavedModel that gives strings vectors.

    python -m recipes.embed                                   # learns which dates agree, in minutes
    python -m recipes.embed --config recipes/configs/stsb.yaml
    python -m recipes.embed --data.train a.tsv --data.validation b.tsv --run_folder runs/mine

The same command resumes an interrupted run.
"""

from __future__ import annotations

import dataclasses
import time
from collections.abc import Iterable, Sequence
from typing import Any, Literal

import numpy as np

import zoo
from recipes.common.charts import plot_agreement
from recipes.common.config import run_recipe, setting
from recipes.common.data_sets import open_parts
from recipes.common.encoder_recipe import (
    EncoderModelConfig,
    EncoderTokenizerConfig,
    EncoderTrainingConfig,
    train_encoder_task,
)
from recipes.common.errors import ConfigError
from recipes.common.finish import finish
from recipes.common.label_metrics import label_scores
from recipes.common.labelled_text import LABELLED, LabelledText, columns_of, is_in_range, read_examples
from recipes.common.models import make_or_load_task
from recipes.common.run_folder import RunFolder
from recipes.common.training import prepare


@dataclasses.dataclass(frozen=True)
class DataConfig:
    """Where the pairs come from."""

    train: list[str] = setting(["date_pairs"], "TSV, CSV or JSON-lines files (or .gz), or the name of a data set.")
    validation: list[str] = setting([], "Likewise; empty for the validation part of the data set that train names.")
    test: list[str] = setting([], "Likewise; empty for the test part of the data set, or else the validation part.")
    text_columns: list[str] = setting(["1", "2"], "Columns of the two texts: numbers from 1, or names.")
    label_column: str = setting("3", "Column of the similarity.")
    highest: float = setting(1.0, "The similarity of equal texts; similarities are from 0 to it.", above=0)
    header: bool | None = setting(None, "Whether tables begin with column names; null: no, but stop if it looks so.")
    on_error: Literal["raise", "skip"] = setting("raise", "At a malformed row: stop, or skip and count it.")


@dataclasses.dataclass(frozen=True)
class EmbedderConfig(EncoderModelConfig):
    """The architecture."""

    pooling: Literal["mean", "max", "first", "last", "pooler"] = setting("mean", "Which vector stands for a text.")


@dataclasses.dataclass(frozen=True)
class EmbedConfig:
    """Trains an embedder of texts on similarities and exports it as a SavedModel that gives strings vectors."""

    run_folder: str = setting("runs/embed", "Folder of the run; the same command resumes what it holds.")
    data: DataConfig = DataConfig()
    tokenizer: EncoderTokenizerConfig = EncoderTokenizerConfig()
    model: EmbedderConfig = EmbedderConfig()
    training: EncoderTrainingConfig = EncoderTrainingConfig()
    export: bool = setting(True, "Whether to write the SavedModel.", harmless=True)


def main(config: EmbedConfig) -> dict[str, Any]:
    """Runs the recipe.

    Args:
        config: The configuration.

    Returns:
        The results, as written to `results.json` in the run folder.
    """
    started = time.monotonic()
    prepare(config)
    if len(config.data.text_columns) != 2:
        raise ConfigError(f"data.text_columns must name two columns, got {config.data.text_columns}")
    with RunFolder(config.run_folder, config) as run:
        train, validation, test = (columns_of(part) for part in open_pairs_of(config.data))
        task = make_or_load_task(
            zoo.TextEmbedder,
            config.model,
            config.tokenizer,
            run,
            lambda: [*train[0][0], *train[0][1]],
            pooling=config.model.pooling,
            objective="cosine_regression",
            truncate=True,
        )
        highest = config.data.highest
        seconds, _ = train_encoder_task(
            task,
            run,
            config.training,
            *((texts, [value / highest for value in values]) for texts, values in (train, validation)),
            metric="loss",
            mode="min",
        )
        (first, second), truth = test
        similarities = np.sum(task.embed(first) * task.embed(second), axis=1)
        plot_agreement(truth, similarities * highest, run.plots / "agreement.png", "Test pairs")
        results = {
            "parameters": task.count_params(),
            "test_pairs": len(truth),
            **label_scores(truth, similarities * highest, "regression"),
            "training_seconds": round(seconds, 1),
        }

        def trial(served: Any) -> Iterable[tuple[str, np.ndarray, np.ndarray]]:
            return zip(first[:3], np.asarray(served.serve(first[:3])), task.embed(first[:3]), strict=True)

        return finish(run, "embed", task, results, started, export={} if config.export else None, trial=trial)


def open_pairs_of(data: DataConfig) -> list[Sequence[LabelledText]]:
    """Returns training, validation and test pairs, and says what was left out."""
    return open_parts(
        data,
        LABELLED,
        lambda files, bad: read_examples(
            files,
            bad,
            text_columns=data.text_columns,
            label_column=data.label_column,
            header=data.header,
            numeric=True,
        ),
        lambda pair, bad: is_in_range(pair, bad, data.highest),
    )


if __name__ == "__main__":
    run_recipe(main, EmbedConfig, "embed")
