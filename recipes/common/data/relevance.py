"""Pairs of a query and a document with their relevance, to train a cross-encoder on; drawn negatives."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import NamedTuple

import numpy as np

from recipes.common.data.retrieval import retrieval_of_groups
from recipes.common.evaluation.search import search, tfidf

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
    """Returns groups, each followed by documents of other rows that are not relevant to its query.

    Args:
        groups: Query and relevant document of each.
        count: How many documents; fewer where there are not as many.
        source: "tfidf" for those among the 50 nearest, "random" for any, "both" for the former and the latter in turn.
        seed: Seed of what is drawn.
    """
    retrieval, generator = retrieval_of_groups(groups), np.random.default_rng(seed)
    documents, names = list(retrieval.documents), {text: name for name, text in retrieval.queries.items()}
    near: Mapping[str, Sequence[str]] = {}
    if source != "random":
        near = search(retrieval, *tfidf(retrieval.documents.values(), *retrieval.columns()), _NEAREST)
    result = []
    for query, document in groups:
        name = names.get(query)
        pools = [] if source == "random" else [near.get(name, [])]
        pools += [] if source == "tfidf" else [documents]
        excluded, drawn = {name, *retrieval.relevant.get(name, ())}, []
        # enough for those that are excluded, and for what the other pool has too
        most = 2 * count + len(excluded)
        orders = [iter(generator.choice(len(pool), min(most, len(pool)), replace=False)) for pool in pools]
        while len(drawn) < count and orders:
            # one of each pool in turn, until all are used up
            place = len(drawn) % len(orders)
            index = next(orders[place], None)
            if index is None:
                del orders[place], pools[place]
            elif pools[place][index] not in excluded:
                excluded.add(pools[place][index])
                drawn.append(retrieval.documents[pools[place][index]])
        result.append((query, document, *drawn))
    return result
