"""Which tokens byte pair encoding can reach, and when."""

from __future__ import annotations

import heapq
import itertools
from collections.abc import Collection, Mapping, Sequence

from zoo.storage import quote

Pair = tuple[str, str]
# what is merged in seconds; published merges come after those that make their parts, but for a few
_MOST_CHARACTERS = 500_000


def merge_scores(vocabulary: Collection[str], merges: Sequence[Pair]) -> dict[str, int]:
    """Finds the tokens that merging can reach, and the rank of the merge that completes each.

    Merging a text takes, again and again, the pair of neighbours with the lowest rank, the leftmost of several. What
    happens between two borders that stay does not depend on what is around them. So a token can come up in a text only
    by the last step of merging its own characters; only tokens whose own characters merge to them need a score, the
    rank of that step. A merger that looks only at the joined text of two neighbours, as SentencePiece does, then makes
    the same choices as one that looks at the pair.

    Args:
        vocabulary: All tokens.
        merges: Pairs by rank.

    Returns:
        Rank of the last merge of each token that is reached by merging.

    Raises:
        ValueError: A merge names a token that is not in the vocabulary.
    """
    ranks: dict[Pair, int] = {}
    for number, pair in enumerate(merges):
        for token in (*pair, "".join(pair)):
            if token not in vocabulary:
                raise ValueError(f"merges[{number}]={quote(pair)}: the token {quote(token)} is not in the vocabulary.")
        ranks.setdefault(pair, len(ranks))
    scores: dict[str, int] = {}
    parents: dict[str, Pair] = {}
    undecided = {}  # in the order of the ranks
    for pair, rank in ranks.items():
        token = pair[0] + pair[1]
        if token in scores:
            continue
        if not all(len(part) == 1 or part in scores for part in pair):
            undecided[token] = True  # a part is completed later than this merge, or never
        elif _stays_apart(pair, rank, ranks, scores, parents):
            scores[token], parents[token] = rank, pair
    undecided = [token for token in undecided if token not in scores]
    if (size := sum(map(len, undecided))) > _MOST_CHARACTERS:
        raise ValueError(
            f"merges must come after those that make their parts, but for tokens of {_MOST_CHARACTERS} characters in "
            f"all, got {size}; the first is {quote(undecided[0])}."
        )
    for token in undecided:
        if (rank := _last_merge(token, ranks)) is not None:
            scores[token] = rank
    return scores


def _stays_apart(
    pair: Pair, limit: int, ranks: Mapping[Pair, int], scores: Mapping[str, int], parents: Mapping[str, Pair]
) -> bool:
    """Whether merging the characters of both parts completes each before any merge across the border between them.

    The symbol at the left of the border grows along the right edge of the left part's tree, the other along the left
    edge of the right part's. Each pair that they form on their way must have a rank that comes after the next change of
    one of the two; the left of two overlapping equal pairs comes first.
    """
    left, right = _edge(pair[0], 1, parents), _edge(pair[1], 0, parents)
    i = j = 0
    while True:
        next_left = scores[left[i + 1]] if i + 1 < len(left) else limit
        next_right = scores[right[j + 1]] if j + 1 < len(right) else limit
        across = ranks.get((left[i], right[j]), limit)
        if across < next_left and across <= next_right and across < limit:
            return False
        if next_left == next_right == limit:
            return True
        if next_left <= next_right:
            i += 1
        else:
            j += 1


def _edge(token: str, side: int, parents: Mapping[str, Pair]) -> list[str]:
    """The symbols at one side of a token while it is merged, from the character to the token."""
    symbols = [token]
    while token in parents:
        token = parents[token][side]
        symbols.append(token)
    return symbols[::-1]


def _last_merge(token: str, ranks: Mapping[Pair, int]) -> int | None:
    """Merges the characters of a token. Returns the rank of the last merge; `None` if the result is not the token."""
    symbols: list[str | None] = list(token)
    count = len(symbols)
    before, after = list(range(-1, count - 1)), list(range(1, count + 1))
    # of equal ranks the leftmost comes first
    waiting = [(ranks[pair], place) for place, pair in enumerate(itertools.pairwise(token)) if pair in ranks]
    heapq.heapify(waiting)
    last, left = None, count
    while waiting:
        rank, place = heapq.heappop(waiting)
        neighbour = after[place]
        if symbols[place] is None or neighbour == count:
            continue
        if ranks.get((symbols[place], symbols[neighbour])) != rank:
            continue  # one of them has grown
        symbols[place] += symbols[neighbour]
        symbols[neighbour] = None
        after[place] = after[neighbour]
        if after[place] < count:
            before[after[place]] = place
        last, left = rank, left - 1
        for first in (before[place], place):
            if first >= 0 and after[first] < count:
                pair = (symbols[first], symbols[after[first]])
                if pair in ranks:
                    heapq.heappush(waiting, (ranks[pair], first))
    return last if left == 1 else None
