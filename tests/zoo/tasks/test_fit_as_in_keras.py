"""What users of Keras pass to `compile`, `fit` and calls: made right, or refused with what is allowed."""

import keras
import numpy as np
import pytest

tf = pytest.importorskip("tensorflow")

from zoo import Backbone, CausalLM, Seq2SeqLM, TransformerConfig  # noqa: E402
from zoo.preprocessing.datasets import batches_of, weigh_labels  # noqa: E402
from zoo.tasks import MaskedLM, TextClassifier, TextEmbedder, TokenClassifier  # noqa: E402
from zoo.training import TokenAccuracy  # noqa: E402

X, Y = ["alpha beta", "omega", "kappa iota alpha"], ["good", "bad", "good"]
NUMBERS = np.array([1, 0, 1])


@pytest.fixture(scope="module")
def classifier(make_task):
    return make_task(TextClassifier, labels=["bad", "good"], head_dropout=0.0)


def writes_text(task_class, architecture, encoder_config, tokenizer):
    config = {**encoder_config.to_dict(), "architecture": architecture, "pooler": False}
    config["embedding"] = {**config["embedding"], "num_segments": 0}
    model = task_class(Backbone.from_config(TransformerConfig.from_dict(config)), tokenizer)
    model.run_eagerly = True
    return model


@pytest.fixture(scope="module")
def language_model(encoder_config, mask_tokenizer):
    return writes_text(CausalLM, "decoder", encoder_config, mask_tokenizer)


def cross_entropies(model):
    return -np.log(np.asarray(model.predict(X), "float64")[np.arange(3), NUMBERS])


@pytest.mark.parametrize(
    "loss",
    [
        "sparse_categorical_crossentropy",
        "SparseCategoricalCrossentropy",
        keras.losses.sparse_categorical_crossentropy,
        keras.losses.SparseCategoricalCrossentropy,
    ],
)
def test_losses_by_name_are_of_the_probabilities(classifier, loss):
    by_name = "sparse_categorical_crossentropy"
    metric = keras.metrics.SparseCategoricalCrossentropy if isinstance(loss, type) else by_name
    classifier.compile("sgd", loss, metrics=[metric, "accuracy"], run_eagerly=True)
    expected = cross_entropies(classifier).mean()
    values = classifier.evaluate(X, Y, return_dict=True, verbose=0)
    np.testing.assert_allclose(values["loss"], expected, rtol=1e-5)
    np.testing.assert_allclose(values["sparse_categorical_crossentropy"], expected, rtol=1e-5)
    np.testing.assert_allclose(values["accuracy"], np.mean(classifier.predict(X).argmax(-1) == NUMBERS))


def test_metrics_of_an_earlier_compile_are_gone(language_model):
    language_model.compile("sgd", weighted_metrics=[TokenAccuracy()], run_eagerly=True)
    assert set(language_model.evaluate(X, return_dict=True, verbose=0)) == {"loss", "token_accuracy"}
    for none in ({}, {"weighted_metrics": None}):
        language_model.compile("sgd", run_eagerly=True, **none)
        assert set(language_model.evaluate(X, return_dict=True, verbose=0)) == {"loss"}


def nats(model, labels, at=slice(None), **token_ids):
    """Losses of the labels of one row that is not padded, by the softmax of its logits at some places."""
    inputs = {name: np.array([ids]) for name, ids in token_ids.items()}
    masks = {name.replace("token_ids", "padding_mask"): np.ones_like(ids, bool) for name, ids in inputs.items()}
    logits = np.asarray(model({**inputs, **masks}), "float64")[0][at]
    return np.log(np.exp(logits).sum(-1)) - logits[np.arange(len(labels)), labels]


def losses_of_tags(make_task, encoder_config, tokenizer):
    model, tags = make_task(TokenClassifier, labels=["O", "B-X"], head_dropout=0.0), [[0, 1], [1], [0, 0, 1]]
    losses = []
    for text, labels in zip(X, tags, strict=True):
        pieces = [tokenizer.tokenize(word).numpy().tolist() for word in text.split()]
        first = 1 + np.cumsum([0, *map(len, pieces[:-1])])
        ids = [tokenizer.start_id, *sum(pieces, []), tokenizer.end_id]
        losses.append(nats(model, labels, first, token_ids=ids))
    return model, ([text.split() for text in X], tags), losses


def losses_of_hidden_tokens(make_task, encoder_config, tokenizer):
    model = make_task(MaskedLM, mask_rate=0.5)
    inputs, labels, weights = keras.tree.map_structure(
        np.asarray, model.preprocessor.training_batch(tf.constant(X), seed=1)
    )
    losses = []
    for row, mask in enumerate(inputs["padding_mask"]):
        hidden = weights[row] > 0
        ids = inputs["token_ids"][row][mask]
        losses.append(nats(model, labels[row][hidden], inputs["mask_positions"][row][hidden], token_ids=ids))
    return model, (inputs, labels, weights), losses


def losses_of_next_tokens(make_task, encoder_config, tokenizer):
    model, losses = writes_text(CausalLM, "decoder", encoder_config, tokenizer), []
    for text in X:
        ids = [tokenizer.start_id, *tokenizer.tokenize(text).numpy(), tokenizer.end_id]
        losses.append(nats(model, ids[1:], token_ids=ids[:-1]))
    return model, (X,), losses


def losses_of_targets(make_task, encoder_config, tokenizer):
    model, losses = writes_text(Seq2SeqLM, "encoder_decoder", encoder_config, tokenizer), []
    for source, target in zip(X, X[::-1], strict=True):
        sources, targets = (
            [tokenizer.start_id, *tokenizer.tokenize(text).numpy(), tokenizer.end_id] for text in (source, target)
        )
        losses.append(nats(model, targets[1:], encoder_token_ids=sources[1:], decoder_token_ids=targets[:-1]))
    return model, (X, X[::-1]), losses


@pytest.mark.parametrize(
    "make",
    [losses_of_tags, losses_of_hidden_tokens, losses_of_next_tokens, losses_of_targets],
    ids=lambda f: f.__name__,
)
def test_losses_by_name_are_means_over_tokens(make, make_task, encoder_config, mask_tokenizer):
    """Of all rows together: a row of three tokens counts three times as much as one of one, padding not at all."""
    model, data, losses = make(make_task, encoder_config, mask_tokenizer)
    assert len({len(row) for row in losses}) > 1
    expected = np.concatenate(losses).mean()
    assert abs(expected - np.mean([row.mean() for row in losses])) > 1e-3 * expected
    name = "sparse_categorical_crossentropy"
    model.compile("sgd", name, weighted_metrics=[name], run_eagerly=True)
    arguments = dict(zip(("x", "y", "sample_weight"), data, strict=False))
    values = model.evaluate(**arguments, return_dict=True, verbose=0)
    np.testing.assert_allclose([values["loss"], values[name]], expected, rtol=1e-4)


@pytest.mark.parametrize("wrap", [lambda name: [name], lambda name: (name,)], ids=["list", "tuple"])
def test_losses_and_metrics_in_lists(classifier, wrap):
    name = "sparse_categorical_crossentropy"
    classifier.compile("sgd", wrap(name), metrics=[wrap(name)], run_eagerly=True)
    values = classifier.evaluate(X, Y, return_dict=True, verbose=0)
    np.testing.assert_allclose([values["loss"], values[name]], cross_entropies(classifier).mean(), rtol=1e-5)


def test_losses_of_several_labels_by_name(make_task):
    model = make_task(TextClassifier, labels=3, problem="multi_label", head_dropout=0.0)
    y = np.array([[0, 1, 0], [1, 1, 0], [0, 0, 0]])
    metrics = ["Accuracy", "BinaryAccuracy", "accuracy", keras.metrics.BinaryAccuracy]
    model.compile("sgd", "binary_crossentropy", metrics=metrics, run_eagerly=True)
    probabilities = np.asarray(model.predict(X), "float64")
    expected = -np.mean(np.where(y, np.log(probabilities), np.log1p(-probabilities)))
    for given in (y, y.tolist(), [[1], [0, 1], []]):
        values = model.evaluate(X, given, return_dict=True, verbose=0)
        np.testing.assert_allclose(values["loss"], expected, rtol=1e-5)
        for name in ("Accuracy", "BinaryAccuracy", "accuracy", "binary_accuracy"):
            np.testing.assert_allclose(values[name], np.mean((probabilities > 0.5) == y))


def test_nested_lists_of_zeros_and_ones_are_no_label_numbers(make_task):
    """`[[0, 1, 0]]` says that the second of three labels holds: not labels 0 and 1, which would be `[[1, 1, 0]]`."""
    model = make_task(TextClassifier, labels=3, problem="multi_label", head_dropout=0.0)
    model.compile(keras.optimizers.SGD(0.0), run_eagerly=True)
    first, second, third = np.asarray(model.predict(X[:1]), "float64")[0]
    expected = -np.mean([np.log(1 - first), np.log(second), np.log(1 - third)])
    misread = -np.mean([np.log(first), np.log(second), np.log(1 - third)])
    assert abs(expected - misread) > 0.01
    np.testing.assert_allclose(model.fit(X[:1], [[0, 1, 0]], verbose=0).history["loss"], [expected], rtol=1e-5)
    np.testing.assert_allclose(model.evaluate(X[:1], [[0, 1]], verbose=0)[0], misread, rtol=1e-5)


def test_one_hot_rows_are_told_what_to_be(classifier):
    with pytest.raises(ValueError, match=r"y\[0\] must be one of .* Of one-hot rows pass np.argmax\(y, axis=-1\)"):
        classifier.fit(X, keras.utils.to_categorical(NUMBERS, 2), verbose=0)


def test_lists_of_bools_and_floats_are_no_label_numbers(make_task):
    preprocessor = make_task(TextClassifier, labels=2, problem="multi_label").preprocessor
    for labels in ([[True, False], [False, True]], [[1.0, 0.0], [0.0, 1.0]]):
        np.testing.assert_array_equal(preprocessor.examples(X[:2], labels).targets, [[1.0, 0.0], [0.0, 1.0]])


class OwnMetric(keras.metrics.Metric):
    """Looks at logits by itself, with a threshold of its own."""

    threshold = 0.5

    def update_state(self, y_true, y_pred, sample_weight=None):
        pass

    def result(self):
        return 1.0


class OwnLoss(keras.losses.Loss):
    from_logits = False

    def call(self, y_true, y_pred):
        return keras.ops.mean(y_pred, axis=-1)


def test_own_losses_and_metrics_are_taken(classifier):
    metric, loss = OwnMetric(name="own"), OwnLoss()
    classifier.compile(loss=loss, metrics=[metric], run_eagerly=True)
    assert classifier.evaluate(X, Y, return_dict=True, verbose=0)["own"] == 1.0


def test_series_of_zeros_and_ones_are_no_label_numbers(make_task):
    import pandas

    preprocessor = make_task(TextClassifier, labels=2, problem="multi_label").preprocessor
    rows = np.empty(2, object)
    rows[:] = [[1, 0], [1, 1]]
    for labels in (pandas.Series([[1, 0], [1, 1]]), rows):
        np.testing.assert_array_equal(preprocessor.examples(X[:2], labels).targets, [[1.0, 0.0], [1.0, 1.0]])


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"loss": keras.losses.SparseCategoricalCrossentropy()}, r"loss must take logits, .*\(from_logits=True\)"),
        ({"loss": "CE"}, "loss must be a cross-entropy by its full name, .* or 'auto', got 'CE'"),
        ({"loss": ["crossentropy"]}, "loss must be a cross-entropy by its full name"),
        ({"loss": keras.losses.KLDivergence}, "loss must take logits, .* got .*, one of probabilities"),
        ({"loss": "kl_divergence"}, "loss must take logits"),
        ({"loss": keras.losses.CategoricalGeneralizedCrossEntropy()}, "loss must take logits, .* one of probabilities"),
        ({"metrics": ["auc"]}, r"metrics\[0\] must take logits, .*AUC\(from_logits=True\), got 'auc'"),
        ({"metrics": [keras.metrics.AUC]}, r"metrics\[0\] must take logits, .*AUC\(from_logits=True\)"),
        ({"metrics": [keras.metrics.Precision]}, r"metrics\[0\] must look at logits, .*Precision\(thresholds=0.0\)"),
        ({"metrics": ["FalseNegatives"]}, r"metrics\[0\] must look at logits, .*\(thresholds=0.0\), got 'FalseN"),
        ({"metrics": ["BinaryIoU"]}, r"metrics\[0\] must look at logits, .*BinaryIoU\(threshold=0.0\)"),
        ({"metrics": ["kl_divergence"]}, r"metrics\[0\] must take logits"),
        ({"metrics": [{"class_name": "Recall", "config": {}}]}, r"metrics\[0\] must look at logits"),
        (
            {"loss": {"class_name": "SparseCategoricalCrossentropy", "config": {}}},
            r"loss must take logits, .*\(from_logits=True\), got .* with from_logits=False",
        ),
        (
            {"metrics": [[keras.metrics.Precision()]]},
            r"metrics\[0\]\[0\] must look at logits, .*Precision\(thresholds=0.0\), got .* the threshold 0.5",
        ),
        ({"metrics": {"output": keras.metrics.BinaryAccuracy()}}, r"metrics\['output'\] must look at logits"),
        ({"metrics": [keras.metrics.RecallAtPrecision(0.5)]}, "got .*RecallAtPrecision.*, one of probabilities"),
        (
            {"weighted_metrics": ["accuracy", keras.metrics.SparseCategoricalCrossentropy()]},
            r"weighted_metrics\[1\] must take logits",
        ),
    ],
)
def test_what_expects_probabilities_is_refused(make_task, options, message):
    with pytest.raises(ValueError, match=message):
        make_task(TextClassifier, labels=2).compile(**options)


def test_class_weights_by_name_and_number(classifier):
    classifier.compile(keras.optimizers.SGD(0.0), run_eagerly=True)
    losses, weights = cross_entropies(classifier), np.array([3.0, 0.5, 3.0])
    token_level = classifier.preprocessor.training_batch(tf.constant(X), tf.constant(NUMBERS, tf.int32))
    inputs = {name: np.asarray(value) for name, value in token_level[0].items()}
    for class_weight in ({"good": 3.0, "bad": 0.5}, {1: 3.0, 0: 0.5}):
        for data in ((X, Y), (tf.data.Dataset.from_tensor_slices((X, Y)),), (inputs, NUMBERS)):
            loss = classifier.fit(*data, class_weight=class_weight, verbose=0).history["loss"][0]
            np.testing.assert_allclose(loss, (losses * weights).mean(), rtol=1e-4)
    for class_weight, message in (
        ({"odd": 1.0}, "each key of class_weight must be one of"),
        ({"good": -1.0}, r"class_weight\['good'\] must be a finite number of at least 0, got -1.0"),
    ):
        with pytest.raises((TypeError, ValueError), match=message):
            classifier.fit(X, Y, class_weight=class_weight, verbose=0)


class Batches(keras.utils.PyDataset):
    def __len__(self):
        return 2

    def __getitem__(self, index):
        return (X[:2], Y[:2]) if index == 0 else (X[2:], Y[2:])


def test_generators_and_datasets_of_keras(classifier):
    classifier.compile(keras.optimizers.SGD(0.0), run_eagerly=True)
    expected = cross_entropies(classifier)
    for data in (Batches(), iter([(X[:2], Y[:2]), (X[2:], Y[2:])])):
        loss = classifier.fit(data, verbose=0).history["loss"][0]
        np.testing.assert_allclose(loss, expected.mean(), rtol=1e-4)
    np.testing.assert_allclose(classifier.evaluate(Batches(), verbose=0)[0], expected.mean(), rtol=1e-4)
    np.testing.assert_allclose(classifier.predict(Batches()), classifier.predict(X), rtol=1e-5)
    forked = Batches(use_multiprocessing=True, workers=2)
    with pytest.raises(ValueError, match="x must have use_multiprocessing=False: it holds texts, .* threads"):
        classifier.fit(forked, verbose=0)
    with pytest.raises(ValueError, match=r"validation_data must have use_multiprocessing=False"):
        classifier.fit(X, Y, validation_data=forked, verbose=0)


def test_generators_of_lists_of_texts(classifier, language_model, make_task):
    """Keras takes a list for a tuple of inputs and labels; a list of texts is one of inputs."""
    expected = classifier.predict(X[:2])
    np.testing.assert_allclose(classifier.predict(batch for batch in [X[:2]]), expected, rtol=1e-5)
    parts = classifier.predict(batch for batch in [[X[:2], Y[:2]]])
    np.testing.assert_allclose(parts, expected, rtol=1e-5)
    language_model.compile(keras.optimizers.SGD(0.0), run_eagerly=True)
    loss = language_model.evaluate((batch for batch in [X[:2]]), verbose=0)
    np.testing.assert_allclose(loss, language_model.evaluate(X[:2], verbose=0), rtol=1e-5)
    embedder = make_task(TextEmbedder)
    embedder.compile(keras.optimizers.SGD(0.0), run_eagerly=True)
    pairs = list(zip(X[:2], X[1:], strict=True))
    loss = embedder.evaluate((batch for batch in [pairs]), verbose=0)
    np.testing.assert_allclose(loss, embedder.evaluate((X[:2], X[1:]), verbose=0), rtol=1e-5)
    history = embedder.fit((X[:2], X[1:]), validation_data=(X[:2], X[1:]), verbose=0).history
    np.testing.assert_allclose(history["val_loss"], loss, rtol=1e-5)
    tagger, words = make_task(TokenClassifier, labels=2), [["alpha", "beta"], ["omega"]]
    for row, other in zip(tagger.predict(batch for batch in [words]), tagger.predict(words), strict=True):
        np.testing.assert_allclose(row, other, rtol=1e-5)


def test_a_number_of_batches_that_the_user_gave_is_kept(classifier):
    texts = tf.data.Dataset.from_tensor_slices((X, NUMBERS)).batch(2)
    tokens = tf.data.Dataset.from_tensor_slices(({"token_ids": np.ones((3, 4))}, NUMBERS)).batch(2)
    weights = np.ones(2, "float32")
    for dataset in (texts, tokens):
        dataset.cardinality = lambda: tf.constant(7, tf.int64)
    assert int(batches_of(classifier.preprocessor, texts, None).cardinality()) == 7
    assert int(weigh_labels(classifier.preprocessor, tokens, None, None, weights)[0].cardinality()) == 7


def test_generators_on_token_level(classifier):
    classifier.compile(keras.optimizers.SGD(0.0), run_eagerly=True)
    expected = classifier.evaluate(X, Y, return_dict=True, verbose=0)["loss"]
    batch = classifier.preprocessor.training_batch(tf.constant(X), tf.constant(NUMBERS, tf.int32))[:2]
    loss = classifier.fit((one for one in [batch]), steps_per_epoch=1, verbose=0).history["loss"][0]
    np.testing.assert_allclose(loss, expected, rtol=1e-4)
    np.testing.assert_allclose(
        classifier.predict((one for one in [batch[:1]]), verbose=0), classifier(batch[0]), rtol=1e-5
    )


def test_validation_on_token_level_has_batches_of_its_own_size(classifier, monkeypatch):
    given = []
    monkeypatch.setattr(keras.Model, "fit", lambda self, **options: given.append(options))
    held = classifier.preprocessor.training_batch(tf.constant(X), tf.constant(NUMBERS, tf.int32))[:2]
    sizes = {"batch_size": 2, "validation_batch_size": 3}
    for data, expected in ((held, 3), ((X, NUMBERS), None), (None, None)):
        classifier.fit(X, NUMBERS, validation_data=data, **sizes)
        assert given.pop()["validation_batch_size"] == expected
    classifier.fit(X, NUMBERS, validation_data=held, batch_size=2)
    assert given.pop()["validation_batch_size"] == 2


def test_single_batches(classifier):
    classifier.compile(keras.optimizers.SGD(0.0), run_eagerly=True)
    expected = cross_entropies(classifier).mean()
    for function in (classifier.train_on_batch, classifier.test_on_batch):
        np.testing.assert_allclose(function(X, Y, return_dict=True)["loss"], expected, rtol=1e-4)
        classifier.reset_metrics()
    np.testing.assert_allclose(classifier.predict_on_batch(X), classifier.predict(X))


@pytest.mark.parametrize(
    ("use", "message"),
    [
        (lambda model, ids: model.fit(ids, verbose=0), r"x must be texts .*, got ndarray of shape \(2, 3\)"),
        (lambda model, ids: model(ids), r"inputs must be texts .*a dictionary of token_ids, padding_mask, got ndarray"),
        (lambda model, ids: model(X), r"inputs must be texts .* got list .*preprocessor\(texts\) makes the dictionary"),
        (
            lambda model, ids: model({"ids": ids}),
            r"inputs must have the inputs .*; token_ids is missing, got \['ids'\]",
        ),
        (
            lambda model, ids: model.fit({"token_ids": ids, "padding_mask": ids > 0}, verbose=0),
            "y must be given with token-level inputs, got None",
        ),
        (lambda model, ids: model.train_on_batch(ids), "x must be texts"),
        (
            lambda model, ids: TextClassifier(model.backbone, model.tokenizer, labels=2).fit(X, packed=True),
            "packed must be False: only a CausalLM learns from texts end to end, got True for a TextClassifier",
        ),
        (
            lambda model, ids: model.fit(iter([({"token_ids": ids, "padding_mask": ids > 0},)]), verbose=0),
            "the labels of each batch of x must be given with token-level inputs, got None",
        ),
        (lambda model, ids: model.fit(iter([(ids, ids)]), verbose=0), "each batch of x must be texts"),
        (lambda model, ids: model.fit(iter([]), verbose=0), "x must yield at least one batch, got a generator that"),
        (
            lambda model, ids: model.backbone(ids),
            r"inputs must be a dictionary of token_ids, padding_mask, got ndarray of shape \(2, 3\)",
        ),
        (lambda model, ids: model.backbone(X), "inputs must be a dictionary of token_ids, padding_mask, got list"),
        (lambda model, ids: model.backbone.quantize("float8"), r"mode must be one of \('int8', 'int4'\), got 'float8'"),
        (
            lambda model, ids: CausalLM(model.backbone, dtype="float8_from_float32"),
            "dtype must be a policy of floating-point numbers, such as 'mixed_bfloat16', got 'float8_from_float32'",
        ),
        (
            lambda model, ids: CausalLM(model.backbone, model.tokenizer, dtype="int32"),
            "dtype must be a policy of floating-point numbers, such as 'mixed_bfloat16', got 'int32'",
        ),
        (
            lambda model, ids: CausalLM(model.backbone, model.tokenizer, dtype=keras.DTypePolicy("float8_e4m3fn")),
            "dtype must be a policy of floating-point numbers, such as 'mixed_bfloat16', got 'float8_e4m3fn'",
        ),
        (lambda model, ids: model.fit(X, Y, class_weight={0: 1.0}, verbose=0), "class_weight must be None|y must be"),
    ],
)
def test_what_is_no_input_is_said(language_model, use, message):
    with pytest.raises((TypeError, ValueError), match=message):
        use(language_model, np.ones((2, 3), "int32"))


def test_data_frames(classifier):
    import pandas

    frame = pandas.DataFrame({"text": X, "label": Y})
    with pytest.raises(
        TypeError, match="x must be a list or column of texts, got a DataFrame: pass one of the columns"
    ):
        classifier.fit(frame, verbose=0)
    np.testing.assert_allclose(classifier.predict(frame["text"]), classifier.predict(X))
    classifier.compile(keras.optimizers.SGD(0.0), run_eagerly=True)
    assert classifier.fit(frame["text"], frame["label"], verbose=0).history["loss"][0] > 0


def test_packed_texts_in_validation_and_with_weights(language_model):
    model, text = language_model, "alpha beta omega kappa " * 10
    model.compile(keras.optimizers.SGD(0.0), run_eagerly=True)
    texts = [text, "omega iota alpha", "beta"]
    # texts longer than the model are cut in validation, too
    history = model.fit(texts, packed=True, validation_data=texts, shuffle=False, verbose=0).history
    np.testing.assert_allclose(history["val_loss"], history["loss"], rtol=1e-4)
    np.testing.assert_allclose(model.evaluate(texts, packed=True, verbose=0), history["loss"], rtol=1e-4)
    with pytest.raises(ValueError, match=r"validation_data\[0\]\[0\] has .* tokens .*max_length=24"):
        model.fit(texts[1:], validation_data=texts, verbose=0)
    alone = model.evaluate(texts[1:2], packed=True, verbose=0)
    loss = model.fit(texts[1:], packed=True, sample_weight=[2.0, 0.0], verbose=0).history["loss"][0]
    np.testing.assert_allclose(loss, 2.0 * alone, rtol=1e-4)


def test_packed_texts_without_a_token_to_predict(language_model, monkeypatch):
    # no start token and texts of nothing: their end token alone
    monkeypatch.setattr(language_model.preprocessor, "text_ids", lambda texts: tf.ragged.constant([[2]] * len(texts)))
    with pytest.raises(ValueError, match="x must hold a token to predict, got texts of at most one token each"):
        language_model.fit(["", ""], packed=True, verbose=0)


def test_packed_datasets_hold_texts_alone(language_model):
    model = language_model
    model.compile(keras.optimizers.SGD(0.0), run_eagerly=True)
    expected = model.evaluate(X, packed=True, verbose=0)
    rows = tf.data.Dataset.from_tensor_slices
    for data in (rows(X), rows((X,)), rows(X).batch(2), rows((X,)).batch(2)):
        np.testing.assert_allclose(model.evaluate(data, packed=True, verbose=0), expected, rtol=1e-5)
    for columns in ((X, NUMBERS), (X, NUMBERS, NUMBERS), (X, None, NUMBERS), ((X, X),)):
        with pytest.raises(ValueError, match="A dataset of packed texts must hold texts"):
            model.fit(rows(columns), packed=True, verbose=0)
    with pytest.raises(ValueError, match="packed=True needs texts, got dict"):
        model.evaluate(*model.preprocessor(X, sample_weight=[1.0, 1.0, 1.0])[:2], packed=True, verbose=0)


@pytest.mark.parametrize(
    "kind", [TextClassifier, TokenClassifier, MaskedLM, TextEmbedder], ids=lambda kind: kind.__name__
)
def test_keras_files_hold_no_megabytes_of_configuration(make_task, kind, tmp_path):
    options = {"labels": 3} if "Classifier" in kind.__name__ else {}
    make_task(kind, **options).save(tmp_path / "model.keras")
    import zipfile

    with zipfile.ZipFile(tmp_path / "model.keras") as file:
        assert len(file.read("config.json")) < 20_000
    assert isinstance(keras.models.load_model(tmp_path / "model.keras"), kind)


def test_the_step_is_traced_once(make_task, monkeypatch):
    model = make_task(TextClassifier, labels=["bad", "good"])
    model.run_eagerly = False
    traced = []
    step = TextClassifier.train_step
    monkeypatch.setattr(TextClassifier, "train_step", lambda self, data: traced.append(data) or step(self, data))
    model.compile("sgd")
    model.fit(X, Y, verbose=0)
    assert len(traced) == 1


def test_in_the_scope_of_a_strategy(encoder_config, mask_tokenizer):
    with tf.distribute.OneDeviceStrategy("/cpu:0").scope():
        model = TextClassifier(Backbone.from_config(encoder_config), mask_tokenizer, labels=["bad", "good"])
        model.compile("sgd", run_eagerly=True)
    # TensorFlow teaches to train outside of it
    assert model.fit(X, Y, verbose=0).history["loss"][0] > 0
    assert int(model.optimizer.iterations) == 1


class BuiltByItsCall(TextClassifier):
    """Has a layer that knows its weights when it is called."""

    def __init__(self, *arguments, **options):
        super().__init__(*arguments, **options)
        self.scores = keras.layers.Dense(2)

    def call(self, inputs, training=None):
        return self.scores(super().call(inputs, training))


def test_layers_that_are_built_by_their_first_call(encoder_config, mask_tokenizer):
    model = BuiltByItsCall(Backbone.from_config(encoder_config), mask_tokenizer, labels=["bad", "good"])
    model.compile("sgd", run_eagerly=True)
    model.fit(X, Y, verbose=0)
    before = np.array(model.scores.kernel)
    model.fit(X, Y, verbose=0)
    assert np.abs(model.scores.kernel - before).max() > 0


def test_rows_are_refused_before_there_are_moments(make_task):
    model = make_task(TextClassifier, labels=["bad", "good"])
    model.compile("adam", run_eagerly=True)
    for train in (model.fit, model.train_on_batch):
        with pytest.raises(ValueError, match=r"y\[1\] must be one of"):
            train(X, ["good", "odd", "bad"])
    assert not model.optimizer.built
    model.backbone.trainable = False
    model.fit(X, Y, verbose=0)
    assert len(model.optimizer.variables) == 2 + 2 * len(model.trainable_variables)


def test_without_an_optimizer(make_task):
    model = make_task(TextClassifier, labels=["bad", "good"])
    model.trainable = False
    model.compile(None, run_eagerly=True)
    with pytest.warns(UserWarning, match="does not have any trainable weights"):
        model.fit(X, Y, verbose=0)
    model.renew_training()
