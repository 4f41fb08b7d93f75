"""Trains a cross-encoder that scores queries with documents, and exports it.

    python -m recipes.rerank                                  # learns which dates are in which language, in minutes
    python -m recipes.rerank --data.train a.jsonl --data.validation b.jsonl --data.text_columns query positive negatives
    python -m recipes.rerank --data.train a.tsv --data.validation b.tsv --data.label_column 3 --data.highest 3 \
        --model.problem regression

It reads query and document together and reorders what a search has found. The same command resumes an interrupted run.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, Literal

import numpy as np

import zoo
from recipes.common.config import run_recipe, setting
from recipes.common.data.account import DataAccount
from recipes.common.data.data_config import TestedDataConfig
from recipes.common.data.data_sets import Source, open_parts
from recipes.common.data.labelled_text import LABELLED, NO_LABEL, LabelledText, is_in_range, read_examples
from recipes.common.data.relevance import Pair, pairs_of_groups, with_negatives
from recipes.common.data.retrieval import (
    Retrieval,
    SearchFilesConfig,
    open_beir,
    retrieval_of_groups,
    retrieval_of_labels,
)
from recipes.common.data.text_groups import GROUPS, TextGroup, read_groups
from recipes.common.errors import BadLines, ConfigError, errors_of, shown
from recipes.common.evaluation.evaluation import Evaluation, results_of
from recipes.common.evaluation.held_out import OF_TRAINING, HeldOut, open_rows
from recipes.common.evaluation.search import curves_of, order, retrieval_metrics, search, tfidf
from recipes.common.evaluation.search_evaluations import evaluate_reranking
from recipes.common.finish import Outcome
from recipes.common.run_folder import RunFolder
from recipes.common.runner import Recipe
from recipes.common.saved_models import load_task
from recipes.common.training.encoder_recipe import (
    EncoderModelConfig,
    EncoderTokenizerConfig,
    EncoderTrainingConfig,
    train_encoder_task,
)
from recipes.common.training.fitting import prepare
from recipes.common.training.models import HeadConfig, head_options, make_or_load_task

RELEVANT = "relevant"
# ranks in the picture
_DRAWN = 20


@dataclasses.dataclass(frozen=True)
class DataConfig(TestedDataConfig):
    """Where queries and documents come from."""

    train: list[str] = setting(
        ["date_queries"], "TSV, CSV, JSON-lines (or .gz) or Parquet files, or a data set.", offers="paths"
    )
    text_columns: list[str] = setting(
        ["1", "2"],
        "Columns of the query, of the relevant document and of any irrelevant ones, as numbers from 1 or names.",
        describes_files=True,
    )
    label_column: str | None = setting(
        None, "Column of the relevance, if a row has a query and any document. null: the document of a row is relevant."
    )
    highest: float = setting(1.0, "Highest relevance. Values go from 0 to it (label_column).", above=0)
    negatives: int = setting(
        4, "Number of documents of other rows that are negatives of a query whose row has none.", least=1
    )
    negatives_from: Literal["both", "tfidf", "random"] = setting(
        "both", "Where negatives are drawn from: the 50 nearest documents by TF-IDF, all documents, or half from each."
    )
    header: bool | None = setting(
        None,
        "Whether the first row of a table names its columns. null: yes if columns are given by name.",
        describes_files=True,
    )


@dataclasses.dataclass(frozen=True)
class RerankerConfig(EncoderModelConfig, HeadConfig):
    """The architecture."""

    problem: Literal["binary", "regression"] = setting(
        "binary", "What is predicted: whether a document is relevant, or how relevant it is (label_column)."
    )


@dataclasses.dataclass(frozen=True)
class EvaluationConfig(SearchFilesConfig):
    """What is reordered: the documents that a first search finds for test queries, or those of labelled pairs."""

    first_stage: str | None = setting(None, "A saved TextEmbedder for the first search. null: TF-IDF.", offers="paths")
    candidates: int = setting(50, "Number of documents of the first search that are reordered.", least=2)


@dataclasses.dataclass(frozen=True)
class RerankConfig:
    """Trains a classifier of pairs to order documents for queries, and exports it as a SavedModel."""

    run_folder: str = setting(
        "runs/rerank", "Folder of the run. The same command resumes the run in it.", offers="paths"
    )
    data: DataConfig = DataConfig()
    tokenizer: EncoderTokenizerConfig = EncoderTokenizerConfig()
    model: RerankerConfig = RerankerConfig()
    training: EncoderTrainingConfig = EncoderTrainingConfig()
    evaluation: EvaluationConfig = EvaluationConfig()
    export: bool = setting(True, "Whether to write the SavedModel.", may_change=True)


def steps(config: RerankConfig, run: RunFolder) -> Outcome:
    """Reads the data, makes the model, trains and measures it."""
    train, validation, test = open_data(config, run.data)
    retrieval, candidates = open_evaluation(config, test)
    parts = [pairs_of(config, part) for part in (train, validation)]
    is_binary = config.model.problem == "binary"
    task = make_or_load_task(
        zoo.TextClassifier,
        config.model,
        config.tokenizer,
        run,
        lambda: (text for pair in parts[0] for text in pair[:2]),
        labels=[RELEVANT] if is_binary else 1,
        problem="multi_label" if is_binary else "regression",
        pairs=True,
        **head_options(config.model),
        truncate=True,
    )
    columns = ((texts_of(part), targets_of(part, is_binary)) for part in parts)
    train_encoder_task(task, run, config.training, *columns, metric="loss", mode="min")
    results: dict[str, Any] = {"training_pairs": len(parts[0])}
    results |= report(run, task, retrieval, candidates)
    texts = texts_of(parts[1][:3])

    def trial(served: Any) -> Iterable[tuple[Any, Any, Any]]:
        outputs = served.serve(*texts)["probabilities" if is_binary else "values"]
        return zip(zip(*texts, strict=True), np.asarray(outputs), task.predict(texts), strict=True)

    # else the test is a search of its own
    is_validation = test == validation if config.evaluation.queries is None else None
    numbers = "probability of a match" if is_binary else "relevance"
    examples = list(zip(*texts, strict=True))
    return Outcome(task, results, trial, examples, test_is_validation=is_validation, numbers=numbers)


def check(config: RerankConfig) -> None:
    """Checks keys that depend on each other, before data are read.

    Raises:
        ConfigError: If one is not used.
    """
    prepare(config)
    data, evaluation, default = config.data, config.evaluation, DataConfig()
    if data.label_column is None:
        if config.model.problem == "regression":
            raise ConfigError("model.problem must be 'binary' without data.label_column, got 'regression'")
        if data.highest != 1:
            raise ConfigError(f"data.highest must be 1.0 without data.label_column, got {data.highest}")
        if len(data.text_columns) < 2:
            raise ConfigError(f"data.text_columns must name two columns at least, got {data.text_columns}")
    elif len(data.text_columns) != 2:
        raise ConfigError(f"data.text_columns must name two columns with label_column, got {data.text_columns}")
    if data.label_column is not None or len(data.text_columns) > 2:
        for key in ("negatives", "negatives_from"):
            if getattr(data, key) != getattr(default, key):
                raise ConfigError(
                    f"data.{key} must be {shown(getattr(default, key))} where rows have documents that are not "
                    f"relevant, got {shown(getattr(data, key))}"
                )
    if data.label_column is not None and evaluation.queries is None:
        for key in ("first_stage", "candidates"):
            value, usual = getattr(evaluation, key), getattr(EvaluationConfig(), key)
            if value != usual:
                raise ConfigError(
                    f"evaluation.{key} must be {shown(usual)} where labelled pairs are reordered, got {shown(value)}"
                )


def open_data(config: RerankConfig, account: DataAccount | None = None) -> list[Sequence[Any]]:
    """Returns training, validation and test rows, and says what was left out."""
    return open_parts(config.data, source_of(config.data, config.model.problem), account=account)


def source_of(data: DataConfig, problem: str | None = None) -> Source:
    """Returns how rows are read: groups of texts, or pairs with their relevance.

    Args:
        data: The group of the config.
        problem: What is predicted; with "binary" the relevance is 0 or the highest one.
    """
    columns = {"text_columns": data.text_columns, "header": data.header}
    if data.label_column is None:
        return Source(GROUPS, lambda files, bad: read_groups(files, bad, **columns))
    columns["label_column"] = data.label_column

    def accept(pair: LabelledText, bad: BadLines) -> bool:
        if not is_in_range(pair, bad, data.highest):
            return False
        if problem == "binary" and pair.label not in (0, data.highest):
            bad.add(
                NO_LABEL, pair.origin, f"with problem 'binary' it must be 0 or {data.highest:g}, got {pair.label:g}"
            )
            return False
        return True

    return Source(LABELLED, lambda files, bad: read_examples(files, bad, numeric=True, **columns), accept)


def pairs_of(config: RerankConfig, rows: Sequence[LabelledText | TextGroup]) -> list[Pair]:
    """Returns pairs with their relevance; where rows have relevant documents only, others are drawn.

    Args:
        config: The configuration.
        rows: Labelled pairs, or groups.
    """
    if config.data.label_column is not None:
        return [Pair(*row.texts, row.label / config.data.highest) for row in rows]
    groups = [row.texts for row in rows]
    if len(groups[0]) == 2:
        groups = with_negatives(groups, config.data.negatives, config.data.negatives_from, config.training.seed)
    return pairs_of_groups(groups)


def texts_of(pairs: Sequence[Pair]) -> tuple[list[str], list[str]]:
    """Returns what the task takes."""
    return [pair.query for pair in pairs], [pair.document for pair in pairs]


def targets_of(pairs: Sequence[Pair], is_binary: bool) -> list[Any]:
    """Returns what the task learns."""
    return [[RELEVANT] if pair.relevance else [] for pair in pairs] if is_binary else [pair.relevance for pair in pairs]


def open_evaluation(
    config: RerankConfig, test: Sequence[LabelledText | TextGroup]
) -> tuple[Retrieval, dict[str, list[str]]]:
    """Returns test queries and documents, and the documents to reorder by query, in the order that they have."""
    evaluation = config.evaluation
    retrieval = open_beir(evaluation, config.data.on_error)
    if retrieval is None and config.data.label_column is not None:
        retrieval, candidates = retrieval_of_labels((*row.texts, row.label) for row in test)
        return retrieval, order(retrieval, *tfidf(retrieval.documents.values(), *retrieval.columns()), candidates)
    if retrieval is None:
        retrieval = retrieval_of_groups(group.texts for group in test)
    queries, documents = retrieval.columns()
    if evaluation.first_stage is None:
        with errors_of("evaluation.first_stage"):
            vectors = tfidf(documents, queries, documents)
    else:
        embedder = load_task(evaluation.first_stage, "TextEmbedder")
        columns = enumerate((queries, documents))
        prompts = [embedder.preprocessor.training_prompt(index) or "" for index in range(2)]
        vectors = [embedder.embed(texts, prompt=prompts[index]) for index, texts in columns]
    return retrieval, search(retrieval, *vectors, evaluation.candidates)


def report(
    run: RunFolder, task: zoo.TextClassifier, retrieval: Retrieval, candidates: Mapping[str, Sequence[str]]
) -> dict[str, Any]:
    """Returns the scores of the candidates before and after they are reordered; draws them and writes some."""
    evaluation = evaluate_reranking(task, retrieval, candidates, "test")
    ordered, most = evaluation.predictions, evaluation.counts["candidates"]
    results, curves = dict(evaluation.counts), {}
    for label, found in (("before", candidates), ("after", ordered)):
        measured = results_of(retrieval_metrics(found, retrieval.relevant, (1, most)))
        # which a new order of the same documents does not change
        results[f"recall@{most}"] = measured.pop(f"recall@{most}")
        results |= {f"{name} {label}": value for name, value in measured.items()}
        curves[label] = curves_of(found, retrieval.relevant, min(_DRAWN, most))
    labels = {"x_label": "rank", "y_label": "nDCG up to this rank", "title": "Candidates of test queries"}
    run.draw("reranking.png", zoo.inspect.plot_curves, curves, **labels)
    rows = [("query", "first before", "first after", "relevant")]
    for query in list(candidates)[:100]:
        relevant = next(iter(retrieval.relevant[query]))
        firsts = (documents[query][0] for documents in (candidates, ordered))
        fields = [retrieval.queries[query], *(retrieval.documents[name] for name in (*firsts, relevant))]
        rows.append(tuple(" ".join(field.split())[:200] for field in fields))
    run.write_rows("reranked.tsv", rows)
    return results


def evaluate(task: Any, held_out: HeldOut) -> tuple[Evaluation, int]:
    """Returns what a model makes of data, read and measured as a run does, and how many rows were left out."""
    data = held_out.data
    config = dataclasses.replace(held_out.source or RerankConfig(), data=data)
    held_out.refuse("negatives", "negatives_from", because=OF_TRAINING)
    if data.label_column is None:
        held_out.refuse("highest", because="data.label_column is null")
    if held_out.is_asked_for:
        # these rows are reordered, not what the run was tested on
        search = dataclasses.replace(config.evaluation, queries=None, corpus=None, relevance=None)
        config = dataclasses.replace(config, evaluation=search)
    if not task.preprocessor.pairs:
        raise ConfigError("recipes.rerank trains a classifier of pairs, this model takes single texts")
    rows, left_out = open_rows(held_out, source_of(data))
    return evaluate_reranking(task, *open_evaluation(config, rows)), left_out


main = Recipe("rerank", steps, check, kinds=("TextClassifier",), evaluate=evaluate)


if __name__ == "__main__":
    run_recipe(main, RerankConfig, "rerank")
