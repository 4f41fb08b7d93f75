"""Which tokens are hidden: counted, compared with what the papers say, inside tf.data."""

import numpy as np
import pytest

tf = pytest.importorskip("tensorflow")

from zoo.preprocessing import chosen_positions, mask_tokens  # noqa: E402

MASK, FIRST_ORDINARY, SIZE = 4, 5, 1000
ORDINARY = np.arange(FIRST_ORDINARY, SIZE)


def batch(rows=64, length=50, seed=0):
    """Ids with special ones at both ends and padding; true where a token of a text stands."""
    generator = np.random.default_rng(seed)
    ids = generator.integers(FIRST_ORDINARY, SIZE, (rows, length)).astype("int32")
    lengths = generator.integers(0, length - 1, rows)
    candidates = (np.arange(length) > 0) & (np.arange(length) <= lengths[:, None])
    ids[~candidates] = 0
    return ids, candidates


@pytest.mark.parametrize("rate", [0.15, 0.5, 1.0])
def test_how_many_are_chosen(rate):
    ids, candidates = batch()
    _, chosen = mask_tokens(ids, candidates, mask_id=MASK, ordinary_ids=ORDINARY, rate=rate)
    number = candidates.sum(1)
    expected = np.where(number > 0, np.maximum(np.round(rate * number), 1), 0)
    assert (number == 0).any() and not (chosen.numpy() & ~candidates).any()
    # halves are rounded to even by both
    np.testing.assert_array_equal(chosen.numpy().sum(1), expected)


def test_what_stands_in_their_place():
    ids, candidates = batch(rows=400, length=200)
    masked, chosen = (part.numpy() for part in mask_tokens(ids, candidates, mask_id=MASK, ordinary_ids=ORDINARY))
    np.testing.assert_array_equal(masked[~chosen], ids[~chosen])
    number = chosen.sum()
    is_mask, is_same = masked[chosen] == MASK, masked[chosen] == ids[chosen]
    # shares of some 6,000 draws: five standard deviations
    for share, expected in ((is_mask.mean(), 0.8), (is_same.mean(), 0.1), ((~is_mask & ~is_same).mean(), 0.1)):
        assert abs(share - expected) < 5 * np.sqrt(expected * (1 - expected) / number)
    drawn = masked[chosen][~is_mask & ~is_same]
    assert drawn.min() >= FIRST_ORDINARY and drawn.max() < SIZE and len(set(drawn)) > 200
    # every place of a text is chosen about equally often
    places = (chosen.sum(0) / np.maximum(candidates.sum(0), 1))[1:100]
    assert places.min() > 0.05 and places.max() < 0.3


def test_all_of_one_kind():
    ids, candidates = batch()
    options = {"mask_id": MASK, "ordinary_ids": ORDINARY, "rate": 0.5}
    masked, chosen = mask_tokens(ids, candidates, mask_share=1.0, random_share=0.0, **options)
    assert (masked.numpy()[chosen.numpy()] == MASK).all()
    masked, chosen = mask_tokens(ids, candidates, mask_share=0.0, random_share=0.0, **options)
    np.testing.assert_array_equal(masked, ids)
    masked, chosen = mask_tokens(ids, candidates, mask_share=0.0, random_share=1.0, **options)
    assert (masked.numpy()[chosen.numpy()] != ids[chosen.numpy()]).mean() > 0.9


def test_whole_words():
    generator = np.random.default_rng(2)
    ids, candidates = batch(rows=100, length=40)
    # words of one to four tokens
    word_ids = np.cumsum(generator.random((100, 40)) < 0.4, axis=1).astype("int32")
    word_ids -= word_ids[:, 1:2]
    _, chosen = mask_tokens(ids, candidates, mask_id=MASK, ordinary_ids=ORDINARY, rate=0.3, word_ids=word_ids)
    chosen = chosen.numpy()
    for row in range(100):
        words = word_ids[row]
        taken = set(words[chosen[row]])
        np.testing.assert_array_equal(chosen[row], candidates[row] & np.isin(words, list(taken)))
        wanted = max(1, round(0.3 * candidates[row].sum())) if candidates[row].any() else 0
        sizes = [int((candidates[row] & (words == word)).sum()) for word in taken]
        # enough, and not a word more than it takes
        assert chosen[row].sum() >= wanted
        assert not sizes or chosen[row].sum() - max(sizes) < wanted


def test_seeds():
    ids, candidates = batch()

    def chosen(seed):
        masked, chosen = mask_tokens(ids, candidates, mask_id=MASK, ordinary_ids=ORDINARY, seed=seed)
        return masked.numpy().tolist(), chosen.numpy().tolist()

    assert chosen([1, 2]) == chosen([1, 2]) and chosen([1, 2]) != chosen([1, 3]) and chosen(None) != chosen(None)
    tf.random.set_seed(5)
    first = chosen(None)
    tf.random.set_seed(5)
    assert chosen(None) == first


def test_in_a_dataset_anew_each_time():
    ids, candidates = batch(rows=8)
    dataset = tf.data.Dataset.from_tensors((ids, candidates)).repeat(2)
    dataset = dataset.map(lambda *row: mask_tokens(*row, mask_id=MASK, ordinary_ids=ORDINARY))
    (_, first), (_, second) = (tuple(part.numpy() for part in element) for element in dataset)
    assert (first.sum(1) == second.sum(1)).all() and (first != second).any()


def test_chosen_positions():
    chosen = np.array([[0, 1, 0, 1, 1], [0, 0, 0, 0, 0], [1, 0, 0, 0, 0]], bool)
    ids = np.arange(15, dtype="int32").reshape(3, 5)
    positions, labels, weights = (part.numpy() for part in chosen_positions(chosen, ids))
    # as many as a row has: padded to 8, but there are no more than 5
    assert weights.tolist() == [[1, 1, 1, 0, 0], [0, 0, 0, 0, 0], [1, 0, 0, 0, 0]]
    assert positions[0, :3].tolist() == [1, 3, 4] and positions[2, 0] == 0
    assert labels[0, :3].tolist() == [1, 3, 4] and labels[2, 0] == 10
    nothing = chosen_positions(np.zeros((2, 3), bool), ids[:2, :3])
    assert [part.shape for part in nothing] == [(2, 3)] * 3 and not nothing[2].numpy().any()
