"""Rounds of batches, against the stream of all epochs written down by hand."""

import numpy as np
import pytest
import tensorflow as tf

from recipes.common.batching import Rounds
from recipes.common.training.fitting import number_of_rounds
from zoo.training import ResumableBatches


@pytest.mark.parametrize("skips", [False, True])
@pytest.mark.parametrize("length", [1, 3, 4, 5, 9, 13])
def test_rounds_go_through_the_epochs(length, skips):
    def batches_of_epoch(epoch, skipped=0):
        return tf.data.Dataset.range(4 * epoch + skipped, 4 * epoch + 4)

    rounds = Rounds(ResumableBatches(4, batches_of_epoch, skips=skips), length)
    assert rounds.number_of_batches == length == int(rounds.dataset.cardinality())
    for number in range(4):
        for skipped in (0, length // 2, length):
            rounds.start_epoch(number, skipped)
            expected = np.arange(number * length + skipped, (number + 1) * length)
            assert list(rounds.dataset.as_numpy_iterator()) == expected.tolist()


def test_number_of_rounds():
    assert number_of_rounds(5, 188, None) == 5
    assert [number_of_rounds(2, 100, length) for length in (10, 60, 90, 200, 1000)] == [20, 3, 2, 1, 1]
