import warnings

import keras
import numpy as np
import pytest
from keras import ops

from layers.attention import MultiHeadAttention
from layers.masked_batch_norm import MaskedBatchNorm
from layers.norm_makers import make_norm
from layers.norms import DynamicTanh, LayerNorm, RMSNorm, ScaleNorm

KINDS = ["layer", "rms", "scale", "dynamic_tanh", "batch"]


@pytest.fixture
def rng():
    return np.random.default_rng(0)


def randomize(layer, rng):
    """Weights far from the neutral ones that a layer starts with."""
    layer.set_weights([rng.uniform(0.5, 1.5, weight.shape) for weight in layer.weights])
    return {weight.name: ops.convert_to_numpy(weight) for weight in layer.weights}


def built(layer, width=6):
    layer.build((None, None, width))
    return layer


@pytest.mark.parametrize("weight_axes", [1, 2])
def test_layer_norm_whose_factor_is_stored_minus_one(rng, weight_axes):
    x = rng.normal(3, 2, (2, 5, 6)).astype("float32")
    layer = LayerNorm(epsilon=0.1, unit_offset=True, weight_axes=weight_axes)
    layer.build(x.shape)
    normalized = (x - x.mean(-1, keepdims=True)) / np.sqrt(x.var(-1, keepdims=True) + 0.1)
    np.testing.assert_allclose(layer(x), normalized, rtol=1e-5, atol=1e-5)  # at the start the factor is one
    weights = randomize(layer, rng)
    np.testing.assert_allclose(layer(x), normalized * (1 + weights["gamma"]) + weights["beta"], rtol=1e-5, atol=1e-5)
    with pytest.raises(ValueError, match="unit_offset must be False with scale=False, got True"):
        LayerNorm(scale=False, unit_offset=True)


def test_layer_norm(rng):
    x = rng.normal(3, 2, (2, 5, 6)).astype("float32")
    layer = built(LayerNorm(epsilon=0.1))
    weights = randomize(layer, rng)
    mean = x.mean(-1, keepdims=True)
    variance = ((x - mean) ** 2).mean(-1, keepdims=True)
    expected = (x - mean) / np.sqrt(variance + 0.1) * weights["gamma"] + weights["beta"]
    np.testing.assert_allclose(layer(x), expected, rtol=1e-5, atol=1e-5)
    keras_layer = keras.layers.LayerNormalization(epsilon=0.1)
    keras_layer.build(x.shape)
    keras_layer.set_weights(layer.get_weights())
    np.testing.assert_allclose(layer(x), keras_layer(x), rtol=1e-6, atol=1e-6)


@pytest.mark.parametrize("center", [False, True])
@pytest.mark.parametrize("scale", [False, True])
def test_layer_norm_without_some_weights(center, scale):
    layer = built(LayerNorm(center=center, scale=scale))
    assert [weight.name for weight in layer.weights] == ["gamma"] * scale + ["beta"] * center
    np.testing.assert_allclose(layer(np.array([[1.0, 3.0] * 3])), [[-1, 1] * 3], atol=1e-4)


@pytest.mark.parametrize("unit_offset", [False, True])
def test_rms_norm(rng, unit_offset):
    x = rng.normal(3, 2, (2, 5, 6)).astype("float32")
    layer = built(RMSNorm(epsilon=0.1, unit_offset=unit_offset))
    normalized = x / np.sqrt((x**2).mean(-1, keepdims=True) + 0.1)
    np.testing.assert_allclose(layer(x), normalized, rtol=1e-5, atol=1e-6)  # at the start the factor is one
    scale = randomize(layer, rng)["scale"]
    np.testing.assert_allclose(layer(x), normalized * (scale + unit_offset), rtol=1e-5, atol=1e-6)
    layer = built(RMSNorm(epsilon=0.1, use_scale=False))
    assert not layer.weights
    np.testing.assert_allclose(layer(x), normalized, rtol=1e-5, atol=1e-6)


@pytest.mark.parametrize("norm", [LayerNorm, RMSNorm])
def test_weights_for_each_head(rng, norm):
    x = rng.normal(3, 2, (2, 5, 3, 6)).astype("float32")
    layer, plain = norm(0.1, weight_axes=2), built(norm(0.1))
    layer.build(x.shape)
    weights = [rng.normal(size=weight.shape) for weight in layer.weights]
    assert {weight.shape for weight in weights} == {(3, 6)}
    layer.set_weights(weights)
    for head in range(3):
        plain.set_weights([weight[head] for weight in weights])
        np.testing.assert_allclose(layer(x)[:, :, head], plain(x[:, :, head]), rtol=1e-5, atol=1e-5)
    again = norm.from_config(layer.get_config())
    assert again.weight_axes == 2
    with pytest.raises(ValueError, match="weight_axes must be 1 or 2, got 3"):
        norm(weight_axes=3)


def test_scale_norm(rng):
    x = rng.normal(3, 2, (2, 5, 6)).astype("float32")
    x[0, 0] = 0
    x[0, 1] = 0.02  # of a length between epsilon squared and epsilon
    layer = built(ScaleNorm(epsilon=0.1))
    direction = x / np.maximum(np.linalg.norm(x, axis=-1, keepdims=True), 0.1)
    np.testing.assert_allclose(layer(x), np.sqrt(6) * direction, rtol=1e-5, atol=1e-6)
    scale = randomize(layer, rng)["scale"]
    np.testing.assert_allclose(layer(x), scale * direction, rtol=1e-5, atol=1e-6)


def test_dynamic_tanh(rng):
    x = rng.normal(0, 2, (2, 5, 6)).astype("float32")
    layer = built(DynamicTanh(alpha=0.7))
    np.testing.assert_allclose(layer(x), np.tanh(0.7 * x), rtol=1e-5, atol=1e-6)
    weights = randomize(layer, rng)
    expected = weights["gamma"] * np.tanh(weights["alpha"] * x) + weights["beta"]
    np.testing.assert_allclose(layer(x), expected, rtol=1e-5, atol=1e-6)


@pytest.fixture
def padded(rng):
    """A batch whose padding holds numbers that would spoil every statistic."""
    x = rng.normal(3, 2, (3, 5, 6)).astype("float32")
    mask = np.arange(5) < np.array([5, 2, 1])[:, None]
    x[~mask] = np.nan
    return x, mask


def test_batch_norm_counts_real_positions_only(rng, padded):
    x, mask = padded
    layer = built(MaskedBatchNorm(epsilon=0.1, momentum=0.8))
    weights = randomize(layer, rng)
    real = x[mask]  # (8, 6)
    mean, variance = real.mean(0), real.var(0)
    outputs = ops.convert_to_numpy(layer(x, mask=mask, training=True))
    expected = (real - mean) / np.sqrt(variance + 0.1) * weights["gamma"] + weights["beta"]
    np.testing.assert_allclose(outputs[mask], expected, rtol=1e-4, atol=1e-5)
    moving_mean = 0.8 * weights["moving_mean"] + 0.2 * mean
    moving_variance = 0.8 * weights["moving_variance"] + 0.2 * variance
    np.testing.assert_allclose(layer.moving_mean, moving_mean, rtol=1e-5)
    np.testing.assert_allclose(layer.moving_variance, moving_variance, rtol=1e-5)
    # inference uses the moving averages and does not change them
    outputs = ops.convert_to_numpy(layer(x, mask=mask))
    expected = (real - moving_mean) / np.sqrt(moving_variance + 0.1) * weights["gamma"] + weights["beta"]
    np.testing.assert_allclose(outputs[mask], expected, rtol=1e-4, atol=1e-5)
    np.testing.assert_allclose(layer.moving_mean, moving_mean, rtol=1e-5)


def test_batch_norm_agrees_with_keras(rng):
    x = rng.normal(3, 2, (3, 5, 6)).astype("float32")
    ours = built(MaskedBatchNorm(epsilon=0.1, momentum=0.8))
    theirs = keras.layers.BatchNormalization(epsilon=0.1, momentum=0.8)
    theirs.build(x.shape)
    randomize(ours, rng)
    theirs.set_weights(ours.get_weights())
    np.testing.assert_allclose(ours(x, training=True), theirs(x, training=True), rtol=1e-4, atol=1e-5)
    for our_weight, their_weight in zip(ours.weights, theirs.weights, strict=True):
        np.testing.assert_allclose(our_weight, their_weight, rtol=1e-5)
    np.testing.assert_allclose(ours(x), theirs(x), rtol=1e-4, atol=1e-5)


def test_batch_norm_passes_on_only_a_mask_that_its_inputs_carry(padded):
    x, mask = padded
    layer = built(MaskedBatchNorm())
    assert getattr(layer(np.nan_to_num(x), mask=mask), "_keras_mask", None) is None
    embedded = keras.layers.Embedding(9, 6, mask_zero=True)(np.array([[3, 1, 0], [2, 0, 0]]))
    outputs = layer(embedded)
    np.testing.assert_array_equal(outputs._keras_mask, [[True, True, False], [True, False, False]])
    with warnings.catch_warnings():
        warnings.simplefilter("error")  # Keras warns where a layer drops the mask of its inputs
        MultiHeadAttention(2, 3)(layer(np.nan_to_num(x), mask=mask), padding_mask=mask)


def test_batch_norm_of_padding_only(padded):
    x, _ = padded
    layer = built(MaskedBatchNorm())
    before = layer.get_weights()
    layer(np.nan_to_num(x), mask=np.zeros((3, 5), bool), training=True)
    for weight, old in zip(layer.get_weights(), before, strict=True):
        np.testing.assert_array_equal(weight, old)


def test_frozen_batch_norm_uses_moving_averages(rng):
    x = rng.normal(3, 2, (3, 5, 6)).astype("float32")
    layer = built(MaskedBatchNorm())
    layer.trainable = False
    np.testing.assert_allclose(layer(x, training=True), layer(x), rtol=1e-6)
    np.testing.assert_array_equal(layer.moving_mean, np.zeros(6))


def test_batch_norm_gradient_ignores_padding(gradients, padded):
    x, mask = padded
    layer = built(MaskedBatchNorm())

    def function(x):
        return ops.sum(ops.where(mask[..., None], layer(x, mask=mask, training=True), 0.0) ** 3)

    (gradient,) = gradients(function, np.nan_to_num(x))
    assert np.all(gradient[~mask] == 0)
    assert np.all(gradient[mask] != 0)


@pytest.mark.parametrize("kind", KINDS)
def test_gradients_in_float64(kind, rng, check_gradients):
    layer = built(make_norm(kind, dtype="float64"), width=4)
    randomize(layer, rng)
    factors = rng.normal(size=(2, 3, 4))
    options = {"training": True} if kind == "batch" else {}
    check_gradients(lambda x: ops.sum(layer(x, **options) * factors), rng.normal(1, 2, (2, 3, 4)))


@pytest.mark.parametrize("kind", KINDS)
def test_gradient_of_zeros_is_finite(kind, gradients):
    layer = built(make_norm(kind))
    (gradient,) = gradients(lambda x: ops.sum(layer(x)), np.zeros((2, 3, 6), "float32"))
    assert np.all(np.isfinite(gradient))


@pytest.mark.parametrize("kind", KINDS)
def test_layer_contract(kind, rng, check_layer):
    layer = built(make_norm(kind, name=f"some_{kind}"))
    randomize(layer, rng)
    check_layer(layer, rng.normal(1, 2, (2, 3, 6)).astype("float32"))


@pytest.mark.parametrize("kind", ["layer", "rms", "scale"])
def test_statistics_in_float32_under_half_precision(kind):
    # The sum of squares of these is 8 * 2^14 * 2^14, which float16 cannot hold (up to 65504).
    x = np.array([[2.0**14, -(2.0**14)] * 4], "float32")
    outputs = ops.convert_to_numpy(make_norm(kind, dtype="mixed_float16")(x.astype("float16")))
    np.testing.assert_allclose(outputs, [[1, -1] * 4], rtol=1e-3)


def test_make_norm():
    norm = make_norm("rms", 1e-3, unit_offset=True, name="n", dtype="mixed_bfloat16")
    assert isinstance(norm, RMSNorm) and norm.epsilon == 1e-3 and norm.unit_offset and norm.name == "n"
    assert norm.compute_dtype == "bfloat16"
    assert make_norm("layer").epsilon == LayerNorm().epsilon
    assert isinstance(make_norm("dynamic_tanh", 1e-6, alpha=0.8), DynamicTanh)


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda: make_norm("group"), "kind must be one of 'layer', 'rms'.*'group'"),
        (lambda: LayerNorm(epsilon=0), "epsilon must be above 0, got 0"),
        (
            lambda: RMSNorm(unit_offset=True, use_scale=False),
            "unit_offset must be False with use_scale=False, got True",
        ),
        (lambda: MaskedBatchNorm(momentum=1.0), "momentum must be at least 0 and below 1, got 1.0"),
        (
            lambda: MaskedBatchNorm()(np.ones((2, 3, 4)), mask=np.ones((2, 3, 4)), training=True),
            r"mask must have the shape of the inputs, \(2, 3, 4\), without the last axis, got \(2, 3, 4\)",
        ),
    ],
)
def test_errors(make, message):
    with pytest.raises(ValueError, match=message):
        make()


@pytest.mark.parametrize("kind", [LayerNorm, RMSNorm])
def test_weights_are_not_rounded_under_half_precision(kind, rng):
    """Only the result is: the layer stands inside another one, whose policy would round what it reads."""
    norm = kind(dtype="mixed_bfloat16")

    class Block(keras.layers.Layer):
        def call(self, x):
            return norm(x)

    block = Block(dtype="mixed_bfloat16")
    inputs = rng.normal(size=(4, 16)).astype("float32")
    block(inputs)
    for weight in norm.weights:
        weight.assign(1.0 + 2.0**-10 * rng.uniform(size=weight.shape))  # all of them 1 in bfloat16
    hidden = ops.convert_to_numpy(ops.cast(ops.cast(inputs, "bfloat16"), "float32")).astype("float64")
    centred = hidden - hidden.mean(-1, keepdims=True) * (kind is LayerNorm)
    expected = centred / np.sqrt((centred**2).mean(-1, keepdims=True) + norm.epsilon)
    weights = [ops.convert_to_numpy(weight.value) for weight in norm.weights]
    expected = expected * weights[0] + (weights[1] if len(weights) > 1 else 0.0)
    got = ops.cast(block(inputs), "float32")
    rounded = ops.cast(ops.cast(ops.convert_to_tensor(expected, dtype="float32"), "bfloat16"), "float32")
    # but for numbers that lie between two of bfloat16 by less than the rounding of float32
    np.testing.assert_array_less(np.abs(np.asarray(got) - np.asarray(rounded)).mean(), 1e-3 * np.abs(expected).mean())
