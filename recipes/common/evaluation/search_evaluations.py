"""Evaluations of searches: what an embedder finds for queries, and how a cross-encoder orders candidates."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import zoo
from recipes.common.data.retrieval import Retrieval
from recipes.common.errors import errors_of
from recipes.common.evaluation.evaluations import Evaluation, embedded
from recipes.common.evaluation.search import reordered, retrieval_scores, scores_of_each, search
from recipes.common.evaluation.significance import mean_of

# documents that are searched for, and that are shown
_MOST, _SHOWN = 10, 3


def evaluate_search(task: zoo.TextEmbedder, retrieval: Retrieval) -> Evaluation:
    """Returns nDCG@10, MRR@10 and recall of a search by vectors.

    Args:
        task: The model.
        retrieval: Queries, documents and which are relevant.
    """
    with errors_of("data"):
        vectors = embedded(task, retrieval.columns())
    return _evaluation(retrieval, search(retrieval, *vectors, _MOST), {})


def evaluate_reranking(
    task: zoo.TextClassifier, retrieval: Retrieval, candidates: Mapping[str, Sequence[str]]
) -> Evaluation:
    """Returns nDCG@10, MRR@10 and recall@1 of candidates that a classifier of pairs has ordered.

    Args:
        task: The model.
        retrieval: Queries, documents and which are relevant.
        candidates: Ids of documents by the query's.
    """
    with errors_of("data"):
        ordered, cut = reordered(task, retrieval, candidates, "data")
    return _evaluation(retrieval, ordered, {"candidates": max(map(len, candidates.values())), "candidates_cut": cut})


def _evaluation(retrieval: Retrieval, found: Mapping[str, Sequence[str]], scores: dict[str, Any]) -> Evaluation:
    columns = scores_of_each(found, retrieval.relevant)
    rows = [
        {"query": retrieval.queries[query], "reference": [retrieval.documents[name] for name in grades]}
        for query, grades in retrieval.relevant.items()
    ]
    outputs = [[retrieval.documents[name] for name in found[query][:_SHOWN]] for query in retrieval.relevant]
    results = {"queries": len(rows), "documents": len(retrieval.documents), **scores}
    results |= retrieval_scores(found, retrieval.relevant)
    return Evaluation(rows, outputs, results, {name: mean_of(values) for name, values in columns.items()})
