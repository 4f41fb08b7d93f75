"""What embedders and cross-encoders make of test data: cosines beside similarities, search, candidates reordered."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import numpy as np

import zoo
from recipes.common.charts import plot_agreement, title_of
from recipes.common.data.labelled_text import LabelledText, columns_of
from recipes.common.data.retrieval import Retrieval
from recipes.common.errors import DataError, errors_of
from recipes.common.evaluation.evaluation import Evaluation, Metric, correlation_of
from recipes.common.evaluation.evaluations import rows_of
from recipes.common.evaluation.label_metrics import label_metrics
from recipes.common.evaluation.search import curves_of, reordered, retrieval_metrics, search, tfidf, tfidf_search
from recipes.common.run_folder import RunFolder
from recipes.common.training.windowed import count_cut

# documents of a query whose recall is reported, documents that are shown, and ranks that are drawn
_RECALL_AT, _SHOWN, _DRAWN = (1, 10, 100), 3, 20


def evaluate_similarity(
    task: zoo.TextEmbedder, examples: Sequence[LabelledText], *, highest: float | None = None, part: str = "data"
) -> Evaluation:
    """Returns the correlations of cosine similarities with right ones.

    Args:
        task: The model.
        examples: Pairs of texts with their similarity, on any scale.
        highest: The similarity of equal texts, where cosines are to be the similarities, and not only in their order:
            then their error is among the metrics.
        part: The part of the data, for what is printed.

    Returns:
        The evaluation; its predictions are the cosines.
    """
    columns, _ = columns_of(examples)
    if not isinstance(columns, tuple):
        raise DataError("data.text_columns must name 2 for a TextEmbedder, the data have 1")
    with errors_of("data"):
        cosines, metrics = _similarity(task, examples, highest)
    counts = {
        "pairs": len(examples),
        "texts_cut": sum(_count_cut(task, columns, part, ("first texts", "second texts"))),
    }
    return Evaluation(rows_of(examples), cosines.round(4).tolist(), counts, metrics, predictions=cosines)


def _similarity(
    task: zoo.TextEmbedder, examples: Sequence[LabelledText], highest: float | None, width: int | None = None
) -> tuple[np.ndarray, dict[str, Metric]]:
    """Cosines of vectors of a width, and how they agree with the similarities."""
    columns, truth = columns_of(examples)
    cosines = np.sum(np.multiply(*_embedded(task, columns, width)), axis=1)
    metrics = label_metrics(truth, cosines * (highest or 1.0), "regression")
    if highest is None:
        del metrics["mean_absolute_error"]
    return cosines, metrics


def evaluate_search(task: zoo.TextEmbedder, retrieval: Retrieval, part: str = "data") -> Evaluation:
    """Returns nDCG@10, MRR@10 and recall of a search by vectors.

    Args:
        task: The model.
        retrieval: Queries, documents and which are relevant.
        part: The part of the data, for what is printed.

    Returns:
        The evaluation; its predictions are the documents that were found, by query.
    """
    columns, names = retrieval.columns(), ("queries", "documents")
    with errors_of("data"):
        found = search(retrieval, *_embedded(task, columns), max(_RECALL_AT))
    cut = dict(zip([f"{name}_cut" for name in names], _count_cut(task, columns, part, names), strict=True))
    return _of_search(retrieval, found, cut, _RECALL_AT)


def evaluate_reranking(
    task: zoo.TextClassifier, retrieval: Retrieval, candidates: Mapping[str, Sequence[str]], part: str = "data"
) -> Evaluation:
    """Returns nDCG@10, MRR@10 and recall of candidates that a classifier of pairs has ordered.

    Args:
        task: The model.
        retrieval: Queries, documents and which are relevant.
        candidates: Ids of documents by the query's.
        part: The part of the data, for what is printed.

    Returns:
        The evaluation; its predictions are the candidates in their new order, by query.
    """
    with errors_of("data"):
        ordered, cut = reordered(task, retrieval, candidates, part)
    counts = {"candidates": max(map(len, candidates.values())), "candidates_cut": cut}
    return _of_search(retrieval, ordered, counts, (1, 10))


def _of_search(
    retrieval: Retrieval, found: Mapping[str, Sequence[str]], counts: Mapping[str, int], recall_at: Sequence[int]
) -> Evaluation:
    rows = [
        {"query": retrieval.queries[query], "reference": [retrieval.documents[name] for name in grades]}
        for query, grades in retrieval.relevant.items()
    ]
    return Evaluation(
        rows,
        [[retrieval.documents[name] for name in found[query][:_SHOWN]] for query in retrieval.relevant],
        {"queries": len(rows), "documents": len(retrieval.documents), **counts},
        retrieval_metrics(found, retrieval.relevant, recall_at),
        predictions=found,
    )


def _embedded(task: zoo.TextEmbedder, columns: Sequence[Sequence[str]], width: int | None = None) -> list[np.ndarray]:
    """Vectors of length 1 of the first and the second texts of rows, with the prompts of training; None: own width."""
    prompts = _prompts_of(task, columns)
    vectors = [task.embed(texts, prompt=prompt, width=width) for texts, prompt in zip(columns, prompts, strict=True)]
    return [each / np.maximum(np.linalg.norm(each, axis=1, keepdims=True), 1e-12) for each in vectors]


def _prompts_of(task: zoo.TextEmbedder, columns: Sequence[Any]) -> list[str]:
    """The prompt of training of each column of texts, "" for none."""
    return [task.preprocessor.training_prompt(index) or "" for index in range(len(columns))]


def _count_cut(task: zoo.TextEmbedder, columns: Sequence[Sequence[str]], part: str, names: Sequence[str]) -> list[int]:
    """How many texts of each column are longer than the embedder takes, with their prompt; says so."""
    preprocessors = map(task.preprocessor.with_prompt, _prompts_of(task, columns))
    return [count_cut(part, *each) for each in zip(preprocessors, columns, names, strict=True)]


class EmbeddingScores:
    """Measures a trained embedder, also by the first entries of its vectors. Vectors are compared by their cosine.

    Args:
        task: The embedder.
        run: The run folder, which gets the pictures.
        widths: Widths of vectors that are measured besides that of the embedder and the whole; none for that of the
            embedder alone.

    Example:

    >>> EmbeddingScores(task, run, [64]).of_search(retrieval)["ndcg@10, width 64"]
    0.52
    """

    def __init__(self, task: zoo.TextEmbedder, run: RunFolder, widths: Sequence[int] = ()) -> None:
        self._task, self._run = task, run
        self._own = task.default_width or task.width
        self._others = sorted({*widths, task.width} - {self._own}, reverse=True) if widths else []

    def of_pairs(
        self, pairs: Sequence[LabelledText], highest: float = 1.0, *, exact: bool = False, is_validation: bool = False
    ) -> dict[str, Any]:
        """Returns how cosines agree with similarities; draws it, and how it depends on the width.

        Args:
            pairs: Pairs of texts with a similarity.
            highest: The similarity of equal texts.
            exact: Whether cosines are to be the similarities, not only in their order.
            is_validation: Whether they are the validation data.
        """
        scale = highest if exact else None
        evaluation = evaluate_similarity(self._task, pairs, highest=scale, part="test")
        results, curve = evaluation.results(), {self._own: evaluation.values["spearman"]}
        for width in self._others:
            _, metrics = _similarity(self._task, pairs, scale, width)
            results |= _with_suffix(metrics, f"width {width}")
            curve[width] = metrics["spearman"].result
        given, title = evaluation.predictions * highest, title_of("pairs", is_validation)
        self._run.draw("agreement.png", plot_agreement, [pair.label for pair in pairs], given, title=title)
        if self._others and None not in curve.values():
            labels = {"x_label": "width", "y_label": "Spearman correlation", "title": "First entries of the vectors"}
            points = (sorted(curve), [curve[width] for width in sorted(curve)])
            self._run.draw("widths.png", zoo.inspect.plot_curves, {"test pairs": points}, **labels)
        return results

    def of_search(self, retrieval: Retrieval, *, baseline: bool = True) -> dict[str, Any]:
        """Returns the scores of a search for the documents of queries; draws them.

        Args:
            retrieval: Queries, documents and which are relevant.
            baseline: Whether there are those of a search by TF-IDF too.
        """
        evaluation = evaluate_search(self._task, retrieval, "test")
        results, found = evaluation.scores, {f"width {self._own}": evaluation.predictions}
        for width in self._others:
            vectors = _embedded(self._task, retrieval.columns(), width)
            found[f"width {width}"] = search(retrieval, *vectors, max(_RECALL_AT))
        if baseline:
            try:
                found["TF-IDF"] = tfidf_search(retrieval, max(_RECALL_AT))
            except ValueError as error:
                # texts without words, for example
                print(f"TF-IDF is left out: {error}")
        for name, documents in list(found.items())[1:]:
            results |= _with_suffix(retrieval_metrics(documents, retrieval.relevant, _RECALL_AT), name)
        ranks = min(_DRAWN, len(retrieval.documents))
        curves = {name: curves_of(documents, retrieval.relevant, ranks) for name, documents in found.items()}
        labels = {"x_label": "rank", "y_label": "nDCG up to this rank", "title": "Search, test queries"}
        self._run.draw("search.png", zoo.inspect.plot_curves, curves, **labels)
        return results


def _with_suffix(metrics: Mapping[str, Metric], suffix: str) -> dict[str, Any]:
    return {f"{name}, {suffix}": metric.result for name, metric in metrics.items()}


def similarity_baseline(pairs: Sequence[LabelledText], fitted: Iterable[str]) -> dict[str, Any]:
    """Returns the correlation of the cosines of TF-IDF vectors with the similarities of pairs.

    Args:
        pairs: Pairs of texts with a similarity.
        fitted: The texts whose words are counted.
    """
    texts, truth = columns_of(pairs)
    try:
        first, second = tfidf(fitted, *texts)
    except ValueError as error:
        print(f"TF-IDF is left out: {error}")
        return {}
    cosines = np.asarray(first.multiply(second).sum(axis=1)).ravel()
    return {"spearman, TF-IDF": correlation_of(truth, cosines, ranks=True).result}
