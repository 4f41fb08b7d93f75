"""Losses of preferences against the papers' formulas in NumPy; likelihoods of replies against `score`."""

import keras
import numpy as np
import pytest

import zoo
from zoo.preprocessing.conversations import reply_tokens
from zoo.training import DirectPreference, IdentityPreference, OddsRatioPreference, ReplyLikelihoods

LIKELIHOODS = np.array([[-12.0, -9.0], [-3.0, -20.0], [-7.5, -7.0]])
COUNTS = np.array([[4.0, 6.0], [3.0, 5.0], [2.0, 2.0]])
REFERENCE = np.array([[-11.0, -10.0], [-6.0, -12.0], [-7.5, -7.0]])
PREDICTED = np.stack([LIKELIHOODS, COUNTS], axis=-1)


def sigmoid(x):
    return 1 / (1 + np.exp(-x))


@pytest.mark.parametrize("label_smoothing", [0.0, 0.2])
def test_direct_preference(label_smoothing):
    beta, expected = 0.3, []
    for (chosen, rejected), (reference_chosen, reference_rejected) in zip(LIKELIHOODS, REFERENCE, strict=True):
        # equation 7 of the paper, with ratios of probabilities as it is written
        ratios = np.exp(chosen) / np.exp(reference_chosen), np.exp(rejected) / np.exp(reference_rejected)
        p = sigmoid(beta * np.log(ratios[0]) - beta * np.log(ratios[1]))
        expected.append(-(1 - label_smoothing) * np.log(p) - label_smoothing * np.log(1 - p))
    loss = DirectPreference(beta, label_smoothing)
    np.testing.assert_allclose(loss(REFERENCE, PREDICTED), np.mean(expected), rtol=1e-5)
    np.testing.assert_allclose(loss.rewards(REFERENCE, PREDICTED), beta * (LIKELIHOODS - REFERENCE), rtol=1e-5)
    np.testing.assert_allclose(loss.margins(REFERENCE, PREDICTED), [-0.6, 3.3, 0.0], rtol=1e-5, atol=1e-6)
    np.testing.assert_array_equal(loss.accuracies(REFERENCE, PREDICTED), [0.0, 1.0, 0.5])


def test_identity_preference():
    h = (LIKELIHOODS - REFERENCE) @ [1, -1]
    np.testing.assert_allclose(
        IdentityPreference(0.25)(REFERENCE, PREDICTED), np.mean((h - 1 / (2 * 0.25)) ** 2), rtol=1e-5
    )


def test_odds_ratio_preference():
    p = np.exp(LIKELIHOODS / COUNTS)
    odds = p / (1 - p)
    expected = -np.log(p[:, 0]) - 0.4 * np.log(sigmoid(np.log(odds[:, 0] / odds[:, 1])))
    loss = OddsRatioPreference(0.4)
    np.testing.assert_allclose(loss(np.zeros((3, 2)), PREDICTED), np.mean(expected), rtol=1e-5)
    np.testing.assert_allclose(loss.margins(REFERENCE, PREDICTED), 0.4 * (np.log(p) @ [1, -1]), rtol=1e-5)
    # likelihoods of 1 and of nothing are finite
    certain = np.array([[[0.0, 1.0], [-200.0, 1.0]]])
    assert np.isfinite(float(loss(np.zeros((1, 2)), certain)))


def test_configurations_and_errors():
    copy = keras.losses.deserialize(keras.losses.serialize(DirectPreference(0.7, 0.1)))
    assert (copy.beta, copy.label_smoothing, copy.needs_reference) == (0.7, 0.1, True)
    assert not keras.losses.deserialize(keras.losses.serialize(OddsRatioPreference(0.7))).needs_reference
    assert keras.losses.deserialize(keras.losses.serialize(IdentityPreference(0.7))).beta == 0.7
    with pytest.raises(ValueError, match="beta must be above 0, got 0"):
        IdentityPreference(0)
    with pytest.raises(ValueError, match="label_smoothing must be at least 0 and below 1/2, got 0.5"):
        DirectPreference(label_smoothing=0.5)
    with pytest.raises(ValueError, match=r"y_pred must hold .* \(batch, 2, 2\), got \(3, 2\)"):
        DirectPreference()(REFERENCE, LIKELIHOODS)


def test_likelihoods_of_replies_are_those_of_score(make_task):
    config = {"architecture": "decoder", "pooler": False, "embedding": zoo.EmbeddingConfig()}
    model = make_task(zoo.CausalLM, config=config)
    prompts, replies = ["alpha beta", "kappa"], [" gamma iota", " omega"]
    tokens = reply_tokens(model.preprocessor, prompts * 2, [*replies, *replies[::-1]])
    ids, learned = (tokens[name].to_tensor() for name in ("ids", "learned"))
    inputs = {
        "token_ids": ids[:, :-1],
        "padding_mask": tokens["ids"].with_values(np.ones(len(tokens["ids"].values), bool)).to_tensor()[:, :-1],
        "labels": ids[:, 1:],
        "weights": np.array(learned[:, 1:], "float32"),
    }
    inputs = {name: np.reshape(np.array(value), (2, 2, -1)) for name, value in inputs.items()}
    likelihoods = np.array(ReplyLikelihoods(model)(inputs))
    expected = model.score([*replies, *replies[::-1]], prompts * 2, with_end=True).reshape(2, 2)
    np.testing.assert_allclose(likelihoods[..., 0], expected, rtol=1e-4)
    np.testing.assert_array_equal(likelihoods[..., 1], inputs["weights"].sum(axis=-1))


def test_a_model_around_another_follows_its_adapters(make_task):
    """Compiled functions and optimizers know the variables of when they were made."""
    task = make_task(
        zoo.CausalLM, config={"architecture": "decoder", "pooler": False, "embedding": zoo.EmbeddingConfig()}
    )
    ids = np.random.default_rng(0).integers(5, 12, (2, 2, 5)).astype("int32")
    inputs = {"token_ids": ids[..., :-1], "padding_mask": ids[..., 1:] > 0, "labels": ids[..., 1:]}
    inputs["weights"] = np.ones((2, 2, 4), "float32")
    model = ReplyLikelihoods(task)
    model.compile(keras.optimizers.SGD(0.1), OddsRatioPreference())
    model.fit(inputs, np.zeros((2, 2)), verbose=0)
    plain = model.predict(inputs, verbose=0)
    task.enable_lora(2)
    kernels = {weight.path: np.array(weight) for weight in task.non_trainable_weights}
    model.fit(inputs, np.zeros((2, 2)), epochs=2, verbose=0)
    for weight in task.non_trainable_weights:
        np.testing.assert_array_equal(weight, kernels[weight.path])
    adapted = model.predict(inputs, verbose=0)
    assert np.abs(adapted - plain).max() > 1e-4
    task.activate_adapters()
    np.testing.assert_allclose(model.predict(inputs, verbose=0), plain, rtol=1e-5)
    task.activate_adapters("default")
    task.merge_lora()
    np.testing.assert_allclose(model.predict(inputs, verbose=0), adapted, rtol=1e-4)
    task.quantize("int8")
    with pytest.raises(ValueError, match=r"^fit\(\) needs weights that can train; these are stored in int8"):
        model.fit(inputs, np.zeros((2, 2)), verbose=0)
