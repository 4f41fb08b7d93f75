"""Trains a model that maps texts to vectors, and exports it.

    python -m recipes.embed                                   # learns which dates agree, in minutes
    python -m recipes.embed --config recipes/configs/stsb.yaml
    python -m recipes.embed --config recipes/configs/scitldr_search.yaml
    python -m recipes.embed --data.train a.tsv --data.validation b.tsv --run_folder runs/mine
    python -m recipes.embed --objective.name in_batch_negatives --data.train pairs.jsonl --data.validation held.jsonl \
        --data.text_columns question answer --model.prompts '{"query": "query: ", "document": "passage: "}'

Pairs with a similarity (cosine_regression, cosent), pairs that belong together, with hard negatives or without
(in_batch_negatives), or triplets. The same command resumes an interrupted run.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Iterable, Sequence
from typing import Any, Literal

import keras
import numpy as np

import zoo
from recipes.common.config import run_recipe, setting
from recipes.common.data.account import DataAccount
from recipes.common.data.data_config import TestedDataConfig
from recipes.common.data.data_sets import Source, are_named, is_name, open_part, open_parts
from recipes.common.data.labelled_text import LABELLED, LabelledText, columns_of, is_in_range, read_examples
from recipes.common.data.retrieval import Retrieval, SearchFilesConfig, open_beir, retrieval_of_groups
from recipes.common.data.text_groups import GROUPS, TextGroup, group_columns, read_groups
from recipes.common.errors import ConfigError, DataError, shown
from recipes.common.evaluation.evaluation import Evaluation
from recipes.common.evaluation.held_out import HeldOut, open_rows
from recipes.common.evaluation.search_evaluations import (
    EmbeddingScores,
    evaluate_search,
    evaluate_similarity,
    similarity_baseline,
)
from recipes.common.finish import Outcome
from recipes.common.run_folder import RunFolder
from recipes.common.runner import Recipe
from recipes.common.training.encoder_recipe import (
    EncoderModelConfig,
    EncoderTokenizerConfig,
    EncoderTrainingConfig,
    train_encoder_task,
)
from recipes.common.training.fitting import prepare
from recipes.common.training.models import make_or_load_task


@dataclasses.dataclass(frozen=True)
class DataConfig(TestedDataConfig):
    """Where the texts come from."""

    train: list[str] = setting(
        ["date_pairs"], "TSV, CSV, JSON-lines (or .gz) or Parquet files, or a data set.", offers="paths"
    )
    text_columns: list[str] = setting(
        ["1", "2"],
        "Columns of the texts, as numbers from 1 or names: the two texts of a pair, or anchor, "
        "positive and any negatives.",
        describes_files=True,
    )
    label_column: str = setting("3", "Column of the similarity (cosine_regression, cosent).", describes_files=True)
    highest: float = setting(1.0, "Similarity of equal texts. Similarities go from 0 to this value.", above=0)
    header: bool | None = setting(
        None, "Whether the first row of a table names its columns. null: yes if columns are given by name."
    )


@dataclasses.dataclass(frozen=True)
class ObjectiveConfig:
    """What the model learns."""

    name: Literal["cosine_regression", "cosent", "in_batch_negatives", "triplet"] = setting(
        "cosine_regression", "The loss. cosine_regression and cosent need similarities."
    )
    scale: float = setting(20.0, "Factor on the cosines (in_batch_negatives, cosent).", above=0)
    symmetric: bool = setting(False, "Whether positives also search for their anchors (in_batch_negatives).")
    margin: float = setting(1.0, "How much farther away the negative must be than the positive (triplet).", above=0)
    distance: Literal["euclidean", "cosine"] = setting("euclidean", "Distance between vectors (triplet).")
    widths: list[int] = setting(
        [], "Widths of the beginnings of the vectors that are also trained for use alone (Matryoshka)."
    )


_KEYS_OF = {
    "scale": ("in_batch_negatives", "cosent"),
    "symmetric": ("in_batch_negatives",),
    "margin": ("triplet",),
    "distance": ("triplet",),
}


@dataclasses.dataclass(frozen=True)
class EmbedderConfig(EncoderModelConfig):
    """The architecture."""

    pooling: Literal["mean", "max", "first", "last", "pooler"] | None = setting(
        None,
        "How token vectors become one vector of a text. null: as in the model started from, or mean for a new one.",
    )
    prompts: dict[str, str] | None = setting(
        None,
        "Prompts that are put before texts, by name. query is for the first text of a row, document for all others.",
    )
    default_prompt: str | None = setting(None, "Name of the prompt that is used if no name is given.")
    training_prompts: list[str] | None = setting(
        None,
        "Name of the prompt of each column. null: query and document if there are both, or else the default prompt.",
    )
    width: int | None = setting(None, "Width of the vectors of the saved model. null: the full width.", least=1)


@dataclasses.dataclass(frozen=True)
class EvaluationConfig(SearchFilesConfig):
    """What the trained model is measured by, besides the test set of the data."""

    similarity: list[str] = setting(
        [],
        "File of pairs with a similarity, or the name of a data set, if the training data have no similarities.",
        offers="paths",
    )
    similarity_columns: list[str] = setting(["1", "2", "3"], "Columns of the two texts and of their similarity.")


@dataclasses.dataclass(frozen=True)
class EmbedConfig:
    """Trains an embedder of texts and exports it as a SavedModel that gives strings vectors."""

    run_folder: str = setting(
        "runs/embed", "Folder of the run. The same command resumes the run in it.", offers="paths"
    )
    data: DataConfig = DataConfig()
    tokenizer: EncoderTokenizerConfig = EncoderTokenizerConfig()
    model: EmbedderConfig = EmbedderConfig()
    objective: ObjectiveConfig = ObjectiveConfig()
    training: EncoderTrainingConfig = EncoderTrainingConfig()
    evaluation: EvaluationConfig = EvaluationConfig()
    baseline: bool = setting(True, "Whether to measure vectors of TF-IDF as a baseline.", may_change=True)
    export: bool = setting(True, "Whether to write the SavedModel.", may_change=True)


def steps(config: EmbedConfig, run: RunFolder) -> Outcome:
    """Reads the data, makes the model, trains and measures it."""
    train, validation, test = open_data(config, run.data)
    pairs, retrieval = open_evaluation(config, test)
    task = make_or_load_task(
        zoo.TextEmbedder,
        config.model,
        config.tokenizer,
        run,
        lambda: (text for row in train for text in row.texts),
        objective=config.objective.name,
        truncate=True,
        **task_options(config.model),
    )
    loss = make_loss(config.objective, task.width)
    parts = (training_columns(config, part) for part in (train, validation))
    train_encoder_task(task, run, config.training, *parts, metric="loss", mode="min", loss=loss)
    results: dict[str, Any] = {}
    scores = EmbeddingScores(task, run, config.objective.widths)
    if pairs:
        exact = config.objective.name == "cosine_regression"
        results |= scores.of_pairs(pairs, config.data.highest, exact=exact, is_validation=test == validation)
        if config.baseline:
            results |= similarity_baseline(pairs, (text for row in train for text in row.texts))
    if retrieval is not None:
        results |= scores.of_search(retrieval, baseline=config.baseline)
    texts = list(test[0].texts)

    def trial(served: Any) -> Iterable[tuple[str, np.ndarray, np.ndarray]]:
        return zip(texts, np.asarray(served.serve(texts)), task.embed(texts), strict=True)

    # else they are measured by a search, and pairs, of their own
    has_test = (
        config.evaluation.queries is None or config.objective.name in zoo.preprocessing.text_embedder.WITH_SIMILARITIES
    )
    is_validation = test == validation if has_test else None
    return Outcome(task, results, trial, texts, test_is_validation=is_validation, numbers="embedding")


def check(config: EmbedConfig) -> None:
    """Checks keys that depend on each other, before data are read.

    Raises:
        ConfigError: If one is not used.
    """
    prepare(config)
    data, objective, evaluation = config.data, config.objective, config.evaluation
    for key, names in _KEYS_OF.items():
        value, default = getattr(objective, key), getattr(ObjectiveConfig(), key)
        if objective.name not in names and value != default:
            raise ConfigError(
                f"objective.{key} must be {shown(default)} with objective {objective.name!r}, got {shown(value)}"
            )
    counts = zoo.preprocessing.text_embedder.OBJECTIVES[objective.name]
    # how many texts a named data set has is seen in its rows
    if not are_named(data) and len(data.text_columns) not in counts:
        allowed = f"{counts[0]} columns" if len(counts) == 1 else f"{counts[0]} to {counts[-1]} columns"
        raise ConfigError(f"data.text_columns must name {allowed} for {objective.name!r}, got {data.text_columns}")
    if objective.name in zoo.preprocessing.text_embedder.WITH_SIMILARITIES:
        if evaluation.similarity:
            raise ConfigError(
                f"evaluation.similarity must be empty with objective {objective.name!r}, whose test data are pairs "
                f"with a similarity, got {evaluation.similarity}"
            )
    elif data.label_column != "3":
        raise ConfigError(f"data.label_column must be '3' with objective {objective.name!r}, got {data.label_column!r}")
    if (
        objective.name not in zoo.preprocessing.text_embedder.WITH_SIMILARITIES
        and not evaluation.similarity
        and data.highest != 1.0
    ):
        raise ConfigError(f"data.highest must be 1.0 where no data have a similarity, got {data.highest}")
    if len(evaluation.similarity_columns) != 3:
        raise ConfigError(f"evaluation.similarity_columns must name three, got {evaluation.similarity_columns}")
    if not evaluation.similarity or is_name(evaluation.similarity):
        beside = "with the name of a data set in" if evaluation.similarity else "without"
        if evaluation.similarity_columns != ["1", "2", "3"]:
            raise ConfigError(
                f"evaluation.similarity_columns must be '1', '2', '3' {beside} evaluation.similarity, got "
                f"{evaluation.similarity_columns}"
            )
        if are_named(data) and data.header is not None:
            raise ConfigError(f"data.header must be null with a named data set, got {shown(data.header)}")


def open_data(config: EmbedConfig, account: DataAccount | None = None) -> list[Sequence[Any]]:
    """Returns training, validation and test rows, and says what was left out."""
    data = config.data
    has_similarities = config.objective.name in zoo.preprocessing.text_embedder.WITH_SIMILARITIES
    parts = open_parts(data, source_of(data, has_similarities), account=account)
    if not has_similarities:
        for files, part in zip((data.train, data.validation, data.test), parts, strict=True):
            if len(part[0].texts) not in zoo.preprocessing.text_embedder.OBJECTIVES[config.objective.name]:
                raise DataError(
                    f"{(files or data.train)[0]} has {len(part[0].texts)} texts in a row, too few for a triplet"
                )
    return parts


def source_of(data: DataConfig, has_similarities: bool, texts: Sequence[str] = (), label: str = "") -> Source:
    """Returns how rows are read: pairs with a similarity, or groups of texts that belong together.

    Args:
        data: The group of the config.
        has_similarities: Whether they are pairs with a similarity.
        texts, label: Columns in place of those of the group.
    """
    columns = {"text_columns": texts or data.text_columns, "header": data.header}
    if not has_similarities:
        return Source(GROUPS, lambda files, bad: read_groups(files, bad, **columns))
    columns["label_column"] = label or data.label_column
    return Source(
        LABELLED,
        lambda files, bad: read_examples(files, bad, numeric=True, **columns),
        lambda pair, bad: is_in_range(pair, bad, data.highest),
    )


def open_evaluation(
    config: EmbedConfig, test: Sequence[LabelledText | TextGroup]
) -> tuple[Sequence[LabelledText], Retrieval | None]:
    """Returns test pairs with a similarity, none where there are none, and the search to do, or None."""
    data, evaluation = config.data, config.evaluation
    has_similarities = config.objective.name in zoo.preprocessing.text_embedder.WITH_SIMILARITIES
    pairs: Sequence[Any] = test if has_similarities else []
    if evaluation.similarity:
        *texts, label = evaluation.similarity_columns
        source, name = source_of(data, True, texts, label), " ".join(evaluation.similarity)
        pairs, _ = open_part(evaluation.similarity, "test", source, data.on_error)
        if pairs is None:
            pairs, _ = open_part(evaluation.similarity, "validation", source, data.on_error)
            if pairs is None:
                raise DataError(f"evaluation.similarity: {name} has neither a test nor a validation set")
            print(f"{name}: there is no test set; this is the validation set")
    retrieval = open_beir(evaluation, data.on_error)
    if retrieval is None and not has_similarities:
        retrieval = retrieval_of_groups(group.texts for group in test)
    return pairs, retrieval


def task_options(model: EmbedderConfig) -> dict[str, Any]:
    """Returns the arguments of the task that the config gives; the others are those of the model started from."""
    names = ("pooling", "prompts", "default_prompt", "training_prompts", "width")
    return {name: getattr(model, name) for name in names if getattr(model, name) is not None}


def make_loss(objective: ObjectiveConfig, whole: int) -> keras.losses.Loss:
    """Returns the loss.

    Args:
        objective: The configuration.
        whole: Width of the vectors.

    Raises:
        ConfigError: If a width is not below it.
    """
    loss: keras.losses.Loss = {
        "cosine_regression": zoo.training.CosineRegression,
        "cosent": lambda: zoo.training.CoSENT(objective.scale),
        "in_batch_negatives": lambda: zoo.training.InBatchNegatives(objective.scale, objective.symmetric),
        "triplet": lambda: zoo.training.TripletLoss(objective.margin, objective.distance),
    }[objective.name]()
    if not objective.widths:
        return loss
    if not all(0 < width < whole for width in objective.widths) or len(set(objective.widths)) < len(objective.widths):
        raise ConfigError(f"objective.widths must be different numbers from 1 to {whole - 1}, got {objective.widths}")
    return zoo.training.MatryoshkaLoss(loss, objective.widths)


def training_columns(config: EmbedConfig, rows: Sequence[Any]) -> tuple[Any, Any]:
    """Returns what the task's `fit` takes: columns of texts, and similarities or None."""
    if config.objective.name not in zoo.preprocessing.text_embedder.WITH_SIMILARITIES:
        return group_columns(rows), None
    texts, similarities = columns_of(rows)
    return texts, [similarity / config.data.highest for similarity in similarities]


def evaluate(task: Any, held_out: HeldOut) -> tuple[Evaluation, int]:
    """Returns what a model makes of data, read and measured as a run does, and how many rows were left out."""
    data = held_out.data
    config = dataclasses.replace(held_out.source or EmbedConfig(), data=data)
    has_similarities = config.objective.name in zoo.preprocessing.text_embedder.WITH_SIMILARITIES
    if not has_similarities and held_out.is_asked_for:
        # these rows are searched, not what the run was tested on
        config = dataclasses.replace(config, evaluation=EvaluationConfig())
    if not has_similarities:
        held_out.refuse("label_column", because="these models are measured by rows without similarities")
    if not has_similarities and not config.evaluation.similarity:
        held_out.refuse("highest", because="no data have a similarity")
    # which also reads the files of `evaluation.similarity`
    has_files = config.evaluation.similarity and not is_name(config.evaluation.similarity)
    describes_files = () if has_files else ("header",)
    rows, left_out = open_rows(held_out, source_of(data, has_similarities), describes_files=describes_files)
    pairs, retrieval = open_evaluation(config, rows)
    evaluation = evaluate_similarity(task, pairs) if pairs else None
    if retrieval is None:
        return evaluation, left_out
    found = evaluate_search(task, retrieval)
    # those of pairs are scores of other rows
    others = {} if evaluation is None else evaluation.scores
    return dataclasses.replace(found, others=others), left_out


main = Recipe("embed", steps, check, kinds=("TextEmbedder",), evaluate=evaluate)


if __name__ == "__main__":
    run_recipe(main, EmbedConfig, "embed")
