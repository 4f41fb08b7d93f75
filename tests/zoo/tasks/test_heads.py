"""Heads against their formulas in NumPy."""

from math import erf

import keras
import numpy as np
import pytest

from zoo.tasks.heads import ClassificationHead, MaskedLMHead

gelu = np.vectorize(lambda x: x * (1 + erf(x / 2**0.5)) / 2)
ACTIVATIONS = {"tanh": np.tanh, "relu": lambda x: np.maximum(x, 0), "gelu": gelu}


def normalized(x, gamma, beta, epsilon):
    deviation = np.sqrt(x.var(-1, keepdims=True) + epsilon)
    return (x - x.mean(-1, keepdims=True)) / deviation * gamma + beta


def randomized(layer):
    generator = np.random.default_rng(0)
    for weight in layer.weights:
        weight.assign(generator.normal(size=weight.shape))
    return layer


def test_kernels_that_share_a_seeded_initializer_differ():
    def drawn():
        initializer = keras.initializers.RandomNormal(seed=3)
        head = ClassificationHead(16, hidden_activation="tanh", kernel_initializer=initializer)
        head.build((None, 5, 16))
        return [keras.ops.convert_to_numpy(weight) for weight in head.trainable_weights if len(weight.shape) == 2]

    (first, second), again = drawn(), drawn()
    assert np.std(first) > 0 and not np.allclose(first[0, :2], second[0, :2])
    for one, other in zip((first, second), again, strict=True):
        np.testing.assert_array_equal(one, other)


@pytest.mark.parametrize(
    "options",
    [
        {},
        {"hidden_activation": "tanh"},
        {"hidden_activation": "relu", "dropout_before": 0.0},
        {"hidden_activation": "gelu", "inner_norm": True, "inner_bias": False, "norm_epsilon": 0.1},
    ],
)
def test_classification_head(options):
    head = ClassificationHead(3, **options)
    head.build((None, 5))
    randomized(head)
    x = np.random.default_rng(1).normal(size=(2, 5)).astype("float32")
    expected = x
    if options:
        expected = x @ np.array(head.dense.kernel)
        if options.get("inner_bias", True):
            expected = expected + np.array(head.dense.bias)
        expected = ACTIVATIONS[options["hidden_activation"]](expected)
        if "inner_norm" in options:
            expected = normalized(expected, np.array(head.norm.gamma), 0, 0.1)
    expected = expected @ np.array(head.projection.kernel) + np.array(head.projection.bias)
    np.testing.assert_allclose(head(x), expected, rtol=1e-4, atol=1e-5)
    copy = ClassificationHead.from_config(head.get_config())
    copy.build((None, 5))
    for weight, other in zip(copy.weights, head.weights, strict=True):
        weight.assign(other)
    np.testing.assert_array_equal(copy(x), head(x))
    # dropout in training only, and none where the rate is 0
    keras.utils.set_random_seed(0)
    assert np.abs(np.array(head(x, training=True)) - expected).max() > 1e-3


@pytest.mark.parametrize("use_bias", [True, False])
def test_masked_lm_head(use_bias):
    head = MaskedLMHead(4, 11, use_bias=use_bias, norm_epsilon=0.01)
    head.build((None, None, 5))
    randomized(head)
    x = np.random.default_rng(1).normal(size=(2, 3, 5)).astype("float32")
    dense = x @ np.array(head.dense.kernel) + (np.array(head.dense.bias) if use_bias else 0)
    beta = np.array(head.norm.beta) if use_bias else 0
    np.testing.assert_allclose(
        head(x), normalized(gelu(dense), np.array(head.norm.gamma), beta, 0.01), rtol=1e-4, atol=1e-5
    )
    assert head.output_bias.shape == (11,) and len(head.weights) == (5 if use_bias else 3)
    assert MaskedLMHead.from_config(head.get_config()).get_config() == head.get_config()


def test_half_precision_gives_logits_in_float32():
    head = ClassificationHead(3, "tanh", dtype="mixed_bfloat16")
    assert head(np.ones((2, 5), "float32")).dtype == "float32"


def test_a_norm_needs_an_inner_layer():
    with pytest.raises(ValueError, match="inner_norm must be False without a hidden_activation, got True"):
        ClassificationHead(3, inner_norm=True)
