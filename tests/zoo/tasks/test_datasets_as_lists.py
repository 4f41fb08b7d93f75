"""Labels and weights in a `tf.data.Dataset` mean what they mean in lists, and are held to the same rules."""

import keras
import numpy as np
import pytest

tf = pytest.importorskip("tensorflow")

from zoo.preprocessing.token_rows import checked_weights  # noqa: E402
from zoo.tasks import MaskedLM, TextClassifier, TextEmbedder, TokenClassifier  # noqa: E402

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


def test_weights_as_a_column(make_task, single):
    weights, class_weight = np.array([0.0, 1.0, 5.0], "float32"), {"good": 3.0}
    expected = single.fit(X, [1, 0, 1], sample_weight=weights, class_weight=class_weight, verbose=0).history["loss"]
    data = dataset(X, [1, 0, 1], weights[:, np.newaxis])
    np.testing.assert_allclose(
        single.fit(data, class_weight=class_weight, verbose=0).history["loss"], expected, rtol=1e-5
    )
    model = compiled(make_task(MaskedLM))
    expected = loss(model, X, sample_weight=weights)
    assert abs(expected - loss(model, X)) > 1e-3
    rows = tf.data.Dataset.from_tensor_slices((X, None, weights[:, np.newaxis]))
    np.testing.assert_allclose(loss(model, rows), expected, rtol=1e-5)
    for shape in ((3, 2), (3, 1, 1), ()):
        with pytest.raises(ValueError, match=r"must hold one weight per row, of the shape \(batch,\), got"):
            checked_weights(np.ones(shape))


def test_weights_as_a_column_on_token_level(single):
    inputs, labels, weights = single.preprocessor(X), np.array([1, 0, 1]), np.array([0.5, 1.0, 5.0])
    options = {"class_weight": {"good": 3.0}, "verbose": 0}
    expected = single.fit(X, labels, sample_weight=weights, **options).history["loss"]
    column = weights[:, np.newaxis]
    for data in (
        (inputs, labels, column),
        (inputs, labels[:, np.newaxis], weights),
        (tf.data.Dataset.from_tensors((inputs, labels, column)),),
        (tf.data.Dataset.from_tensors((inputs, labels.astype("float32"), column)),),
    ):
        given = dict(zip(("x", "y", "sample_weight"), data, strict=False))
        np.testing.assert_allclose(single.fit(**given, **options).history["loss"], expected, rtol=1e-5)
    with pytest.raises(
        ValueError, match=r"sample_weight must hold one weight per row or label, got the shape \(3, 2\)"
    ):
        single.fit(inputs, labels, sample_weight=np.ones((3, 2)), **options)


def test_class_weights_are_for_training_rows_alone(single):
    texts, labels, weights = [*X, "beta"], np.array([1, 0, 1, 0]), np.array([1.0, 2.0, 0.5, 3.0], "float32")
    inputs, options = single.preprocessor(texts), {"class_weight": {"good": 9.0}, "validation_split": 0.5, "verbose": 0}
    for given in ({}, {"sample_weight": weights}, {"sample_weight": weights[:, np.newaxis]}):
        flat = {name: column.ravel() for name, column in given.items()}
        expected = single.fit(texts, labels, **flat, **options).history
        held = {name: column[2:] for name, column in flat.items()}
        np.testing.assert_allclose(expected["val_loss"], loss(single, texts[2:], labels[2:], **held), rtol=1e-5)
        found = single.fit(inputs, labels, **given, **options).history
        for name in ("loss", "val_loss", "val_accuracy"):
            np.testing.assert_allclose(found[name], expected[name], rtol=1e-5, err_msg=name)


@pytest.mark.parametrize(
    ("labels", "message"),
    [
        (["good", "bad", "good"], "class_weight needs whole numbers .* as labels, one per row, got labels of the type"),
        ([[0.0, 1.0], [1.0, 0.0], [0.0, 1.0]], r"one per row, got labels of the shape \(.*, 2\)"),
        ([1, -1, 0], "class_weight needs whole numbers from 0 to 1 as labels"),
        ([1, 2, 0], "class_weight needs whole numbers from 0 to 1 as labels"),
        ([0.5, 1.0, 0.0], "class_weight needs whole numbers from 0 to 1 as labels"),
    ],
)
def test_class_weights_need_numbers_of_labels(single, labels, message):
    inputs, labels = single.preprocessor(X), np.array(labels)
    with pytest.raises(ValueError, match=message):
        single.fit(inputs, labels, class_weight={"good": 3.0}, verbose=0)
    with pytest.raises((ValueError, tf.errors.InvalidArgumentError), match=message):
        single.fit(tf.data.Dataset.from_tensors((inputs, labels)), class_weight={"good": 3.0}, verbose=0)


def test_rows_of_equal_length(make_task, several):
    model = compiled(make_task(TokenClassifier, labels=["O", "B-X"], head_dropout=0.0))
    words, tags = [["alpha", "beta"], ["omega", "iota"], ["beta", "kappa"]], [["B-X", "O"], ["O", "O"], ["O", "B-X"]]
    expected = loss(model, words, tags)
    for data in (dataset(words, tags), dataset(words, [[1, 0], [0, 0], [0, 1]]).batch(2)):
        np.testing.assert_allclose(loss(model, data), expected, rtol=1e-4)
    np.testing.assert_allclose(model.predict(dataset(words, tags))[2], model.predict(words)[2], rtol=1e-5)
    with pytest.raises(ValueError, match=r"must hold lists of words, of the shape \(batch, None\), got \("):
        loss(model, dataset(X, [0, 1, 1]))
    with pytest.raises(ValueError, match=r"must hold lists of labels, of the shape \(batch, None\), got \("):
        loss(model, dataset(words, [0, 1, 1]))
    expected = loss(several, X, [["good"], ["bad"], ["so"]])
    for y in ([["good"], ["bad"], ["so"]], [[1], [0], [2]]):
        np.testing.assert_allclose(loss(several, dataset(X, y)), expected, rtol=1e-5)
    with pytest.raises(ValueError, match=r"lists of names, of the shape \(batch, None\), got \("):
        loss(several, dataset(X, ["good", "bad", "so"]))
