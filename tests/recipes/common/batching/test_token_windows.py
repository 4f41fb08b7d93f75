import numpy as np
import pytest

from recipes.common.batching import TokenWindows
from recipes.common.errors import DataError


def batches_of(windows):
    return [
        (inputs["token_ids"].numpy(), inputs["padding_mask"].numpy(), labels.numpy(), weights.numpy())
        for inputs, labels, weights in windows.dataset
    ]


@pytest.mark.parametrize("count", [2, 13, 24, 25, 26])
def test_consecutive_windows_predict_every_token_once(count):
    ids = np.arange(100, 100 + count)
    batches = batches_of(TokenWindows(ids, length=4, batch_size=3))
    labels = np.concatenate([labels[weights > 0] for _, _, labels, weights in batches])
    np.testing.assert_array_equal(labels, ids[1:])
    for token_ids, mask, labels, weights in batches:
        assert token_ids.shape == labels.shape == (3, 4)
        np.testing.assert_array_equal(mask, weights > 0)
        np.testing.assert_array_equal(labels[mask], token_ids[mask] + 1)


def test_random_windows_depend_on_seed_and_epoch_only():
    ids = np.arange(50)

    def epoch(number, seed=0, skip=0):
        windows = TokenWindows(ids, length=8, batch_size=2, random_windows=5, seed=seed)
        windows.start_epoch(number, skip)
        return batches_of(windows)

    first = epoch(1)
    assert len(first) == 5
    for token_ids, mask, labels, weights in first:
        assert mask.all() and (weights == 1).all()
        np.testing.assert_array_equal(labels, token_ids + 1)
    np.testing.assert_array_equal([batch[0] for batch in first], [batch[0] for batch in epoch(1)])
    np.testing.assert_array_equal([batch[0] for batch in first[3:]], [batch[0] for batch in epoch(1, skip=3)])
    for other in (epoch(2), epoch(1, seed=1)):
        assert any((a[0] != b[0]).any() for a, b in zip(first, other, strict=True))


def test_every_start_can_be_drawn():
    windows = TokenWindows(np.arange(5), length=3, batch_size=64, random_windows=1)
    starts = {int(row[0]) for token_ids, *_ in batches_of(windows) for row in token_ids}
    assert starts == {0, 1}


def test_errors():
    with pytest.raises(DataError, match="the text has 8 tokens; windows of 8 need at least 9"):
        TokenWindows(np.arange(8), length=8, batch_size=1, random_windows=1)
    with pytest.raises(ValueError, match="batch_size must be at least 1, got 0"):
        TokenWindows(np.arange(9), length=8, batch_size=0)
    with pytest.raises(ValueError, match="skip_batches must be 0 to 2, got 3"):
        TokenWindows(np.arange(9), length=4, batch_size=1).start_epoch(0, 3)
