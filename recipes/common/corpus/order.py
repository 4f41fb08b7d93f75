"""The order of a training: which row of which corpus stands at each place of an endless stream.

It is a function of the place, the sizes, the weights and the seed alone, takes no memory that grows with the corpus,
and can be entered anywhere.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

_ROUNDS = 6
# places of a mixture within which each corpus has its share exactly
BLOCK = 4096


def permuted(places: np.ndarray, size: int, seed: int | Sequence[int]) -> np.ndarray:
    """Returns the places of some numbers in a permutation of the numbers below `size`.

    A Feistel network over the next power of four. A result of `size` or more goes through it again.

    Args:
        places: Numbers from 0 to `size - 1`.
        size: How many numbers are permuted, at least 1.
        seed: Which permutation, not negative.

    Example:

    >>> sorted(permuted(np.arange(5), 5, seed=3).tolist())
    [0, 1, 2, 3, 4]

    Reference:
        Luby and Rackoff 1988, "How to construct pseudorandom permutations from pseudorandom functions"; Black and
        Rogaway 2002, "Ciphers with arbitrary finite domains", section 4 (cycle walking).
    """
    half = np.uint64(max(1, ((size - 1).bit_length() + 1) // 2))
    mask = np.uint64((1 << int(half)) - 1)
    keys = np.random.SeedSequence(seed).generate_state(_ROUNDS, np.uint64)
    result = np.asarray(places).astype(np.uint64)
    inside = np.zeros(len(result), bool)
    while not inside.all():
        left, right = result[~inside] >> half, result[~inside] & mask
        for key in keys:
            left, right = right, left ^ (_mixed(right ^ key) & mask)
        result[~inside] = left << half | right
        inside = result < size
    return result.astype(np.int64)


def _mixed(numbers: np.ndarray) -> np.ndarray:
    """The finalizer of SplitMix64 (Steele, Lea and Flood 2014)."""
    numbers = (numbers ^ numbers >> np.uint64(30)) * np.uint64(0xBF58476D1CE4E5B9)
    numbers = (numbers ^ numbers >> np.uint64(27)) * np.uint64(0x94D049BB133111EB)
    return numbers ^ numbers >> np.uint64(31)


class RowOrder:
    """An endless stream of the rows of corpora, in passes with a different order each.

    Args:
        sizes: Rows of each corpus.
        weights: Share of each corpus in the stream, not necessarily with the sum 1; each is then gone through in
            passes of its own. None: they are one corpus, and a pass goes through all.
        seed: Seed of the order.

    Attributes:
        rows: Rows of a pass through all corpora, each once.

    Raises:
        ValueError: If there is not a weight above 0 for each corpus, or one is so small that it never has a turn.

    Example:

    >>> corpora, rows = RowOrder([900, 100], [1, 1]).rows_at(np.arange(64))
    """

    def __init__(self, sizes: Sequence[int], weights: Sequence[float] | None = None, seed: int = 0) -> None:
        self._sizes, self._seed, self.rows = np.array(sizes, np.int64), seed, int(sum(sizes))
        self._counts = None
        if weights is None:
            return
        if len(weights) != len(sizes) or not all(np.isfinite(weight) and weight > 0 for weight in weights):
            raise ValueError(f"weights must be {len(sizes)} numbers above 0, one for each corpus, got {list(weights)}")
        quotas = np.array(weights) / sum(weights) * BLOCK
        counts = np.floor(quotas).astype(np.int64)
        # those with the largest remainders have one more
        counts[np.argsort(counts - quotas, kind="stable")[: BLOCK - counts.sum()]] += 1
        if not counts.all():
            raise ValueError(f"weights must be at least about 1/{BLOCK} of their sum, got {list(weights)}")
        self._counts = counts

    def rows_at(self, places: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """Returns the corpus and the row that stand at places of the stream, `(places,)` each.

        Args:
            places: Numbers from 0.
        """
        places = np.asarray(places, np.int64)
        if self._counts is None:
            numbers = self._in_passes(places, self.rows, ())
            ends = np.cumsum(self._sizes)
            corpora = np.searchsorted(ends, numbers, side="right")
            return corpora, numbers - (ends - self._sizes)[corpora]
        corpora, rows = np.zeros_like(places), np.zeros_like(places)
        for block in np.unique(places // BLOCK):
            chosen = np.flatnonzero(places // BLOCK == block)
            order = np.repeat(np.arange(len(self._counts)), self._counts)
            order = np.random.default_rng((self._seed, int(block))).permutation(order)
            corpora[chosen] = order[places[chosen] % BLOCK]
            for corpus in np.unique(corpora[chosen]):
                of_corpus = chosen[corpora[chosen] == corpus]
                # how often the corpus had its turn before
                turns = block * self._counts[corpus] + (np.cumsum(order == corpus) - 1)[places[of_corpus] % BLOCK]
                rows[of_corpus] = self._in_passes(turns, int(self._sizes[corpus]), (int(corpus),))
        return corpora, rows

    def _in_passes(self, turns: np.ndarray, size: int, further: tuple[int, ...]) -> np.ndarray:
        result = np.zeros_like(turns)
        for number in np.unique(turns // size):
            chosen = turns // size == number
            result[chosen] = permuted(turns[chosen] % size, size, (self._seed, int(number), *further))
        return result
