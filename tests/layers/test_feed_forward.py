import math

import keras
import numpy as np
import pytest
from keras import ops

from layers.activations import ACTIVATIONS, get_activation
from layers.feed_forward import FeedForward

normal_distribution_function = np.vectorize(lambda x: 0.5 * (1 + math.erf(x / math.sqrt(2))))

FORMULAS = {
    "relu": lambda x: np.maximum(x, 0),
    "gelu": lambda x: x * normal_distribution_function(x),
    "gelu_tanh": lambda x: 0.5 * x * (1 + np.tanh(np.sqrt(2 / np.pi) * (x + 0.044715 * x**3))),
    "silu": lambda x: x / (1 + np.exp(-x)),
    "quick_gelu": lambda x: x / (1 + np.exp(-1.702 * x)),
    "relu_squared": lambda x: np.maximum(x, 0) ** 2,
    "sigmoid": lambda x: 1 / (1 + np.exp(-x)),
    "tanh": np.tanh,
    "identity": lambda x: x,
}


@pytest.fixture
def rng():
    return np.random.default_rng(0)


def kernel_and_bias(dense):
    return ops.convert_to_numpy(dense.kernel), ops.convert_to_numpy(dense.bias)


def built(layer, rng, width=6):
    layer.build((None, None, width))
    layer.set_weights([rng.normal(size=weight.shape) * 0.5 for weight in layer.weights])
    return layer


@pytest.mark.parametrize("name", FORMULAS)
def test_activations(name):
    x = np.linspace(-5, 5, 101).astype("float32")
    # float32 tanh and erf of the backends are right to a few units of the last place of 1
    np.testing.assert_allclose(get_activation(name)(x), FORMULAS[name](x.astype("float64")), rtol=1e-5, atol=1e-6)


def test_all_activations_are_tested():
    assert set(FORMULAS) == set(ACTIVATIONS)


def test_limit_and_offset_of_the_gate(rng):
    """Agarwal et al. 2025 (gpt-oss), published code."""
    layer = built(FeedForward(10, "quick_gelu", gated=True, gate_limit=0.5, up_offset=1.0), rng)
    x = rng.normal(size=(2, 5, 6)).astype("float32")
    gate, up, down = (kernel_and_bias(part) for part in (layer.gate, layer.up, layer.down))
    gates, ups = np.minimum(x @ gate[0] + gate[1], 0.5), np.clip(x @ up[0] + up[1], -0.5, 0.5)
    expected = (ups + 1) * gates / (1 + np.exp(-1.702 * gates)) @ down[0] + down[1]
    np.testing.assert_allclose(layer(x), expected, rtol=1e-4, atol=1e-5)
    with pytest.raises(ValueError, match="gate_limit must be None and up_offset 0 without a gate, got gate_limit=0.5"):
        FeedForward(10, gate_limit=0.5)
    with pytest.raises(ValueError, match="gate_limit must be above 0 or None, got -1"):
        FeedForward(10, gated=True, gate_limit=-1)


@pytest.mark.parametrize("activation", FORMULAS)
@pytest.mark.parametrize("gated", [False, True])
def test_formula(activation, gated, rng):
    layer = built(FeedForward(10, activation, gated=gated, output_dim=4), rng)
    x = rng.normal(size=(2, 5, 6)).astype("float32")
    (up, up_bias), (down, down_bias) = kernel_and_bias(layer.up), kernel_and_bias(layer.down)
    hidden = x @ up + up_bias
    if gated:
        gate, gate_bias = kernel_and_bias(layer.gate)
        hidden = FORMULAS[activation](x @ gate + gate_bias) * hidden
    else:
        hidden = FORMULAS[activation](hidden)
    np.testing.assert_allclose(layer(x), hidden @ down + down_bias, rtol=1e-4, atol=1e-4)


@pytest.mark.parametrize("gated", [False, True])
def test_weights(gated):
    layer = FeedForward(10, gated=gated, use_bias=False)
    layer.build((None, None, 6))
    assert layer.count_params() == (3 if gated else 2) * 6 * 10
    layer = FeedForward(10, gated=gated)
    layer.build((None, None, 6))
    assert layer.count_params() == (3 if gated else 2) * 6 * 10 + (2 if gated else 1) * 10 + 6


def test_equals_two_convolutions_of_size_one(rng):
    """Vaswani et al. 2017, section 3.3: "another way of describing this"."""
    layer = built(FeedForward(10), rng)
    convolutions = keras.Sequential(
        [keras.layers.Conv1D(10, kernel_size=1, activation="relu"), keras.layers.Conv1D(6, kernel_size=1)]
    )
    convolutions.build((None, 5, 6))
    shapes = [variable.shape for variable in convolutions.weights]
    convolutions.set_weights([np.reshape(*pair) for pair in zip(layer.get_weights(), shapes, strict=True)])
    x = rng.normal(size=(2, 5, 6)).astype("float32")
    np.testing.assert_allclose(layer(x), convolutions(x), rtol=1e-5, atol=1e-5)


def test_each_position_alone(rng):
    layer = built(FeedForward(10, "gelu", gated=True), rng)
    x = rng.normal(size=(1, 5, 6)).astype("float32")
    one_by_one = [ops.convert_to_numpy(layer(x[:, i : i + 1])) for i in range(5)]
    np.testing.assert_allclose(layer(x), np.concatenate(one_by_one, axis=1), rtol=1e-5, atol=1e-5)


def test_dropout_is_before_the_second_layer(rng):
    layer = built(FeedForward(50, dropout=0.5, use_bias=False), rng, width=2)
    layer.down.kernel.assign(np.ones((50, 2)))
    x = np.ones((1, 3, 2), "float32")
    np.testing.assert_array_equal(layer(x), layer(x, training=False))
    trained = ops.convert_to_numpy(layer(x, training=True))
    # What is dropped is shared by the outputs of a position, and differs between positions.
    np.testing.assert_allclose(trained[..., 0], trained[..., 1], rtol=1e-6)
    assert len(np.unique(np.round(trained[0, :, 0], 4))) == 3


def test_kernels_of_a_seeded_initializer_differ():
    layer = FeedForward(6, gated=True, kernel_initializer=keras.initializers.GlorotUniform())
    layer.build((None, 6))
    kernels = [ops.convert_to_numpy(dense.kernel) for dense in (layer.gate, layer.up, layer.down)]
    assert np.abs(kernels[0] - kernels[1]).max() > 0.1 and np.abs(kernels[1] - kernels[2]).max() > 0.1


def test_low_rank_adaptation_and_quantization(rng):
    layer = built(FeedForward(16, gated=True), rng, width=8)
    x = rng.normal(size=(2, 5, 8)).astype("float32")
    expected = ops.convert_to_numpy(layer(x))
    inputs = keras.Input((None, 8))
    model = keras.Model(inputs, layer(inputs))
    model.quantize("int8")
    error = np.abs(ops.convert_to_numpy(model(x)) - expected).max() / np.abs(expected).max()
    assert 0 < error < 0.05  # 8 bits in three projections


@pytest.mark.parametrize("gated", [False, True])
def test_gradients_in_float64(gated, rng, check_gradients):
    layer = built(FeedForward(5, "silu", gated=gated, dtype="float64"), rng, width=3)
    factors = rng.normal(size=(2, 2, 3))
    check_gradients(lambda x: ops.sum(layer(x) * factors), rng.normal(size=(2, 2, 3)))


@pytest.mark.parametrize(
    "options", [{}, {"activation": "gelu_tanh", "gated": True, "use_bias": False, "output_dim": 3}]
)
def test_layer_contract(options, rng, check_layer):
    layer = FeedForward(10, **options)
    layer.build((None, None, 6))
    check_layer(layer, rng.normal(size=(2, 3, 6)).astype("float32"))


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"intermediate_dim": 0}, "intermediate_dim must be at least 1, got 0"),
        ({"output_dim": 0}, "output_dim must be at least 1, or None.*got 0"),
        ({"dropout": 1.0}, "dropout must be at least 0 and below 1, got 1.0"),
        ({"activation": "swish"}, "activation must be one of 'relu'.*'identity', got 'swish'"),
    ],
)
def test_errors(options, message):
    with pytest.raises(ValueError, match=message):
        FeedForward(**{"intermediate_dim": 4, **options})


@pytest.mark.parametrize("seed", [None, 3, keras.random.SeedGenerator(3), keras.random.SeedGenerator()])
def test_kernels_of_one_shape_start_different(seed):
    layer = FeedForward(6, gated=True, kernel_initializer=keras.initializers.GlorotUniform(seed=seed))
    layer.build((None, None, 6))
    kernels = [ops.convert_to_numpy(dense.kernel).ravel() for dense in (layer.gate, layer.up, layer.down)]
    assert np.abs(np.corrcoef(kernels) - np.eye(3)).max() < 0.8  # 36 random numbers each
