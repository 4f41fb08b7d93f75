"""Losses of several labels against NumPy."""

import keras
import numpy as np
import pytest

from zoo.training import WeightedBinaryCrossEntropy


def test_weighted_binary_cross_entropy():
    generator = np.random.default_rng(0)
    logits, labels = generator.normal(size=(5, 3)) * 3, (generator.random((5, 3)) < 0.4).astype("float32")
    weights, of_rows = np.array([1.0, 4.0, 0.5]), np.array([1.0, 0.0, 2.0, 1.0, 1.0])
    probabilities = 1 / (1 + np.exp(-logits))
    losses = -(weights * labels * np.log(probabilities) + (1 - labels) * np.log(1 - probabilities)).mean(axis=1)
    loss = WeightedBinaryCrossEntropy(weights)
    np.testing.assert_allclose(loss(labels, logits), losses.mean(), rtol=1e-5)
    np.testing.assert_allclose(loss(labels, logits, of_rows), (losses * of_rows).sum() / 4, rtol=1e-5)
    plain = keras.losses.BinaryCrossentropy(from_logits=True)
    np.testing.assert_allclose(WeightedBinaryCrossEntropy([1] * 3)(labels, logits), plain(labels, logits), rtol=1e-5)
    again = keras.losses.deserialize(keras.losses.serialize(loss))
    assert again.positive_weights == weights.tolist()
    # far logits stay finite
    assert np.isfinite(loss(1 - labels, np.where(labels, 1e4, -1e4)))
    with pytest.raises(ValueError, match="positive_weights must be as many as labels, 3, got 2"):
        WeightedBinaryCrossEntropy([1, 2])(labels, logits)
    with pytest.raises(ValueError, match="finite numbers of at least 0"):
        WeightedBinaryCrossEntropy([1, -2])
