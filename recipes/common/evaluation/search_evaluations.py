"""Evaluations of searches: what an embedder finds for queries, and how a cross-encoder orders candidates."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

import zoo
from recipes.common.data.retrieval import Retrieval
from recipes.common.errors import errors_of
from recipes.common.evaluation.evaluations import Evaluation, embedded
from recipes.common.evaluation.search import retrieval_scores, search
from recipes.common.evaluation.significance import mean_of
from recipes.common.training.windowed import count_cut

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
    names = [(query, document) for query, documents in candidates.items() for document in documents]
    texts = [retrieval.queries[query] for query, _ in names], [retrieval.documents[name] for _, name in names]
    with errors_of("data"):
        scores = dict(zip(names, task.predict(texts)[:, 0], strict=True))
    # equal scores keep their order
    ordered = {
        query: sorted(documents, key=lambda name, query=query: -scores[query, name])
        for query, documents in candidates.items()
    }
    cut = count_cut("data", task.preprocessor, texts, "candidates with their queries")
    return _evaluation(retrieval, ordered, {"candidates": max(map(len, candidates.values())), "candidates_cut": cut})


def _evaluation(retrieval: Retrieval, found: Mapping[str, Sequence[str]], scores: dict[str, Any]) -> Evaluation:
    each = [retrieval_scores({query: found[query]}, {query: grades}) for query, grades in retrieval.relevant.items()]
    rows = [
        {"query": retrieval.queries[query], "reference": [retrieval.documents[name] for name in grades]}
        for query, grades in retrieval.relevant.items()
    ]
    outputs = [[retrieval.documents[name] for name in found[query][:_SHOWN]] for query in retrieval.relevant]
    columns = {name: [row[name] for row in each] for name in each[0]}
    results = {"queries": len(rows), "documents": len(retrieval.documents), **scores}
    results.update({name: round(float(np.mean(values)), 4) for name, values in columns.items()})
    return Evaluation(rows, outputs, results, {name: mean_of(values) for name, values in columns.items()})
