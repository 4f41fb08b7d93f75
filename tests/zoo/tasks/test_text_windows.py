"""Classifiers of texts and of words that read long texts in windows which overlap."""

import numpy as np
import pytest

tf = pytest.importorskip("tensorflow")

from zoo.tasks import TextClassifier, TokenClassifier  # noqa: E402

TAGS = ["O", "B-X", "I-X"]
# each of these words is one token
WORDS = ["alpha", "beta", "gamma", "omega", "theta"]


@pytest.fixture(scope="module")
def long_texts():
    generator = np.random.default_rng(0)
    return [" ".join(generator.choice(WORDS, count)) for count in (3, 6, 7, 13, 14, 40)] + [""]


def windows_of(count, room, stride):
    """First word and the one after the last of each window."""
    first, found = 0, []
    while True:
        found.append((first, min(first + room, count)))
        if first + room >= count:
            return found
        first += room - stride


def logits_of(task, words):
    tokenizer = task.tokenizer
    ids = [tokenizer.start_id, *tokenizer.tokenize(" ".join(words)).numpy(), tokenizer.end_id]
    assert len(ids) == len(words) + 2
    inputs = {"token_ids": np.array([ids]), "padding_mask": np.ones((1, len(ids)), bool)}
    return np.array(task({**inputs, "segment_ids": np.zeros((1, len(ids)), "int32")}))[0]


@pytest.mark.sampled(1)
@pytest.mark.parametrize("problem", ["single_label", "multi_label", "regression"])
def test_text_is_what_its_windows_are(make_task, long_texts, problem):
    model = make_task(TextClassifier, labels=3, problem=problem, sequence_length=8, stride=2, pooling="mean")
    expected = []
    for text in long_texts:
        words = text.split()
        logits = np.stack([logits_of(model, words[a:b]) for a, b in windows_of(len(words), 6, 2)])
        merged = logits.max(0) if problem == "multi_label" else logits.mean(0)
        if problem == "single_label":
            merged = np.exp(merged) / np.exp(merged).sum()
            # the mean of logarithms of probabilities
            logs = np.log(np.exp(logits) / np.exp(logits).sum(1, keepdims=True)).mean(0)
            np.testing.assert_allclose(merged, np.exp(logs) / np.exp(logs).sum(), rtol=1e-5)
        expected.append(1 / (1 + np.exp(-merged)) if problem == "multi_label" else merged)
    np.testing.assert_allclose(model.predict(long_texts, batch_size=3), expected, rtol=1e-3, atol=1e-5)
    served = tf.function(model.endpoints()["serve"].function)(tf.constant(long_texts))
    values = served["values" if problem == "regression" else "probabilities"]
    np.testing.assert_allclose(values, expected, rtol=1e-3, atol=1e-5)
    assert model.predict([]).shape == (0, 3)


def test_windows_of_a_text_weigh_as_much_as_a_text(make_task, long_texts):
    model = make_task(TextClassifier, labels=2, sequence_length=8, stride=2)
    y, given = [0, 1, 1, 0, 1, 0, 1], np.arange(7.0)
    rows = model.preprocessor.examples(long_texts, y, given)
    counts = [len(windows_of(len(text.split()), 6, 2)) for text in long_texts]
    assert np.bincount(rows.groups).tolist() == counts and max(rows.lengths) == 8
    np.testing.assert_allclose(np.bincount(rows.groups, rows.weights), given, rtol=1e-6)
    np.testing.assert_array_equal(rows.targets, np.repeat(y, counts))
    batch = model.preprocessor.training_batch(tf.constant(long_texts), tf.constant(y), tf.constant(given))
    np.testing.assert_allclose(batch[2], rows.weights)
    np.testing.assert_array_equal(batch[0]["padding_mask"].numpy().sum(1), rows.lengths)
    model.compile("sgd", run_eagerly=True)
    assert np.isfinite(model.fit(long_texts, y, validation_split=0.3, verbose=0).history["val_loss"][0])
    # labels of texts, not of windows
    found = model.calibrate(long_texts, 1 - model.predict(long_texts).argmax(1))
    assert found.temperature == model.temperature > 1


def test_word_is_what_the_window_with_its_surroundings_says(make_task, tmp_path):
    model = make_task(TokenClassifier, labels=TAGS, sequence_length=8, stride=2)
    generator = np.random.default_rng(0)
    rows = [generator.choice(WORDS, count).tolist() for count in (3, 7, 14, 23)]
    expected = []
    for words in rows:
        found = []
        for first, end in windows_of(len(words), 6, 2):
            own = (0 if first == 0 else 1), (5 if end < len(words) else end - first)
            logits = logits_of(model, words[first:end])[1:-1][slice(*own)]
            found += [np.exp(row) / np.exp(row).sum() for row in logits]
        assert len(found) == len(words)
        expected.append(found)
    # words without tokens, at the beginning of a text, between two windows, at the end, and alone
    odd = ["", *rows[1][:5], "", *rows[1][5:], ""]
    probabilities = model.predict([*rows, odd, [], [""]], batch_size=3)
    for row, values in zip(probabilities[:4], expected, strict=True):
        np.testing.assert_allclose(row, values, rtol=1e-3, atol=1e-5)
    np.testing.assert_allclose(probabilities[4][[1, 2, 3, 4, 5, 7, 8]], expected[1], rtol=1e-3, atol=1e-5)
    np.testing.assert_array_equal(probabilities[4][[0, 6, 9]], [[1, 0, 0]] * 3)
    assert [len(row) for row in probabilities[5:]] == [0, 1]
    # each word trains once
    tags = [generator.choice(TAGS, len(words)).tolist() for words in rows]
    _, labels, weights = model.preprocessor.training_batch(
        tf.ragged.constant(rows), tf.ragged.constant(tags), tf.constant([1.0, 1.0, 1.0, 2.0])
    )
    assert float(tf.reduce_sum(weights)) == 3 + 7 + 14 + 2 * 23
    np.testing.assert_array_equal(labels[weights > 0], [TAGS.index(tag) for row in tags for tag in row])
    model.save_to_preset(tmp_path / "preset")
    loaded = TokenClassifier.from_preset(tmp_path / "preset")
    assert loaded.preprocessor.options() == model.preprocessor.options()
    texts = [" ".join(row) for row in rows]
    served = tf.function(loaded.endpoints()["serve"].function)(tf.constant(texts))
    for row, (words, values) in enumerate(zip(rows, expected, strict=True)):
        np.testing.assert_allclose(served["probabilities"][row, : len(words)], values, rtol=1e-3, atol=1e-5)
        assert served["words"][row, : len(words)].numpy().tolist() == [word.encode() for word in words]
        assert not served["probabilities"][row, len(words) :].numpy().any()


@pytest.mark.parametrize(
    ("kind", "options", "message"),
    [
        (TextClassifier, {"stride": 4}, "stride must be at most 3, half of the 6 tokens of a text"),
        (TextClassifier, {"stride": 2, "truncate": True}, "truncate must be False with a stride"),
        (TextClassifier, {"stride": 2, "pairs": True}, "stride must be None with pairs of texts"),
        (TokenClassifier, {"stride": -1}, "stride must be an integer of at least 0, got -1"),
    ],
)
def test_wrong_choices(make_task, kind, options, message):
    with pytest.raises(ValueError, match=message):
        make_task(kind, labels=3, sequence_length=8, **options).predict(["alpha"])
