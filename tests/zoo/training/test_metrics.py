"""Token metrics against NumPy, over batches of different lengths."""

import keras
import numpy as np
import pytest
from keras import ops

from zoo.training.losses import TokenCrossEntropy
from zoo.training.metrics import Perplexity, TokenAccuracy, TokenCount, TokenNegativeLogLikelihood


def batches_of_two_lengths():
    generator = np.random.default_rng(0)
    for batch, length in ((3, 4), (2, 9)):
        logits = generator.normal(size=(batch, length, 6)).astype("float32") * 3
        labels = np.where(generator.random((batch, length)) < 0.5, logits.argmax(-1), 0).astype("int32")
        weights = (np.arange(length) < generator.integers(1, length, (batch, 1))).astype("float32")
        yield labels, logits, weights


def over_all_tokens(values_of_batch):
    """Mean over all real tokens of all batches, in float64."""
    values, weights = [], []
    for labels, logits, weight in batches_of_two_lengths():
        values.append(values_of_batch(labels, logits.astype("float64")).ravel())
        weights.append(weight.ravel())
    return np.average(np.concatenate(values), weights=np.concatenate(weights))


def negative_log_likelihoods(labels, logits):
    probabilities = np.exp(logits) / np.exp(logits).sum(-1, keepdims=True)
    return -np.log(np.take_along_axis(probabilities, labels[..., None], -1)[..., 0])


@pytest.mark.parametrize(
    ("metric", "expected"),
    [
        (TokenNegativeLogLikelihood(), over_all_tokens(negative_log_likelihoods)),
        (Perplexity(), np.exp(over_all_tokens(negative_log_likelihoods))),
        (TokenAccuracy(), over_all_tokens(lambda labels, logits: logits.argmax(-1) == labels)),
        (TokenCount(), sum(weights.sum() for _, _, weights in batches_of_two_lengths())),
    ],
    ids=lambda value: getattr(value, "name", ""),
)
def test_every_real_token_counts_the_same(metric, expected):
    for labels, logits, weights in batches_of_two_lengths():
        metric.update_state(labels, logits, sample_weight=weights)
    assert float(metric.result()) == pytest.approx(expected, rel=1e-6)
    metric.reset_state()
    assert float(metric.result()) == (1.0 if isinstance(metric, Perplexity) else 0.0)


def test_without_weights_all_tokens_count():
    labels, logits, _ = next(batches_of_two_lengths())
    metric = TokenAccuracy()
    metric.update_state(labels, logits)
    assert float(metric.result()) == pytest.approx((logits.argmax(-1) == labels).mean())


@pytest.mark.parametrize("dtype", ["bfloat16", "float16"])
def test_half_precision_logits(dtype):
    labels, logits, weights = next(batches_of_two_lengths())
    half = ops.cast(logits, dtype)
    exact = ops.convert_to_numpy(ops.cast(half, "float32")).astype("float64")
    metric = TokenNegativeLogLikelihood()
    metric.update_state(labels, half, sample_weight=weights)
    expected = np.average(negative_log_likelihoods(labels, exact), weights=weights)
    assert float(metric.result()) == pytest.approx(expected, rel=1e-6)


def test_among_equal_logits_the_first_class_is_the_prediction():
    metric = TokenAccuracy()
    metric.update_state([[0, 1]], np.zeros((1, 2, 3), "float32"))
    assert float(metric.result()) == 0.5


def test_label_out_of_range_raises():
    with pytest.raises(ValueError, match="labels from 0 to 5, .* got labels from 0 to 6"):
        TokenAccuracy().update_state([[0, 6]], np.zeros((1, 2, 6), "float32"))


@pytest.mark.parametrize("kind", [TokenNegativeLogLikelihood, Perplexity, TokenAccuracy, TokenCount])
def test_reloads_from_its_config(kind):
    metric = kind(name="mine")
    again = keras.saving.deserialize_keras_object(keras.saving.serialize_keras_object(metric))
    assert type(again) is kind and again.name == "mine"


def test_in_fit_and_evaluate_with_the_smoothed_loss():
    keras.utils.set_random_seed(0)
    model = keras.Sequential([keras.Input((None,)), keras.layers.Embedding(6, 4), keras.layers.Dense(6)])
    model.compile(
        "sgd",
        TokenCrossEntropy(0.1),
        weighted_metrics=[TokenNegativeLogLikelihood(), Perplexity(), TokenAccuracy(), TokenCount()],
    )
    inputs, labels = np.random.default_rng(0).integers(0, 6, (2, 8, 5))
    weights = np.tile([1.0, 1.0, 1.0, 0.0, 0.0], (8, 1))
    expected = np.average(negative_log_likelihoods(labels, model.predict(inputs, verbose=0)), weights=weights)
    model.fit(inputs, labels, sample_weight=weights, verbose=0)
    logs = model.evaluate(inputs, labels, sample_weight=weights, verbose=0, return_dict=True)
    assert set(logs) == {"loss", "negative_log_likelihood", "perplexity", "token_accuracy", "tokens"}
    assert logs["tokens"] == 24
    assert logs["negative_log_likelihood"] < expected  # the training step helped
    assert logs["perplexity"] == pytest.approx(np.exp(logs["negative_log_likelihood"]), rel=1e-6)


def test_heeds_the_implicit_mask_of_a_model():
    model = keras.Sequential(
        [keras.Input((None,)), keras.layers.Embedding(6, 4, mask_zero=True), keras.layers.Dense(6)]
    )
    metrics = [TokenCount(), TokenNegativeLogLikelihood()]
    model.compile("sgd", TokenCrossEntropy(), weighted_metrics=metrics, run_eagerly=True)
    inputs = np.array([[1, 2, 0, 0], [3, 0, 0, 0]])
    logs = model.evaluate(inputs, inputs, verbose=0, return_dict=True)
    assert logs["tokens"] == 3
    assert logs["negative_log_likelihood"] == pytest.approx(logs["loss"], rel=1e-6)


def test_tokens_of_an_epoch_are_not_those_of_its_validation():
    model = keras.Sequential([keras.Input((3, 2)), keras.layers.Dense(4)])
    model.compile("sgd", TokenCrossEntropy(), weighted_metrics=[TokenCount()], run_eagerly=True)
    inputs, labels = np.ones((8, 3, 2)), np.zeros((8, 3))
    history = model.fit(
        inputs, labels, batch_size=4, epochs=2, validation_data=(inputs[:1], labels[:1]), verbose=0
    ).history
    assert (history["tokens"], history["val_tokens"]) == ([24, 24], [3, 3])
