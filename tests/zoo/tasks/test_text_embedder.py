"""Vectors of texts, and training on groups of texts."""

import keras
import numpy as np
import pytest

tf = pytest.importorskip("tensorflow")

from zoo.tasks import TextEmbedder  # noqa: E402


@pytest.fixture(scope="module")
def embedder(make_task):
    return make_task(TextEmbedder)


def test_vectors_are_normalized_means(embedder, mask_tokenizer, texts):
    vectors = embedder.embed(texts[:5], batch_size=2)
    for text, vector in zip(texts[:5], vectors, strict=True):
        ids = np.array([[mask_tokenizer.start_id, *mask_tokenizer.tokenize(text).numpy(), mask_tokenizer.end_id]])
        hidden = np.array(embedder.backbone({"token_ids": ids, "padding_mask": np.ones_like(ids, bool)}))
        mean = hidden[0].mean(0)
        np.testing.assert_allclose(vector, mean / np.linalg.norm(mean), rtol=1e-3, atol=1e-5)
    np.testing.assert_allclose(embedder.embed(texts[0]), vectors[0], rtol=1e-4, atol=1e-6)
    np.testing.assert_allclose(embedder.predict(texts[:5]), vectors, rtol=1e-4, atol=1e-6)
    assert embedder.embed([]).shape == (0, 16)


@pytest.mark.parametrize("pooling", ["first", "max", "pooler", "last"])
def test_poolings(make_task, texts, pooling):
    model = make_task(TextEmbedder, pooling=pooling, normalize=False)
    together = model.embed(texts[:4])
    np.testing.assert_allclose(together, np.stack([model.embed(text) for text in texts[:4]]), rtol=1e-4, atol=1e-5)
    assert np.abs(np.linalg.norm(together, axis=1) - 1).min() > 1e-3


def test_training_brings_pairs_together(make_task, texts):
    model = make_task(TextEmbedder)
    anchors = sorted({" ".join(text.split()[:2]) for text in texts})[:24]
    # the same words the other way round
    positives = [" ".join(reversed(text.split())) for text in anchors]

    def share_found():
        scores = model.embed(anchors) @ model.embed(positives).T
        return (scores.argmax(1) == np.arange(24)).mean()

    before = share_found()
    model.compile(keras.optimizers.Adam(0.01))
    history = model.fit((anchors * 10, positives * 10), epochs=2, batch_size=24, verbose=0).history
    # the same words give like vectors from the beginning; their order is what can be unlearned
    assert history["loss"][1] < 0.8 * history["loss"][0] and share_found() >= before > 0.2


def test_losses_are_those_of_the_vectors(make_task, texts):
    model = make_task(TextEmbedder, objective="cosine_regression", normalize=False, pooling="max")
    first, second, y = texts[:6], texts[6:12], np.linspace(-1, 1, 6)
    model.compile(keras.optimizers.SGD(0.0), run_eagerly=True)
    a, b = model.embed(first), model.embed(second)
    cosines = (a * b).sum(1) / np.linalg.norm(a, axis=1) / np.linalg.norm(b, axis=1)
    expected = ((cosines - y) ** 2).mean()
    np.testing.assert_allclose(model.evaluate((first, second), y, verbose=0), expected, rtol=1e-4)
    history = model.fit((first, second), y, validation_data=((first, second), y), verbose=0).history
    np.testing.assert_allclose(history["val_loss"][0], expected, rtol=1e-4)
    triples = make_task(TextEmbedder)
    triples.compile(keras.optimizers.SGD(0.0), run_eagerly=True)
    groups = (first, second, texts[12:18])
    vectors = [triples.embed(part) for part in groups]
    scores = 20 * vectors[0] @ np.concatenate(vectors[1:]).T
    expected = (np.log(np.exp(scores).sum(1)) - scores[np.arange(6), np.arange(6)]).mean()
    np.testing.assert_allclose(triples.evaluate(groups, verbose=0), expected, rtol=1e-4)
    history = triples.fit(list(zip(*groups, strict=True)), validation_data=(groups,), verbose=0).history
    np.testing.assert_allclose(history["val_loss"][0], expected, rtol=1e-4)


@pytest.mark.parametrize(
    ("options", "x", "y", "message"),
    [
        (
            {},
            ["alpha"],
            None,
            "x must be a tuple of 2 or 3 columns of texts, or a list of tuples of 2 or 3 texts; got list",
        ),
        ({}, (["alpha"], ["beta"]), [1.0], "y must be None: TextEmbedder learns from the texts alone"),
        ({}, (["alpha", "beta"], ["beta", "alpha " * 30]), None, r"x\[1\]\[1\] has 32 tokens"),
        (
            {"objective": "cosine_regression"},
            (["a"], ["b"]),
            None,
            "y must hold one similarity per row, got None for 1",
        ),
        ({"objective": "cosine_regression"}, (["a"], ["b"]), [5], r"y\[0\] must be a cosine from -1 to 1, got 5"),
        ({"objective": "cosine_regression"}, (["a"], ["b"], ["c"]), [1], "tuple of 2 columns .* got a tuple of 3"),
    ],
)
def test_what_is_wrong_is_named(make_task, options, x, y, message):
    with pytest.raises((TypeError, ValueError), match=message):
        make_task(TextEmbedder, **options).fit(x, y, verbose=0)


def test_wrong_choices(make_task):
    with pytest.raises(ValueError, match="objective must be one of .* got 'triplet'"):
        make_task(TextEmbedder, objective="triplet")
