"""Losses of embeddings against loops over rows in NumPy."""

import keras
import numpy as np
import pytest

from zoo.training.embedding_losses import CosineRegression, InBatchNegatives


def cosine(a, b):
    return a @ b / np.linalg.norm(a) / np.linalg.norm(b)


def cross_entropy(scores, own):
    return np.log(np.exp(np.array(scores)).sum()) - own


@pytest.mark.parametrize("symmetric", [False, True])
@pytest.mark.parametrize("parts", [2, 3])
def test_in_batch_negatives(parts, symmetric):
    vectors = np.random.default_rng(0).normal(size=(4, parts, 6))
    expected = []
    for row in range(4):
        own = 5 * cosine(vectors[row, 0], vectors[row, 1])
        candidates = [vectors[other, part] for part in range(1, parts) for other in range(4)]
        loss = cross_entropy([5 * cosine(vectors[row, 0], candidate) for candidate in candidates], own)
        if symmetric:
            back = [5 * cosine(vectors[other, 0], vectors[row, 1]) for other in range(4)]
            loss = (loss + cross_entropy(back, own)) / 2
        expected.append(loss)
    loss = InBatchNegatives(scale=5.0, symmetric=symmetric)
    labels = np.zeros(4, "float32")
    # float32 exponentials of numbers up to 5
    np.testing.assert_allclose(loss(labels, vectors), np.mean(expected), rtol=1e-5)
    weights = np.array([1.0, 0.0, 3.0, 0.0])
    np.testing.assert_allclose(loss(labels, vectors, weights), np.dot(expected, weights) / 4, rtol=1e-5)


def test_cosine_regression():
    vectors = np.random.default_rng(0).normal(size=(4, 2, 6))
    similarities = np.array([1.0, -0.5, 0.0, 0.3])
    expected = [(cosine(*pair) - y) ** 2 for pair, y in zip(vectors, similarities, strict=True)]
    np.testing.assert_allclose(CosineRegression()(similarities, vectors), np.mean(expected), rtol=1e-5)


def test_configurations_and_errors():
    loss = InBatchNegatives(scale=7.0, symmetric=True)
    copy = keras.losses.deserialize(keras.losses.serialize(loss))
    assert (copy.scale, copy.symmetric) == (7.0, True)
    assert keras.losses.deserialize(keras.losses.serialize(CosineRegression())).name == "cosine_regression"
    with pytest.raises(ValueError, match="scale must be above 0, got 0"):
        InBatchNegatives(scale=0)
    with pytest.raises(ValueError, match=r"anchor, positive .* \(batch, 2 or 3, dim\), got \(4, 6\)"):
        InBatchNegatives()(np.zeros(4), np.ones((4, 6)))
    with pytest.raises(ValueError, match=r"\(batch, 2, dim\), got \(4, 3, 6\)"):
        CosineRegression()(np.zeros(4), np.ones((4, 3, 6)))
