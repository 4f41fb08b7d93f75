"""Pairs of a query and a document with their relevance, to train a cross-encoder on; drawn negatives."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import NamedTuple

import numpy as np

from recipes.common.retrieval import retrieval_of_groups
from recipes.common.search import search, tfidf

# documents that negatives are drawn from
_NEAREST = 50


class Pair(NamedTuple):
    """A query, a document, and how relevant it is, from 0 to 1."""

    query: str
    document: str
    relevance: float


def pairs_of_groups(groups: Iterable[Sequence[str]]) -> list[Pair]:
    """Returns the different pairs of groups: a query with its relevant document has 1, with others 0.

    Args:
        groups: Query, relevant document and others of each.

    Example:

    >>> [pair.relevance for pair in pairs_of_groups([("where is rome", "in Italy", "in Spain")])]
    [1.0, 0.0]
    """
    groups = list(groups)
    pairs = {(query, relevant): 1.0 for query, relevant, *_ in groups}
    for query, _, *others in groups:
        for other in others:
            pairs.setdefault((query, other), 0.0)
    return [Pair(*texts, relevance) for texts, relevance in pairs.items()]


def with_negatives(groups: Sequence[Sequence[str]], count: int, source: str, seed: int) -> list[tuple[str, ...]]:
    """Returns groups with documents of other rows that are not relevant to their query behind them.

    Args:
        groups: Query and relevant document of each.
        count: How many documents; fewer where there are not as many.
        source: "tfidf" for those among the 50 nearest, "random" for any.
        seed: Seed of what is drawn.
    """
    retrieval, generator = retrieval_of_groups(groups), np.random.default_rng(seed)
    documents = list(retrieval.documents)
    near: Mapping[str, Sequence[str]] = {}
    if source == "tfidf":
        vectors = tfidf(retrieval.documents.values(), *retrieval.columns())
        near = search(retrieval, *vectors, _NEAREST)
    names = {text: name for name, text in retrieval.queries.items()}
    result = []
    for query, document in groups:
        name = names.get(query)
        relevant = retrieval.relevant.get(name, {})
        pool = near[name] if name in near else documents
        pool = [other for other in pool if other not in relevant and other != name]
        drawn = generator.permutation(len(pool))[:count]
        result.append((query, document, *(retrieval.documents[pool[index]] for index in drawn)))
    return result
