import hashlib
import itertools

import numpy as np
import pytest

pytest.importorskip("datasketch", reason="the extra 'corpus' is not installed")

from recipes.common.corpus import duplicates  # noqa: E402


def shingles(text):
    words = text.lower().split()
    return {tuple(words[start : start + 5]) for start in range(max(1, len(words) - 4))}


def jaccard(first, second):
    return len(shingles(first) & shingles(second)) / len(shingles(first) | shingles(second))


def texts_like(base, generator, changes):
    words = base.split()
    for place in generator.choice(len(words), changes, replace=False):
        words[place] = f"new{generator.integers(10**6)}"
    return " ".join(words)


def test_signatures_estimate_the_share_of_common_shingles():
    """The standard error of 128 numbers is at most 0.045."""
    generator = np.random.default_rng(0)
    base = " ".join(f"w{number}" for number in generator.integers(1000, size=200))
    for changes in (0, 1, 5, 20, 100):
        other = texts_like(base, generator, changes)
        first, second = (duplicates.signature(duplicates.words_of(text)) for text in (base, other))
        assert (first == second).mean() == pytest.approx(jaccard(base, other), abs=0.15)


def test_near_duplicates_are_those_of_all_pairs():
    generator = np.random.default_rng(1)
    texts = []
    for _ in range(12):
        base = " ".join(f"w{number}" for number in generator.integers(5000, size=150))
        # the same, nearly the same, and less than half the same
        texts += [base, texts_like(base, generator, 1), texts_like(base, generator, 40)]
    order = generator.permutation(len(texts))
    texts = [texts[place] for place in order]
    signatures = np.stack([duplicates.signature(duplicates.words_of(text)) for text in texts])
    keys = duplicates.band_keys(signatures, 0.8)
    pairs = [duplicates.similar_pairs(band, signatures, 0.8) for band in keys]
    found = duplicates.later_of_groups(pairs)
    alike = [(a, b) for a, b in itertools.combinations(range(len(texts)), 2) if jaccard(texts[a], texts[b]) > 0.8]
    assert len(alike) == 12
    np.testing.assert_array_equal(found, sorted(later for _, later in alike))


def test_groups_of_equal_bands_are_compared_with_each_other():
    """Documents unlike the first of a band may be like each other."""
    signatures = np.array([[1] * 128, [2] * 128, [2] * 127 + [9], [1] * 128], np.uint32)
    pairs = duplicates.similar_pairs(np.zeros(4, np.uint64), signatures, 0.9)
    assert sorted(map(tuple, pairs.tolist())) == [(0, 3), (1, 2)]
    assert duplicates.similar_pairs(np.arange(4, dtype=np.uint64), signatures, 0.9).shape == (0, 2)
    assert duplicates.similar_pairs(np.zeros(0, np.uint64), signatures, 0.9).shape == (0, 2)


def test_the_first_of_each_group_stays():
    pairs = [np.array([[5, 3], [3, 8]]), np.array([[1, 9], [8, 5]])]
    np.testing.assert_array_equal(duplicates.later_of_groups(pairs), [5, 8, 9])
    assert len(duplicates.later_of_groups([])) == 0


def test_exact_keys():
    texts = ["a b", "a  b", "A b", "a b\n", "c", "a b!"]
    keys = np.frombuffer(b"".join(map(duplicates.exact_key, texts)), np.uint64).reshape(-1, 2)
    np.testing.assert_array_equal(duplicates.repeated(keys), [False, True, False, True, False, False])
    assert duplicates.exact_key("a b") == hashlib.blake2b(b"a b", digest_size=16).digest()
    assert duplicates.repeated(keys[:0]).shape == (0,)


def test_texts_without_words():
    """Those without a letter or digit are alike where their signs are."""
    texts = ["!!! ??? ... --- +++ === ***", "\U0001f600 \U0001f601", "!!! ??? ... --- +++ === ***"]
    found = [duplicates.signature(duplicates.words_of(text)) for text in texts]
    assert (found[0] == found[2]).all() and (found[0] == found[1]).mean() < 0.3


@pytest.mark.parametrize("letters", ["\u4e00\u9fa5", "\u0e01\u0e2e", "\u0410\u042f"])
def test_one_edit_leaves_a_near_duplicate_in_every_script(letters):
    """In scripts without spaces a clause is no word, so that one wrong character is no other text."""
    generator = np.random.default_rng(0)
    first, last = map(ord, letters)
    characters = [chr(number) for number in generator.integers(first, last, 240)]
    has_spaces = letters[0] == "\u0410"

    def written(characters):
        words = [f"{character}\u043a\u043e" for character in characters] if has_spaces else characters
        between = [("," if number % 12 == 11 else "") + " " * has_spaces for number in range(len(words))]
        return "".join(map(str.__add__, words, between))

    edited = [*characters[:100], chr(first), *characters[101:]]
    found, other = (duplicates.signature(duplicates.words_of(written(each))) for each in (characters, edited))
    # 5 of 236 sequences differ: 231 of 241 are common
    assert (found == other).mean() == pytest.approx(231 / 241, abs=0.07)
