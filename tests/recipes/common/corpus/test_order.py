import numpy as np
import pytest

from recipes.common.corpus.order import BLOCK, RowOrder, permuted


@pytest.mark.parametrize("size", [1, 2, 3, 4, 5, 63, 64, 65, 1000, 4097])
def test_every_number_once(size):
    first, second = (permuted(np.arange(size), size, seed) for seed in (1, 2))
    np.testing.assert_array_equal(np.sort(first), np.arange(size))
    np.testing.assert_array_equal(permuted(np.array([size - 1, 0]), size, 1), first[[-1, 0]])
    assert size < 60 or (first != second).any()


def test_order_looks_random():
    """Against what is known of uniform permutations: mean distance of neighbours a third of the size, no trend."""
    size = 20_000
    found = permuted(np.arange(size), size, 7).astype(float)
    assert abs(np.abs(np.diff(found)).mean() / size - 1 / 3) < 0.01
    assert abs(np.corrcoef(found, np.arange(size))[0, 1]) < 0.03
    assert abs(np.corrcoef(found[1:], found[:-1])[0, 1]) < 0.03
    assert abs((found == np.arange(size)).sum() - 1) < 6  # fixed points: Poisson with mean 1


def test_large_sizes_take_no_memory():
    places = np.array([0, 10**12 - 1, 5 * 10**11])
    found = permuted(places, 10**12, 0)
    assert len(set(found.tolist())) == 3 and found.min() >= 0 and found.max() < 10**12


def test_a_pass_is_over_all_corpora():
    order = RowOrder([7, 1, 20], seed=3)
    for number in range(3):
        corpora, rows = order.rows_at(np.arange(28 * number, 28 * (number + 1)))
        pairs = sorted(zip(corpora.tolist(), rows.tolist(), strict=True))
        assert pairs == [(corpus, row) for corpus, size in enumerate([7, 1, 20]) for row in range(size)]
    passes = [order.rows_at(np.arange(28 * number, 28 * (number + 1)))[1].tolist() for number in range(2)]
    assert passes[0] != passes[1]


def test_mixture():
    """Shares are those of the weights in each block, and each corpus is gone through in passes of its own."""
    order = RowOrder([100, 3000], weights=[3, 1], seed=1)
    corpora, rows = order.rows_at(np.arange(2 * BLOCK))
    for block in range(2):
        counts = np.bincount(corpora[block * BLOCK : (block + 1) * BLOCK])
        np.testing.assert_array_equal(counts, [BLOCK * 3 // 4, BLOCK // 4])
    first = rows[corpora == 0]
    for start in range(0, len(first) - 99, 100):
        np.testing.assert_array_equal(np.sort(first[start : start + 100]), np.arange(100))
    second = rows[corpora == 1]
    assert len(second) == 2048 and len(set(second.tolist())) == 2048
    # in any order, and alone
    places = np.random.default_rng(0).permutation(2 * BLOCK)[:50]
    for part in (places, places[:1], places[::-1]):
        again = order.rows_at(part)
        np.testing.assert_array_equal(again, [corpora[part], rows[part]])


def test_weights_out_of_range():
    for weights in ([1], [1, 0], [1, -1], [1, float("nan")], [1, 1e-6]):
        with pytest.raises(ValueError, match="weights must be"):
            RowOrder([5, 5], weights)
