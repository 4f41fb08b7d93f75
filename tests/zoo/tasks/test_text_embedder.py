"""Vectors of texts, and training on groups of texts."""

import keras
import numpy as np
import pytest
from keras import ops

tf = pytest.importorskip("tensorflow")

from zoo.tasks import TextEmbedder  # noqa: E402
from zoo.training import MatryoshkaLoss  # noqa: E402


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


@pytest.mark.sampled(2)
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
            r"must be a tuple of 2 to 10 columns of texts, or a list of tuples of 2 to 10 texts; got x\[0\] = .alpha.",
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
        ({"objective": "triplet"}, (["a"], ["b"]), None, "tuple of 3 columns .* got a tuple of 2"),
        ({"objective": "cosent"}, (["a"], ["b"]), [np.inf], r"y\[0\] must be finite, got"),
    ],
)
def test_what_is_wrong_is_named(make_task, options, x, y, message):
    with pytest.raises((TypeError, ValueError), match=message):
        make_task(TextEmbedder, **options).fit(x, y, verbose=0)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"objective": "pairs"}, "objective must be one of .* got 'pairs'"),
        ({"width": 17}, "width must be an integer from 1 to 16, got 17"),
        ({"prompts": {"": "x"}}, "prompts must map names to texts, got ''"),
        ({"prompts": {"q": "x"}, "default_prompt": "r"}, r"default_prompt must be None or one of .*\['q'\], got 'r'"),
        ({"training_prompts": [None, "q"]}, r"training_prompts\[1\] must be None or one of .* got 'q'"),
    ],
)
def test_wrong_choices(make_task, options, message):
    with pytest.raises(ValueError, match=message):
        make_task(TextEmbedder, **options)


def test_widths(make_task, texts):
    task = make_task(TextEmbedder, width=4)
    whole, vectors = task.embed(texts[:3], width=16), task.embed(texts[:3])
    expected = whole[:, :4] / np.linalg.norm(whole[:, :4], axis=1, keepdims=True)
    np.testing.assert_allclose(vectors, expected, rtol=1e-5, atol=1e-6)
    np.testing.assert_allclose(task.predict(texts[:3]), expected, rtol=1e-5, atol=1e-6)
    assert task.embed(texts[0], width=7).shape == (7,) and task.embed([]).shape == (0, 4)
    plain = make_task(TextEmbedder, normalize=False)
    np.testing.assert_array_equal(plain.embed(texts[:3], width=4), plain.embed(texts[:3])[:, :4])
    with pytest.raises(ValueError, match="width must be an integer from 1 to 16, got 17"):
        task.embed(texts[0], width=17)


def test_prompts(make_task, texts):
    prompts = {"query": "kap ", "document": "omega beta "}
    task, plain = make_task(TextEmbedder, prompts=prompts, default_prompt="document"), make_task(TextEmbedder)
    expected = {name: plain.embed([prompt + text for text in texts[:3]]) for name, prompt in prompts.items()}
    np.testing.assert_allclose(task.embed(texts[:3], prompt="query"), expected["query"], atol=1e-6)
    np.testing.assert_allclose(task.embed(texts[:3]), expected["document"], atol=1e-6)
    np.testing.assert_allclose(task.embed(texts[:3], prompt=""), plain.embed(texts[:3]), atol=1e-6)
    with pytest.raises(ValueError, match=r"prompt must be None or one of the prompts \['document', 'query'\], got 'q'"):
        task.embed(texts, prompt="q")
    # what training reads: queries, then documents, or as they are named
    columns = (texts[:2], texts[2:4], texts[4:6])
    for names, order in ((None, ("query", "document", "document")), (["document", None], ("document", "", ""))):
        inputs, _, _ = task.preprocessor.replace(training_prompts=names).examples(columns).tokens, None, None
        for column, name, ids in zip(columns, order, inputs, strict=True):
            wanted = task.tokenizer.tokenize([prompts.get(name, "") + text for text in column])
            assert ids.to_list() == wanted.to_list()


def test_equal_texts_have_equal_labels(embedder):
    _, labels, _ = embedder.preprocessor.training_batch(
        (["alpha", "beta", "alpha"], ["beta", "omega", "beta alpha"], ["alpha", "beta beta", "beta  alpha"])
    )
    labels = labels.numpy()
    assert labels.shape == (3, 3) and len(np.unique(labels)) == 5
    assert labels[0, 0] == labels[2, 0] == labels[0, 2] and labels[1, 0] == labels[0, 1]


@pytest.mark.sampled(1)
@pytest.mark.parametrize(("objective", "count"), [("triplet", 3), ("cosent", 2)])
def test_objectives_learn_from_strings(make_task, texts, objective, count):
    model = make_task(TextEmbedder, objective=objective)
    groups = tuple(texts[8 * index : 8 * index + 8] for index in range(count))
    y = np.linspace(0, 5, 8) if objective == "cosent" else None
    loss = MatryoshkaLoss(model.default_loss(), [8, 4])
    model.compile(keras.optimizers.Adam(0.01), loss=loss, run_eagerly=True)
    losses = [model.train_on_batch(groups, y) for _ in range(3)]
    assert losses[2] < losses[0]


def test_everything_is_saved_and_exported(make_task, texts, tmp_path):
    prompts = {"query": "kap ", "passage.s2p": "omega "}
    task = make_task(TextEmbedder, prompts=prompts, default_prompt="query", width=4)
    task.save_to_preset(tmp_path / "preset")
    task.save(tmp_path / "task.keras")
    for loaded in (TextEmbedder.from_preset(tmp_path / "preset"), keras.models.load_model(tmp_path / "task.keras")):
        assert loaded.options() == task.options()
        np.testing.assert_allclose(loaded.embed(texts[:2]), task.embed(texts[:2]), rtol=1e-5, atol=1e-6)
    endpoints = task.endpoints()
    assert list(endpoints) == [
        "serve",
        "serve_query",
        "serve_passage_s2p",
        "tokens",
        "tokens_query",
        "tokens_passage_s2p",
    ]
    task.export(tmp_path / "export")
    served = tf.saved_model.load(str(tmp_path / "export"))
    for name, prompt in (("serve", None), ("serve_query", "query"), ("serve_passage_s2p", "passage.s2p")):
        vectors = getattr(served, name)(tf.constant(texts[:2]))
        np.testing.assert_allclose(vectors, task.embed(texts[:2], prompt=prompt), rtol=1e-4, atol=1e-5)
    with pytest.raises(ValueError, match="prompts must differ in their letters and digits to be exported, got 'a-b'"):
        make_task(TextEmbedder, prompts={"a.b": "", "a-b": ""}).endpoints()


def test_a_text_of_no_tokens(make_task):
    """Its vector is 0, where lengths have no gradient."""
    task = make_task(TextEmbedder)
    mask = np.ones((2, 3), bool)
    inputs = {f"{part}_token_ids": np.arange(6).reshape(2, 3) for part in ("first", "second")}
    inputs |= {"first_padding_mask": mask, "second_padding_mask": mask * [[1], [0]] > 0}
    np.testing.assert_array_equal(ops.convert_to_numpy(task(inputs))[1, 1], np.zeros(16))
    task.compile("sgd", run_eagerly=True)
    task.train_on_batch(inputs, np.arange(4).reshape(2, 2))
    assert all(np.isfinite(weight).all() for weight in task.get_weights())


def test_similarities_of_a_dataset(make_task):
    targets = make_task(TextEmbedder, objective="cosent").preprocessor.targets
    np.testing.assert_array_equal(targets(tf.constant([[0.5], [1.0]])), [0.5, 1.0])
    with pytest.raises(ValueError, match=r"one similarity per row, got similarities of the shape \(1, 2\)"):
        targets(tf.constant([[0.5, 1.0]]))
