"""The benchmark of memory: which ways of training are measured, and what the peaks are of."""

import numpy as np
import pytest

from recipes.benchmark import memory
from recipes.benchmark.contestant import Turn
from recipes.common.errors import ConfigError


class Process:
    """Takes as much as its mode asks for."""

    def __init__(self, library, work, mode):
        self.sizes = work.vocabulary_size, work.batch_size, work.length
        self.peak = 2**30 + 2**20 * (library == "keras_hub") * 2**10 - 2**29 * mode.get("remat", False)

    def __enter__(self):
        return self

    def __exit__(self, *_):
        pass

    def turn(self, calls):
        assert self.sizes == (20, 3, 5)
        return Turn(1.0 * calls, 2.0 * calls, self.peak)


def test_ways_of_training_beside_keras_hub(monkeypatch):
    monkeypatch.setattr(memory, "Contestant", Process)
    rows = memory.train(20, memory.Config(batch_size=3, length=5, rounds=2))
    assert [(row["way"], row["of_keras_hub"], row["processor_seconds"]) for row in rows] == [
        ("zoo", 0.5, 2.0),
        ("zoo, remat", 0.25, 2.0),
        ("zoo, all logits", 0.5, 2.0),
        ("KerasHub", 1.0, 2.0),
    ]


def test_a_policy_that_there_is_not():
    with pytest.raises(ConfigError, match="dtype: .*float17"):
        memory.main(memory.Config(dtype="float17"))


def test_reading_through_a_window():
    hidden = np.asarray(memory.make_reading(length=40, window=8)())
    assert hidden.shape == (1, 40, 384) and np.isfinite(hidden).all()
