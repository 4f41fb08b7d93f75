"""Classification and regression of texts and pairs of texts."""

import keras
import numpy as np
import pytest

tf = pytest.importorskip("tensorflow")

from zoo.tasks import TextClassifier  # noqa: E402

LABELS = ["bad", "good", "so-so"]


@pytest.fixture(scope="module")
def classifier(make_task):
    return make_task(TextClassifier, labels=LABELS)


def softmax(logits):
    powers = np.exp(logits - logits.max(-1, keepdims=True))
    return powers / powers.sum(-1, keepdims=True)


def token_rows(tokenizer, text):
    return [tokenizer.start_id, *tokenizer.tokenize(text).numpy(), tokenizer.end_id]


def test_learns_and_predicts(make_task, texts):
    model = make_task(TextClassifier, labels=["no", "yes"], pooling="max", head_dropout=0.0)
    y = ["yes" if "alpha" in text else "no" for text in texts[:64]]
    model.compile(keras.optimizers.Adam(0.02))
    history = model.fit(texts[:64] * 15, y * 15, epochs=3, batch_size=32, verbose=0).history
    assert history["accuracy"][0] < 0.97 and history["accuracy"][-1] > 0.97
    assert model.classify(texts[:64]) == y and model.classify("beta alpha") == "yes"
    assert model.evaluate(texts[:64], y, verbose=0, return_dict=True)["accuracy"] == 1


def test_predict_is_softmax_of_each_text_alone(classifier, mask_tokenizer, texts):
    probabilities = classifier.predict(texts[:9], batch_size=4)
    for text, row in zip(texts[:9], probabilities, strict=True):
        ids = np.array([token_rows(mask_tokenizer, text)])
        logits = classifier({"token_ids": ids, "padding_mask": np.ones_like(ids, bool)})
        np.testing.assert_allclose(row, softmax(np.array(logits))[0], rtol=1e-4)
    assert classifier.classify(texts[:9]) == [LABELS[index] for index in probabilities.argmax(1)]
    assert np.ptp(probabilities, axis=0).max() > 1e-2
    np.testing.assert_allclose(classifier.predict(np.array(texts[:9])), probabilities, rtol=1e-4)
    dataset = tf.data.Dataset.from_tensor_slices(texts[:9])
    for way in (dataset, dataset.batch(2)):
        np.testing.assert_allclose(classifier.predict(way), probabilities, rtol=1e-4)


def test_loss_of_names_and_of_numbers(classifier, texts):
    y = [LABELS[index % 3] for index in range(8)]
    classifier.compile(keras.optimizers.SGD(0.0), run_eagerly=True)
    probabilities = classifier.predict(texts[:8])
    expected = -np.log(probabilities[np.arange(8), np.arange(8) % 3])
    weights = np.arange(8) / 4
    for labels in (y, np.arange(8) % 3, tf.constant(y)):
        loss, _ = classifier.evaluate(texts[:8], labels, verbose=0)
        np.testing.assert_allclose(loss, expected.mean(), rtol=1e-4)
    loss, accuracy = classifier.evaluate(texts[:8], y, sample_weight=weights, verbose=0)
    np.testing.assert_allclose(loss, (expected * weights).sum() / np.count_nonzero(weights), rtol=1e-4)
    right = probabilities.argmax(1) == np.arange(8) % 3
    np.testing.assert_allclose(accuracy, (right * weights).sum() / weights.sum(), rtol=1e-4)
    named = tf.data.Dataset.from_tensor_slices((texts[:8], y)).batch(8)
    np.testing.assert_allclose(classifier.evaluate(named, verbose=0)[0], expected.mean(), rtol=1e-4)
    odd = tf.data.Dataset.from_tensor_slices((texts[:2], ["good", "odd"]))
    with pytest.raises(tf.errors.InvalidArgumentError, match="Every label must be one of"):
        classifier.evaluate(odd, verbose=0)


def test_several_labels(make_task, texts):
    model = make_task(TextClassifier, labels=LABELS, problem="multi_label")
    y = [["bad"], [], ["good", "so-so"], LABELS]
    matrix = np.array([[1, 0, 0], [0, 0, 0], [0, 1, 1], [1, 1, 1]])
    probabilities = model.predict(texts[:4])
    expected = -np.log(np.where(matrix, probabilities, 1 - probabilities)).mean()
    model.compile(keras.optimizers.SGD(0.0), run_eagerly=True)
    for labels in (y, matrix):
        loss, accuracy = model.evaluate(texts[:4], labels, verbose=0)
        np.testing.assert_allclose(loss, expected, rtol=1e-4)
    np.testing.assert_allclose(accuracy, ((probabilities > 0.5) == matrix).mean(), rtol=1e-5)
    for threshold in (0.3, 0.5):
        names = [[LABELS[index] for index in np.flatnonzero(row >= threshold)] for row in probabilities]
        assert model.classify(texts[:4], threshold=threshold) == names


def test_regression_of_pairs(make_task, mask_tokenizer, texts):
    model = make_task(TextClassifier, labels=1, problem="regression", pairs=True)
    first, second = texts[:6], texts[6:12]
    values = model.predict((first, second))
    ids = [token_rows(mask_tokenizer, a) for a in first]
    for row in range(6):
        tail = token_rows(mask_tokenizer, second[row])[1:]
        inputs = {
            "token_ids": np.array([ids[row] + tail]),
            "padding_mask": np.ones((1, len(ids[row] + tail)), bool),
            "segment_ids": np.array([[0] * len(ids[row]) + [1] * len(tail)]),
        }
        np.testing.assert_allclose(values[row], np.array(model(inputs))[0], rtol=1e-3, atol=1e-5)
    # the order of the two counts, and the list of tuples is the same as the tuple of lists
    assert np.abs(model.predict((second, first)) - values).max() > 1e-3
    np.testing.assert_allclose(model.predict(list(zip(first, second, strict=True))), values, rtol=1e-5)
    assert model.classify((first[0], second[0])) == pytest.approx(values[0, 0], rel=1e-4)
    assert model.classify((first, second)) == pytest.approx(values[:, 0].tolist(), rel=1e-4)
    model.compile(keras.optimizers.SGD(0.0), run_eagerly=True)
    y = np.linspace(-1, 1, 6)
    loss, error = model.evaluate((first, second), y, verbose=0)
    np.testing.assert_allclose(
        [loss, error], [((values[:, 0] - y) ** 2).mean(), abs(values[:, 0] - y).mean()], rtol=1e-4
    )
    history = model.fit(
        list(zip(first, second, strict=True)), y, validation_data=((first[:2], second[:2]), y[:2]), verbose=0
    ).history
    np.testing.assert_allclose(history["val_loss"][0], ((values[:2, 0] - y[:2]) ** 2).mean(), rtol=1e-4)
    dataset = tf.data.Dataset.from_tensor_slices(((first, second), y)).batch(6)
    np.testing.assert_allclose(model.evaluate(dataset, verbose=0)[0], loss, rtol=1e-4)


@pytest.mark.parametrize(
    ("options", "x", "y", "message"),
    [
        ({}, ["alpha", "beta"], [0, 3], r"y\[1\] must be .* or a number from 0 to 2, got 3"),
        ({}, ["alpha", "beta"], ["good", "odd"], r"y\[1\] must be one of \['bad', 'good', 'so-so'\] .* got 'odd'"),
        ({}, ["alpha"], None, "y must hold one label per row, got None for 1 in x"),
        (
            {},
            (["alpha"], ["beta"]),
            [1],
            "x must be a list of texts, got a tuple of 2; pairs of .* pairs=True",
        ),
        (
            {},
            ["alpha", "x " * 50_000],
            [0, 1],
            r"x\[1\] has \d+ tokens with its special tokens.*max_length=24 .*truncate=",
        ),
        (
            {"pairs": True},
            ["alpha"],
            [1],
            r"x must be a tuple of 2 columns of texts, or a list of tuples of 2 texts; got x\[0\] = .alpha.",
        ),
        ({"pairs": True}, (["a", "b"], ["c"]), [1, 1], r"x\[1\] must hold one text per row, got 1 for 2 in x\[0\]"),
        ({"pairs": True}, [("a", "b"), ("c",)], [1, 1], r"x\[1\] must hold 2 texts, as x\[0\] does, got 1"),
        ({"pairs": True}, (["a"], [3]), [1], r"x\[1\]\[0\] must be a string, got int 3"),
        ({"problem": "regression"}, ["a"], ["b"], "y must hold numbers, 3 per row"),
        ({"problem": "multi_label"}, ["a"], [["bad", "odd"]], r"each label of y\[0\] must be one of"),
    ],
)
def test_what_is_wrong_is_named(make_task, options, x, y, message):
    model = make_task(TextClassifier, labels=LABELS, **options)
    with pytest.raises((TypeError, ValueError), match=message):
        model.fit(x, y, verbose=0)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"labels": 1}, "labels must be an integer of at least 2, got 1"),
        ({"problem": "ranking"}, "problem must be one of .* got 'ranking'"),
        ({"pooling": "sum"}, "pooling must be one of .* got 'sum'"),
        ({"sequence_length": 25}, "sequence_length must be an integer from 1 to 24, got 25"),
        ({"truncate": "yes"}, "truncate must be True or False, got 'yes'"),
        (
            {"pooling": "pooler", "config": {"pooler": False}},
            "pooling must be one of .* without a pooler, got 'pooler'",
        ),
        ({"decoder_start_id": 3}, "decoder_start_id must be None with a backbone of one stack, got 3"),
        ({"end_id": 3}, "end_id must be None without pooling='end', got 3"),
    ],
)
def test_wrong_choices(make_task, options, message):
    with pytest.raises(ValueError, match=message):
        make_task(TextClassifier, **{"labels": 2, **options})


def test_long_texts_are_cut_on_request(make_task, mask_tokenizer):
    model = make_task(TextClassifier, labels=2, truncate=True, sequence_length=6)
    long = "alpha beta gamma omega theta iota " * 20_000
    cut = "alpha beta gamma omega"
    rows = model.predict([long, cut, "", b"\xff\xfe", "\x00"])
    np.testing.assert_allclose(rows[0], rows[1], rtol=1e-5)
    assert np.isfinite(rows).all()
    assert np.isfinite(model.evaluate([long, ""], [0, 1], verbose=0)[0])


@pytest.mark.parametrize("pooling", ["first", "mean", "max", "last", "late"])
def test_poolings_ignore_padding(make_task, texts, pooling):
    model = make_task(TextClassifier, labels=2, pooling=pooling, config={"pooler": False})
    assert (model.head.dense is not None) == (pooling == "first")
    some = sorted(texts[:5], key=len)
    together = model.predict(some)
    alone = np.concatenate([model.predict([text]) for text in some])
    np.testing.assert_allclose(together, alone, rtol=1e-4, atol=1e-6)


def test_poolings_ignore_padding_on_the_left(make_task):
    from zoo import PositionConfig
    from zoo.tasks.pooling import POOLINGS, pool

    backbone = make_task(TextClassifier, labels=2, config={"position": PositionConfig("rotary")}).backbone
    alone, padded = np.array([[5, 6, 7], [8, 9, 0]]), np.array([[0, 0, 5, 6, 7], [0, 8, 9, 0, 0]])
    rows = [({"token_ids": ids, "padding_mask": ids > 0}, ids > 0) for ids in (alone, padded)]
    states = [(backbone(inputs), mask) for inputs, mask in rows]
    for pooling in POOLINGS:
        expected, found = (np.array(pool(hidden, mask, pooling, backbone)) for hidden, mask in states)
        np.testing.assert_allclose(found, expected, rtol=1e-4, atol=1e-5, err_msg=pooling)


def test_decoders_classify_their_last_token(make_task, texts):
    model = make_task(TextClassifier, labels=2, config={"architecture": "decoder", "pooler": False})
    assert model.pooling == "last"
    # an earlier word changes the result, so the last token sees it
    first, second = model.predict([f"alpha {texts[0]}", f"omega {texts[0]}"])
    assert np.abs(first - second).max() > 1e-4


def test_documents_are_ranked(make_task, texts):
    model = make_task(TextClassifier, labels=["relevant"], problem="multi_label", pairs=True, seed=3)
    documents = [*texts[1:7], texts[1]]
    scores = model.predict(([texts[0]] * 7, documents))[:, 0]
    ranked = model.rank(texts[0], documents)
    assert [each.index for each in ranked] == list(np.argsort(-scores, kind="stable"))
    assert all(each.text == documents[each.index] for each in ranked)
    np.testing.assert_allclose([each.score for each in ranked], np.sort(scores)[::-1], rtol=1e-5)
    assert model.rank(texts[0], documents, top=2) == ranked[:2] and model.rank(texts[0], []) == []
    with pytest.raises(TypeError, match="documents must be a list of texts, got one: 'alpha'"):
        model.rank(texts[0], "alpha")
    with pytest.raises(ValueError, match="pairs=True and one label or value, got one with pairs=False and 3"):
        make_task(TextClassifier, labels=3).rank(texts[0], documents)
