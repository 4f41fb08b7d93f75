import numpy as np
import pytest
import tensorflow as tf

from recipes.common.batching import ExampleBatches
from recipes.common.errors import DataError
from zoo.preprocessing import Examples


class Lengths:
    """Stands for a preprocessor: a text's tokens are its characters."""

    def examples(self, x, y=None):
        if "" in x:
            raise ValueError(f"x[{x.index('')}] is empty")
        x = tf.constant(x)
        return Examples(x, None if y is None else tf.constant(y), None, tf.strings.length(x).numpy())

    def collate(self, tokens, targets, sample_weight, seed):
        return tokens, tf.zeros([tf.shape(tokens)[0]]) if targets is None else targets, None


TEXTS = [letter * length for length, letter in zip([1, 9, 2, 8, 1, 9, 2, 8, 5, 5, 3], "abcdefghijk", strict=True)]


def epoch_of(number, skip=0, **options):
    batches = ExampleBatches(Lengths(), TEXTS, list(range(11)), batch_size=4, number_of_buckets=2, **options)
    batches.start_epoch(number, skip)
    return [
        ([text.decode() for text in x.numpy()], y.numpy().tolist()) for x, y, *_ in batches.dataset
    ], batches.number_of_batches


def test_every_row_once_with_its_target():
    batches, count = epoch_of(0)
    assert len(batches) == count == 3
    rows = [(text, label) for texts, labels in batches for text, label in zip(texts, labels, strict=True)]
    assert sorted(rows) == sorted(zip(TEXTS, range(11), strict=True))
    assert sorted(len(texts) for texts, _ in batches) == [3, 4, 4]


def test_rows_of_similar_length_share_a_batch():
    batches, _ = epoch_of(0, shuffle=False)
    assert max(len(text) for text in batches[0][0]) <= 5


def test_order_depends_on_seed_and_epoch_only():
    assert epoch_of(2)[0] == epoch_of(2)[0]
    assert epoch_of(2)[0] != epoch_of(3)[0]
    assert epoch_of(2)[0] != epoch_of(2, seed=1)[0]
    assert epoch_of(2, skip=1)[0] == epoch_of(2)[0][1:]


def test_errors():
    with pytest.raises(DataError, match=r"x\[1\] is empty"):
        ExampleBatches(Lengths(), ["a", ""], batch_size=2)
    with pytest.raises(ValueError, match="batch_size must be at least 1, got 0"):
        ExampleBatches(Lengths(), ["a"], batch_size=0)
    with pytest.raises(ValueError, match="skip_batches must be 0 to 1, got 2"):
        ExampleBatches(Lengths(), ["a"], batch_size=2).start_epoch(0, 2)


def test_without_targets():
    batches = ExampleBatches(Lengths(), TEXTS, batch_size=4)
    assert sum(int(np.prod(x.shape)) for x, *_ in batches.dataset) == len(TEXTS)
