"""Losses of embeddings against loops over rows in NumPy."""

import itertools

import keras
import numpy as np
import pytest
from keras import ops

from zoo.training import CoSENT, CosineRegression, InBatchNegatives, MatryoshkaLoss, TripletLoss


def cosine(a, b):
    return a @ b / np.linalg.norm(a) / np.linalg.norm(b)


def cross_entropy(scores, own):
    return np.log(np.exp(np.array(scores)).sum()) - own


@pytest.mark.parametrize("symmetric", [False, True])
@pytest.mark.parametrize("parts", [2, 4])
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
    np.testing.assert_allclose(loss(np.arange(4 * parts).reshape(4, parts), vectors), np.mean(expected), rtol=1e-5)
    # labels of another shape are not looked at
    for width in (1, 3):
        np.testing.assert_allclose(loss(np.zeros((4, width)), vectors), np.mean(expected), rtol=1e-5)
    weights = np.array([1.0, 0.0, 3.0, 0.0])
    # two rows count
    np.testing.assert_allclose(loss(labels, vectors, weights), np.dot(expected, weights) / 2, rtol=1e-5)


@pytest.mark.parametrize("symmetric", [False, True])
def test_copies_are_no_negatives(symmetric):
    # 10 has two positives, the second of which is a negative of 12; 21 has two anchors; 12 is anchor and positive
    labels = np.array([[10, 21, 31], [10, 22, 32], [11, 21, 10], [12, 23, 22], [13, 12, 23]])
    table = dict(zip(range(10, 34), np.random.default_rng(0).normal(size=(24, 6)), strict=True))
    vectors = np.array([[table[number] for number in row] for row in labels])
    pairs = [(int(row[0]), int(row[1])) for row in labels]
    expected = []
    for anchor, positive in pairs:
        own = 20 * cosine(table[anchor], table[positive])
        right = {anchor} | {b for a, b in pairs if a == anchor}
        wrong = [int(text) for text in labels[:, 1:].ravel() if text not in right]
        loss = cross_entropy([own] + [20 * cosine(table[anchor], table[text]) for text in wrong], own)
        if symmetric:
            right = {positive} | {a for a, b in pairs if b == positive}
            wrong = [a for a, _ in pairs if a not in right]
            back = cross_entropy([own] + [20 * cosine(table[positive], table[text]) for text in wrong], own)
            loss = (loss + back) / 2
        expected.append(loss)
    loss = InBatchNegatives(symmetric=symmetric, reduction=None)
    np.testing.assert_allclose(loss(labels, vectors), expected, rtol=1e-4, atol=1e-5)
    pair = InBatchNegatives(reduction=None)(np.array([[1, 2], [3, 2]]), vectors[:2, :2])
    np.testing.assert_allclose(pair, [0, 0], atol=1e-6)


@pytest.mark.parametrize("distance", ["euclidean", "cosine"])
def test_triplet(distance):
    vectors = np.random.default_rng(0).normal(size=(6, 3, 4))

    def far(a, b):
        return np.linalg.norm(a - b) if distance == "euclidean" else 1 - cosine(a, b)

    expected = [max(0, 0.5 + far(a, p) - far(a, n)) for a, p, n in vectors]
    assert 0 < sum(value == 0 for value in expected) < 6
    loss = TripletLoss(0.5, distance)
    np.testing.assert_allclose(loss(np.zeros(6), vectors), np.mean(expected), rtol=1e-5)
    weights = np.arange(6.0)
    # five rows count
    np.testing.assert_allclose(loss(np.zeros(6), vectors, weights), np.dot(weights, expected) / 5, rtol=1e-5)


def test_cosine_regression():
    vectors = np.random.default_rng(0).normal(size=(4, 2, 6))
    similarities = np.array([1.0, -0.5, 0.0, 0.3])
    expected = [(cosine(*pair) - y) ** 2 for pair, y in zip(vectors, similarities, strict=True)]
    np.testing.assert_allclose(CosineRegression()(similarities, vectors), np.mean(expected), rtol=1e-5)


def test_cosent():
    vectors = np.random.default_rng(0).normal(size=(5, 2, 6))
    y = np.array([3.0, 0.0, 3.0, 1.0, 5.0])

    def expected(rows):
        pairs = [(i, j) for i, j in itertools.product(rows, rows) if y[i] > y[j]]
        return np.log(1 + sum(np.exp(4 * (cosine(*vectors[j]) - cosine(*vectors[i]))) for i, j in pairs))

    np.testing.assert_allclose(CoSENT(scale=4.0)(y, vectors), expected(range(5)), rtol=1e-5)
    # a row of weight 2 is there twice
    weighted = CoSENT(scale=4.0)(y, vectors, np.array([1.0, 2.0, 0.0, 1.0, 2.0]))
    np.testing.assert_allclose(weighted, expected([0, 1, 1, 3, 4, 4]), rtol=1e-5)
    np.testing.assert_allclose(CoSENT()(np.ones(5), vectors), 0, atol=1e-6)
    np.testing.assert_allclose(CoSENT(scale=4.0)(y[:, None], vectors), expected(range(5)), rtol=1e-5)


def test_matryoshka():
    vectors = np.random.default_rng(0).normal(size=(4, 3, 6))
    weights = np.array([1.0, 2.0, 0.0, 1.0])
    for loss in (InBatchNegatives(), TripletLoss(distance="cosine")):
        expected = loss(np.zeros(4), vectors, weights) + 3 * loss(np.zeros(4), vectors[..., :2], weights)
        together = MatryoshkaLoss(loss, [2], [3.0, 1.0])
        np.testing.assert_allclose(together(np.zeros(4), vectors, weights), expected, rtol=1e-5)
    cut = vectors[..., :3] / np.linalg.norm(vectors[..., :3], axis=-1, keepdims=True)
    expected = TripletLoss()(np.zeros(4), vectors) + TripletLoss()(np.zeros(4), cut)
    np.testing.assert_allclose(MatryoshkaLoss(TripletLoss(), [3])(np.zeros(4), vectors), expected, rtol=1e-5)
    pairs, y = vectors[:, :2], np.array([0.1, 0.9, 0.4, 0.3])
    expected = sum(CoSENT()(y, pairs[..., :width], weights) for width in (1, 4, 6))
    np.testing.assert_allclose(MatryoshkaLoss(CoSENT(), [1, 4])(y, pairs, weights), expected, rtol=1e-5)


def test_configurations_and_errors():
    for loss in (
        InBatchNegatives(scale=7.0, symmetric=True),
        CosineRegression(),
        TripletLoss(margin=0.5, distance="cosine"),
        CoSENT(scale=3.0),
        MatryoshkaLoss(CoSENT(scale=2.0), [4, 2], [1.0, 0.5, 2.0], normalize=False),
    ):
        copy = keras.losses.deserialize(keras.losses.serialize(loss))
        assert type(copy) is type(loss) and copy.get_config() == loss.get_config()
    vectors = np.ones((4, 3, 6))
    for make, message in (
        (lambda: InBatchNegatives(scale=0), "scale must be above 0, got 0"),
        (lambda: TripletLoss(margin=0.0), "margin must be above 0, got 0.0"),
        (lambda: TripletLoss(distance="l1"), "distance must be one of .*, got 'l1'"),
        (lambda: MatryoshkaLoss(CoSENT(), []), r"widths must be one or more different numbers, got \[\]"),
        (lambda: MatryoshkaLoss(CoSENT(), [2], [1.0]), r"weights must hold a number .* of the 1 widths and .* \[1.0\]"),
        (lambda: MatryoshkaLoss(TripletLoss(), [6])(np.zeros(4), vectors), r"widths must be below 6, .* got \[6\]"),
        (lambda: InBatchNegatives()(np.zeros(4), vectors[0]), r"anchor, .* \(batch, 2 or more, dim\), got \(3, 6\)"),
        (lambda: TripletLoss()(np.zeros(4), vectors[:, :2]), r"\(batch, 3, dim\), got \(4, 2, 6\)"),
        (lambda: CosineRegression()(np.zeros(4), vectors), r"\(batch, 2, dim\), got \(4, 3, 6\)"),
        # numbers of texts, the labels of another objective
        (lambda: CosineRegression()(np.zeros((4, 2)), vectors[:, :2]), r"a similarity per row, .* got \(4, 2\)"),
        (lambda: CoSENT()(np.zeros((4, 2)), vectors[:, :2]), r"a similarity per row, .* got \(4, 2\)"),
        (lambda: MatryoshkaLoss(CoSENT(), [2])(np.zeros((4, 2)), vectors[:, :2]), "objective='cosent'"),
        (lambda: CoSENT()(np.zeros(4), vectors), r"\(batch, 2, dim\), got \(4, 3, 6\)"),
    ):
        with pytest.raises(ValueError, match=message):
            make()


def test_gradients_of_equal_vectors_are_finite():
    if keras.backend.backend() != "tensorflow":
        pytest.skip("takes gradients with TensorFlow")
    import tensorflow as tf

    vectors = tf.Variable(np.ones((3, 3, 4)), dtype="float32")
    labels = np.array([[0, 1, 2], [0, 1, 2], [0, 0, 0]])
    for loss in (TripletLoss(), TripletLoss(distance="cosine"), InBatchNegatives(symmetric=True)):
        with tf.GradientTape() as tape:
            value = MatryoshkaLoss(loss, [2])(labels, vectors)
        assert np.isfinite(tape.gradient(value, vectors)).all() and np.isfinite(value)
        with tf.GradientTape() as tape:
            value = loss(labels, vectors * np.array([0.0, 1.0, 1.0])[:, None, None].astype("float32"))
        assert np.isfinite(tape.gradient(value, vectors)).all()
    with tf.GradientTape() as tape:
        value = CoSENT()(ops.arange(3), vectors[:, :2])
    assert np.isfinite(tape.gradient(value, vectors)).all()
