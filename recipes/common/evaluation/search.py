"""Search among documents by vectors or by words, and scores of what it finds."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import numpy as np

from recipes.common.data.retrieval import Retrieval
from recipes.common.evaluation.evaluation import Metric, mean_of
from recipes.common.training.windowed import count_cut
from recipes.common.words import terms_of

# queries whose scores of all documents are held at once
_AT_ONCE = 256


def search(retrieval: Retrieval, query_vectors: Any, document_vectors: Any, most: int = 100) -> dict[str, list[str]]:
    """Returns the documents with the highest products of vectors for each query, best first.

    A document with the id of the query is left out: it is the query itself.

    Args:
        retrieval: Queries and documents.
        query_vectors: One row for each query, an array or a sparse matrix.
        document_vectors: Likewise for documents.
        most: Most documents of a query.

    Returns:
        Ids of documents by the query's.
    """
    names, documents = list(retrieval.queries), list(retrieval.documents)
    places = {name: place for place, name in enumerate(documents)}
    found = {}
    for start in range(0, len(names), _AT_ONCE):
        scores = query_vectors[start : start + _AT_ONCE] @ document_vectors.T
        scores = scores.toarray() if hasattr(scores, "toarray") else np.asarray(scores)
        for name, row in zip(names[start : start + _AT_ONCE], scores, strict=True):
            if name in places:
                row[places[name]] = -np.inf
            kept = min(most, len(documents))
            best = np.argpartition(-row, kept - 1)[:kept] if kept < len(row) else np.arange(len(row))
            # equal scores in the order of the corpus
            best = best[np.lexsort((best, -row[best]))]
            found[name] = [documents[place] for place in best if row[place] > -np.inf]
    return found


def order(
    retrieval: Retrieval, query_vectors: Any, document_vectors: Any, candidates: Mapping[str, Sequence[str]]
) -> dict[str, list[str]]:
    """Returns the candidates of each query by the products of their vectors, best first.

    Args:
        retrieval, query_vectors, document_vectors: See `search`.
        candidates: Ids of documents by the query's.
    """
    places = {name: place for place, name in enumerate(retrieval.documents)}
    ordered = {}
    for place, query in enumerate(retrieval.queries):
        rows = document_vectors[[places[name] for name in candidates[query]]]
        products = rows @ query_vectors[[place]].T
        products = products.toarray() if hasattr(products, "toarray") else np.asarray(products)
        best = np.argsort(-products[:, 0], kind="stable")
        ordered[query] = [candidates[query][index] for index in best]
    return ordered


def tfidf(fitted: Iterable[str], *columns: Sequence[str]) -> list[Any]:
    """Returns vectors of length 1 of the terms of texts, weighted by TF-IDF, sparse `(texts, terms)`.

    Terms are words; in scripts without spaces, characters and pairs of them.

    Args:
        fitted: The texts whose terms are counted.
        *columns: Lists of texts.

    Raises:
        ValueError: If there is no word in them.

    Reference:
        scikit-learn.
    """
    from sklearn.feature_extraction.text import TfidfVectorizer

    vectorizer = TfidfVectorizer(analyzer=terms_of, sublinear_tf=True).fit(fitted)
    return [vectorizer.transform(column) for column in columns]


def tfidf_search(retrieval: Retrieval, most: int = 100) -> dict[str, list[str]]:
    """Returns what a search by TF-IDF finds; see `search` and `tfidf`."""
    documents = list(retrieval.documents.values())
    return search(retrieval, *tfidf(documents, list(retrieval.queries.values()), documents), most)


def retrieval_metrics(
    found: Mapping[str, Sequence[str]], relevant: Mapping[str, Mapping[str, float]], recall_at: Sequence[int] = (1, 10)
) -> dict[str, Metric]:
    """Returns nDCG@10, MRR@10 and the recall of documents that were found, means over queries.

    nDCG divides the grade of the document at rank r by log2(r + 1), and the sum by that of the best order of all
    relevant documents. MRR is the inverse rank of the first relevant document, 0 beyond rank 10. Recall@k is the
    fraction of the relevant documents that are among the first k.

    Args:
        found: Ids of documents by the query's, best first.
        relevant: Grades above 0 of the relevant ones. Queries are rows in its order.
        recall_at: The k of recall.

    Reference:
        Järvelin and Kekäläinen 2002, "Cumulated gain-based evaluation of IR techniques" (nDCG, with the discount of
        trec_eval); Thakur et al. 2021, "BEIR", section 3.4.

    Example:

    >>> retrieval_metrics({"q": ["a", "b"]}, {"q": {"b": 1.0}})["mrr@10"].value
    0.5
    """
    rows = []
    for query, grades in relevant.items():
        ranked = [grades.get(document, 0.0) for document in found[query]]
        first = next((rank for rank, grade in enumerate(ranked[:10], 1) if grade), math.inf)
        recalls = [sum(grade > 0 for grade in ranked[:k]) / len(grades) for k in recall_at]
        rows.append([ndcg(ranked, grades.values(), 10), 1 / first, *recalls])
    names = ["ndcg@10", "mrr@10", *(f"recall@{k}" for k in recall_at)]
    return {name: mean_of(column) for name, column in zip(names, zip(*rows, strict=True), strict=True)}


def reordered(
    task: Any, retrieval: Retrieval, candidates: Mapping[str, Sequence[str]], part: str = "test"
) -> tuple[dict[str, list[str]], int]:
    """Returns the candidates of each query by the scores of a cross-encoder, best first, and how many are cut.

    Args:
        task: A classifier of pairs.
        retrieval: Queries and documents.
        candidates: Ids of documents by the query's. Equal scores keep their order.
        part: The part of the data, for what is printed.
    """
    names = [(query, document) for query, documents in candidates.items() for document in documents]
    texts = [retrieval.queries[query] for query, _ in names], [retrieval.documents[name] for _, name in names]
    scores = dict(zip(names, task.predict(texts)[:, 0], strict=True))
    ordered = {
        query: sorted(documents, key=lambda name, query=query: -scores[query, name])
        for query, documents in candidates.items()
    }
    # of a document that is a candidate of several queries each time counts
    return ordered, count_cut(part, task.preprocessor, texts, "candidates with their queries")


def ndcg(ranked: Sequence[float], grades: Iterable[float], most: int) -> float:
    """Returns the normalized discounted cumulated gain of one query; see `retrieval_metrics`.

    Args:
        ranked: Grades of the documents that were found, best first.
        grades: Grades of all relevant documents, one above 0 at least.
        most: Ranks that count.
    """

    def gain(values: Sequence[float]) -> float:
        return sum(value / math.log2(rank + 1) for rank, value in enumerate(values[:most], 1))

    return gain(ranked) / gain(sorted(grades, reverse=True))


def curves_of(
    found: Mapping[str, Sequence[str]], relevant: Mapping[str, Mapping[str, float]], most: int
) -> tuple[range, list[float]]:
    """Returns ranks from 1 and the nDCG at each, as `zoo.inspect.plot_curves` draws them.

    Args:
        found, relevant: See `retrieval_metrics`.
        most: The last rank.
    """
    ranks = range(1, most + 1)
    rows = [
        ([grades.get(document, 0.0) for document in found[query]], grades.values())
        for query, grades in relevant.items()
    ]
    return ranks, [float(np.mean([ndcg(*row, rank) for row in rows])) for rank in ranks]
