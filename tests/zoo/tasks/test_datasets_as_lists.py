"""Labels and weights in a `tf.data.Dataset` mean what they mean in lists, and are held to the same rules."""

import keras
import numpy as np
import pytest

tf = pytest.importorskip("tensorflow")

from zoo.tasks import TextClassifier, TextEmbedder, TokenClassifier  # noqa: E402

X = ["alpha beta", "omega", "kappa iota alpha"]
MARKS = [[0, 1, 0], [1, 0, 0], [0, 1, 1]]


def dataset(*columns, ragged=False):
    """Rows; with `ragged` the lengths of the targets are not known."""
    if not ragged:
        return tf.data.Dataset.from_tensor_slices(tuple(map(tf.constant, columns)))
    dtype = tf.constant(columns[1][0]).dtype
    signature = (tf.TensorSpec((), tf.string), tf.TensorSpec((None,), dtype))
    return tf.data.Dataset.from_generator(lambda: zip(*columns, strict=True), output_signature=signature)


@pytest.fixture(scope="module")
def several(make_task):
    return compiled(make_task(TextClassifier, labels=["bad", "good", "so"], problem="multi_label", head_dropout=0.0))


@pytest.fixture(scope="module")
def single(make_task):
    return compiled(make_task(TextClassifier, labels=["bad", "good"], head_dropout=0.0))


def compiled(model):
    model.compile(keras.optimizers.SGD(0.0), run_eagerly=True)
    return model


def loss(model, *data, **options):
    return model.evaluate(*data, return_dict=True, verbose=0, **options)["loss"]


def test_zeros_and_ones_of_unknown_length(several):
    expected = loss(several, X, np.array(MARKS))
    floats = [[float(mark) for mark in row] for row in MARKS]
    for data in (
        dataset(X, MARKS),
        dataset(X, floats, ragged=True),
        dataset(X, [["good"], ["bad"], ["good", "so"]], ragged=True),
        dataset(X, [[1], [0], [1, 2]], ragged=True),
    ):
        np.testing.assert_allclose(loss(several, data), expected, rtol=1e-5)


@pytest.mark.parametrize(
    ("y", "ragged", "message"),
    [
        (MARKS, True, "Every row must name each label once, or be floats"),
        ([[0.0, 1.0], [1.0, 0.0], [0.0, 1.0]], True, "must have 3 numbers, one for each label; rows and lengths"),
        ([[0.0, 2.0, 0.0]] * 3, True, "Every target must be 0 or 1"),
        ([[0, 2, 0], [1, 0, 0], [0, 1, 5]], False, "Every target must be 0 or 1; rows, labels and targets"),
        ([[1], [3], [0]], True, "Every label must be one of"),
    ],
)
def test_what_is_no_set_of_labels(several, y, ragged, message):
    with pytest.raises(tf.errors.InvalidArgumentError, match=message):
        loss(several, dataset(X, y, ragged=ragged))


def test_integers_that_can_be_read_both_ways(make_task):
    model = compiled(make_task(TextClassifier, labels=["a", "b"], problem="multi_label"))
    with pytest.raises(tf.errors.InvalidArgumentError, match="numbers of labels or zeros and ones: pass names, or"):
        loss(model, dataset(X, [[0, 1], [1], [0]], ragged=True))
    assert np.isfinite(loss(model, dataset(X, [["a", "b"], ["b"], ["a"]], ragged=True)))


def test_columns_with_weights_of_rows_and_classes(single):
    y, weights = [1, 0, 1], [0.5, 2.0, 1.0]
    class_weight = {"good": 3.0}
    expected = single.fit(X, y, sample_weight=weights, class_weight=class_weight, verbose=0).history["loss"]
    column = dataset(X, [[label] for label in y], weights)
    np.testing.assert_allclose(
        single.fit(column, class_weight=class_weight, verbose=0).history["loss"], expected, rtol=1e-5
    )


@pytest.mark.parametrize(
    ("columns", "error", "message"),
    [
        ((X, [1.7, 0.4, 1.2]), tf.errors.InvalidArgumentError, "Every label must be one of .*rows and labels"),
        ((X, [1, 0, 1], [1.0, -3.0, 1.0]), tf.errors.InvalidArgumentError, "Every weight must be a finite number"),
        ((X, [1, 0, 1], [1.0, np.nan, 1.0]), tf.errors.InvalidArgumentError, "Every weight must be a finite number"),
        ((X, [[0, 1], [1, 0], [0, 1]]), ValueError, r"must hold one label per text, of the shape \(batch,\), got"),
    ],
)
def test_wrong_labels_and_weights(single, columns, error, message):
    with pytest.raises(error, match=message):
        loss(single, dataset(*columns))


def test_wrong_numbers(make_task):
    model = compiled(make_task(TextClassifier, labels=1, problem="regression"))
    with pytest.raises(tf.errors.InvalidArgumentError, match="Every target must be finite"):
        loss(model, dataset(X, [1.0, np.nan, 2.0]))
    model = compiled(make_task(TextEmbedder, objective="cosine_regression"))
    with pytest.raises(tf.errors.InvalidArgumentError, match="Every similarity must be a cosine from -1 to 1"):
        loss(model, tf.data.Dataset.from_tensor_slices(((X, X), [1.0, 0.5, -2.0])))


def test_class_weights_of_words_on_token_level(make_task):
    model = compiled(make_task(TokenClassifier, labels=["O", "B-X"], head_dropout=0.0))
    words = [text.split() for text in X]
    tags = [["B-X" if word == "alpha" else "O" for word in row] for row in words]
    expected = model.fit(words, tags, class_weight={"B-X": 10.0}, verbose=0).history["loss"]
    plain = model.fit(words, tags, verbose=0).history["loss"]
    assert abs(expected[0] - plain[0]) > 1e-3
    checked = model.preprocessor.check_rows(words, "x")
    batch = model.preprocessor.training_batch(checked, model.preprocessor.check_targets(tags, checked, "y", "x"))
    inputs, labels, weights = keras.tree.map_structure(np.asarray, batch)
    for data, options in (
        ((inputs, labels), {"sample_weight": weights}),
        ((tf.data.Dataset.from_tensors(batch),), {}),
        ((iter([(inputs, labels, weights)]),), {}),
    ):
        found = model.fit(*data, **options, class_weight={"B-X": 10.0}, verbose=0).history["loss"]
        np.testing.assert_allclose(found, expected, rtol=1e-4)


def test_class_weights_by_name_on_one_batch(single):
    y, class_weight = ["good", "bad", "good"], {"good": 2.0}
    expected = single.fit(X, y, class_weight=class_weight, verbose=0).history["loss"][0]
    values = single.train_on_batch(X, y, class_weight=class_weight, return_dict=True)
    np.testing.assert_allclose(values["loss"], expected, rtol=1e-5)
    assert abs(expected - loss(single, X, y)) > 1e-4
