"""Documents that occur several times, exactly or nearly: which of them are left out.

Exact duplicates differ in white space alone. Near duplicates share most of their sequences of five words, or of five
characters in scripts without spaces: their MinHash signatures (by the library `datasketch`) agree in as many numbers as
the threshold asks for. Pairs to compare are those that agree in a band of the signature. Of each group of duplicates
the first document stays.

Reference:
    Broder 1997, "On the resemblance and containment of documents"; Leskovec, Rajaraman and Ullman 2020, "Mining of
    massive datasets", section 3.4 (bands); Lee et al. 2022, "Deduplicating training data makes language models better".
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Sequence
from typing import Any

import numpy as np

from recipes.common.words import folded_words
from zoo.extras import import_extra

WORDS_OF_A_SHINGLE = 5
NUMBERS_OF_A_SIGNATURE = 128
# odd factors that make one number of those of a band
_FACTORS = np.random.default_rng(0).integers(1 << 63, size=NUMBERS_OF_A_SIGNATURE, dtype=np.uint64) * np.uint64(
    2
) + np.uint64(1)


def words_of(text: str) -> list[str]:
    """Returns the words by which near duplicates are found: letters and digits, without case.

    Args:
        text: The text; of one without letters and digits, what stands between white space.
    """
    return folded_words(text) or text.split()


def exact_key(text: str) -> bytes:
    """Returns a hash of 16 bytes, the same for texts that differ only in white space.

    Args:
        text: The text.
    """
    return hashlib.blake2b(" ".join(text.split()).encode("utf-8"), digest_size=16).digest()


def signature(words: Sequence[str]) -> np.ndarray:
    """Returns the MinHash signature of a text, `(128,)` uint32.

    Args:
        words: The words of the text.
    """
    datasketch = import_extra("datasketch", "corpus")
    count = max(1, len(words) - WORDS_OF_A_SHINGLE + 1)
    shingles = {" ".join(words[start : start + WORDS_OF_A_SHINGLE]) for start in range(count)}
    minhash = datasketch.MinHash(NUMBERS_OF_A_SIGNATURE, seed=1, hashfunc=_hash32)
    minhash.update_batch(sorted(shingle.encode("utf-8") for shingle in shingles))
    return minhash.hashvalues.astype(np.uint32)


def _hash32(shingle: bytes) -> int:
    return int.from_bytes(hashlib.blake2b(shingle, digest_size=4).digest(), "little")


def band_shape(threshold: float) -> tuple[int, int]:
    """Returns the number of bands, and of numbers in each, with the fewest errors at a threshold.

    Args:
        threshold: Least share of the shingles that near duplicates have in common.
    """
    lsh = import_extra("datasketch", "corpus").MinHashLSH(threshold, NUMBERS_OF_A_SIGNATURE)
    return lsh.b, lsh.r


def band_keys(signatures: np.ndarray, threshold: float) -> np.ndarray:
    """Returns a number for each band of each signature, `(bands, documents)` uint64.

    Args:
        signatures: `(documents, 128)`.
        threshold: See `band_shape`.
    """
    bands, rows = band_shape(threshold)
    parts = signatures[:, : bands * rows].reshape(len(signatures), bands, rows).astype(np.uint64)
    return (parts * _FACTORS[: bands * rows].reshape(bands, rows)).sum(axis=2, dtype=np.uint64).T.copy()


def repeated(keys: np.ndarray) -> np.ndarray:
    """Returns which documents have the key of an earlier one, `(documents,)` bool.

    Args:
        keys: 16 bytes each, as `(documents, 2)` uint64.
    """
    order = np.lexsort((keys[:, 1], keys[:, 0]))  # stable: equal keys stay in the order of the documents
    same = (keys[order[1:]] == keys[order[:-1]]).all(axis=1)
    found = np.zeros(len(keys), bool)
    found[order[1:]] = same
    return found


def similar_pairs(keys: np.ndarray, signatures: Any, threshold: float) -> np.ndarray:
    """Returns near duplicates among the documents that agree in a band, `(pairs, 2)`: numbers of documents.

    In a group of equal keys, each document is compared with the first. Those unlike it are compared in the same way.

    Args:
        keys: A number for each document, `(documents,)`.
        signatures: Gives the signatures of documents by `signatures[numbers]`.
        threshold: Least share of equal numbers in the signatures.
    """
    order = np.argsort(keys, kind="stable")
    ends = np.flatnonzero(np.append(keys[order[1:]] != keys[order[:-1]], True)) + 1 if len(keys) else np.zeros(0, int)
    starts = np.concatenate([[0], ends[:-1]])
    pairs = []
    for start, end in zip(starts[ends - starts > 1], ends[ends - starts > 1], strict=True):
        group = order[start:end]
        found = signatures[group]
        while len(group) > 1:
            alike = (found[1:] == found[0]).mean(axis=1) >= threshold
            pairs += [(group[0], other) for other in group[1:][alike]]
            group, found = group[1:][~alike], found[1:][~alike]
    return np.array(pairs, np.int64).reshape(-1, 2)


def later_of_groups(pairs: Iterable[np.ndarray]) -> np.ndarray:
    """Returns the documents that are left out: of documents that pairs connect, all but the first; in their order.

    Args:
        pairs: Arrays `(pairs, 2)`.
    """
    from scipy.sparse import coo_array
    from scipy.sparse.csgraph import connected_components

    joined = np.concatenate([np.zeros((0, 2), np.int64), *pairs])
    documents, places = np.unique(joined, return_inverse=True)
    places = places.reshape(-1, 2)
    edges = coo_array((np.ones(len(places), bool), (places[:, 0], places[:, 1])), (len(documents),) * 2)
    groups = connected_components(edges, directed=False)[1] if len(documents) else np.zeros(0, int)
    # the first of a group is the one with the lowest number
    firsts = documents[np.unique(groups, return_index=True)[1]]
    return np.setdiff1d(documents, firsts)
