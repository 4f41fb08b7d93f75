"""Recurrent layers and encoders: equations, padding, gradients."""

import keras
import numpy as np
import numpy_recurrent as reference
import pytest
from keras import ops
from tensorflow_backend import require_tensorflow

from layers.recurrent import RecurrentEncoder, RecurrentLayer
from layers.recurrent.kernels import CELLS, all_states

CELL_OPTIONS = {
    "simple": {"cell": "simple"},
    "gru": {"cell": "gru"},
    "gru_reset_before": {"cell": "gru", "reset_after": False},
    "lstm": {"cell": "lstm"},
}
LENGTHS = np.array([5, 2, 1, 0])


@pytest.fixture
def rng():
    return np.random.default_rng(0)


@pytest.fixture
def inputs(rng):
    # what stands in padding must not matter
    return rng.normal(size=(4, 5, 3)).astype("float32"), np.arange(5) < LENGTHS[:, None]


def randomize(layer, rng):
    """Biases are zero at first and would not be tested."""
    for weight in layer.weights:
        if weight.dtype == "float32":
            weight.assign(0.7 * rng.normal(size=weight.shape))


@pytest.mark.parametrize("backwards", [False, True])
@pytest.mark.parametrize("kind", CELL_OPTIONS)
def test_layer_is_the_formula(kind, backwards, inputs, rng):
    x, mask = inputs
    layer = RecurrentLayer(4, backwards=backwards, **CELL_OPTIONS[kind])
    layer.build((None, None, 3))
    randomize(layer, rng)
    first = [rng.normal(size=(4, 4)).astype("float32") for _ in range(layer.number_of_states)]
    outputs, states = layer(x, initial_state=first, mask=mask)
    for row, length in enumerate(LENGTHS):
        expected = np.zeros((5, 4))
        expected_states = [state[row] for state in first]
        if length:
            expected[:length], expected_states = reference.run(layer, x[row, :length], expected_states)
        # float32 against float64, five steps
        np.testing.assert_allclose(outputs[row], expected, atol=2e-6)
        for state, value in zip(states, expected_states, strict=True):
            np.testing.assert_allclose(state[row], value, atol=4e-6)


@pytest.mark.parametrize("kind", CELL_OPTIONS)
def test_layer_of_keras_gives_the_same(kind, inputs, rng):
    """What computes in training on a GPU, with all that surrounds it: rows without tokens, direction, context."""
    x, mask = inputs
    context = rng.normal(size=(4, 2)).astype("float32")
    for backwards in (False, True):
        layer = RecurrentLayer(4, backwards=backwards, **CELL_OPTIONS[kind])
        layer.build((None, None, 5))
        randomize(layer, rng)
        first = [ops.convert_to_tensor(rng.normal(size=(4, 4)).astype("float32"))] * layer.number_of_states
        expected = layer(x, initial_state=first, mask=mask, context=context)
        layer._has_fused_kernel = lambda: True
        with_kernel = layer(x, initial_state=first, mask=mask, context=context, training=True)
        for a, b in zip(keras.tree.flatten(with_kernel), keras.tree.flatten(expected), strict=True):
            np.testing.assert_allclose(a, b, atol=2e-6)


@pytest.mark.parametrize("backwards", [False, True])
@pytest.mark.parametrize("kind", CELLS)
def test_backward_pass(kind, backwards, gradients, rng):
    """The gradients of the backward pass against those of the steps differentiated one by one."""
    gates, count, units = {"simple": 1, "lstm": 4}.get(kind, 3), 2 if kind == "lstm" else 1, 3
    shapes = [(3, 4, gates * units), (units, gates * units)] + [(3, units)] * count
    shapes += [(gates * units,)] if kind == "gru_reset_after" else []
    arrays = [rng.normal(size=shape).astype("float32") for shape in shapes]
    mask = np.arange(4) < np.array([[4], [2], [0]])
    upstream = rng.normal(size=(count, 3, 4, units)).astype("float32")

    def with_backward_pass(projected, kernel, *rest):
        states = all_states(kind, projected, rest[:count], kernel, *rest[count:], mask=mask, backwards=backwards)
        return sum(ops.sum(state * up) for state, up in zip(states, upstream, strict=True))

    def step_by_step(projected, kernel, *rest):
        states, total = list(rest[:count]), 0.0
        for t in range(4)[::-1] if backwards else range(4):
            new, _ = CELLS[kind].forward(projected[:, t], states, kernel, *rest[count:])
            states = [ops.where(mask[:, t : t + 1], a, b) for a, b in zip(new, states, strict=True)]
            total = total + sum(ops.sum(state * up[:, t]) for state, up in zip(states, upstream, strict=True))
        return total

    tensors = [ops.convert_to_tensor(value) for value in arrays]
    np.testing.assert_allclose(with_backward_pass(*tensors), step_by_step(*tensors), rtol=1e-5)
    for gradient, expected in zip(
        gradients(with_backward_pass, *arrays), gradients(step_by_step, *arrays), strict=True
    ):
        np.testing.assert_allclose(gradient, expected, atol=1e-5)


@pytest.mark.parametrize("fused", [False, True])
@pytest.mark.parametrize("kind", CELL_OPTIONS)
def test_padding_does_not_reach_the_gradients(kind, fused, inputs, rng):
    """Neither those of the inputs nor those of the weights, to which NaN times zero would be NaN."""
    tf = require_tensorflow()
    x, mask = inputs
    layer = RecurrentLayer(4, **CELL_OPTIONS[kind])
    layer.build((None, None, 3))
    randomize(layer, rng)
    layer._has_fused_kernel = lambda: fused
    results = []
    for padding in (0.0, np.nan):
        variable = tf.Variable(np.where(mask[..., None], x, padding).astype("float32"))
        with tf.GradientTape() as tape:
            outputs, states = layer(variable, mask=mask, training=True)
            loss = ops.sum(outputs**2) + ops.sum(states[0] ** 3)
        results.append(tape.gradient(loss, [variable, *[w.value for w in layer.trainable_weights]]))
    for clean, dirty in zip(*results, strict=True):
        np.testing.assert_allclose(dirty, clean, atol=1e-6)


@pytest.mark.parametrize("kind", CELLS)
def test_padding_does_not_reach_the_backward_pass(kind, gradients, rng):
    gates, count = {"simple": 1, "lstm": 4}.get(kind, 3), 2 if kind == "lstm" else 1
    projected = rng.normal(size=(2, 4, gates * 3)).astype("float32")
    others = [rng.normal(size=shape).astype("float32") for shape in [(3, gates * 3)] + [(2, 3)] * count]
    others += [rng.normal(size=(gates * 3,)).astype("float32")] if kind == "gru_reset_after" else []
    mask = np.arange(4) < np.array([[4], [2]])

    def loss(projected, kernel, *rest):
        states = all_states(kind, projected, rest[:count], kernel, *rest[count:], mask=mask)
        return sum(ops.sum(state**2) for state in states)

    clean = gradients(loss, projected, *others)
    dirty = gradients(loss, np.where(mask[..., None], projected, np.float32("nan")), *others)
    for expected, gradient in zip(clean, dirty, strict=True):
        np.testing.assert_allclose(gradient, expected, atol=1e-6)


@pytest.mark.parametrize(
    "options",
    [
        {"num_layers": 2, "bidirectional": True},
        {"num_layers": 3, "cell": "lstm"},
        {"cell": "lstm", "bidirectional": True},
        {"cell": "simple", "backwards": True},
    ],
    ids=lambda options: "-".join(map(str, options.values())),
)
def test_encoder_is_the_formula(options, inputs, rng):
    x, mask = inputs
    encoder = RecurrentEncoder(4, return_states=True, **options)
    encoder.build((None, None, 3))
    randomize(encoder, rng)
    outputs, states = encoder(x, mask)
    assert outputs.shape[-1] == encoder.output_dim
    for row, length in enumerate(LENGTHS[:-1]):
        expected, expected_states = reference.encode(encoder, x[row, :length])
        np.testing.assert_allclose(outputs[row, :length], expected, atol=5e-6)
        np.testing.assert_array_equal(outputs[row, length:], 0)
        for state, value in zip(keras.tree.flatten(states), keras.tree.flatten(expected_states), strict=True):
            np.testing.assert_allclose(state[row], value, atol=5e-6)


def test_masks_of_keras(inputs, rng):
    """As `keras.layers.GRU`, and also where a first state is given, with which that drops the mask."""
    x, mask = inputs
    x = np.where(mask[..., None], x, np.float32(0))
    masked = keras.layers.Masking()(ops.convert_to_tensor(x))
    layer, state = RecurrentLayer(4), rng.normal(size=(4, 4)).astype("float32")
    for options in ({}, {"initial_state": [state]}):
        outputs, states = layer(masked, **options)
        expected, expected_states = layer(x, mask=mask, **options)
        np.testing.assert_allclose(outputs, expected, atol=1e-6)
        np.testing.assert_allclose(states[0], expected_states[0], atol=1e-6)
        np.testing.assert_array_equal(outputs._keras_mask, mask)
    encoder, symbol = RecurrentEncoder(4, num_layers=2, bidirectional=True), keras.Input((None, 3))
    model = keras.Model(symbol, encoder(keras.layers.Masking()(symbol)))
    np.testing.assert_allclose(model(x), encoder(x, mask=mask), atol=1e-6)


def test_layer_in_a_model(check_layer, inputs):
    check_layer(RecurrentLayer(4, name="recurrent"), inputs[0])


def test_dropout_is_between_layers_in_training_only(inputs):
    encoder = RecurrentEncoder(4, num_layers=2, dropout=0.5)
    x, mask = inputs
    at_rest = np.asarray(encoder(x, mask))
    np.testing.assert_array_equal(encoder(x, mask, training=False), at_rest)
    assert np.abs(np.asarray(encoder(x, mask, training=True)) - at_rest).max() > 1e-3
    one = RecurrentEncoder(4, dropout=0.5)
    np.testing.assert_array_equal(one(x, mask, training=True), one(x, mask))


def test_wrong_arguments():
    for options, message in (
        ({"units": 0}, "units must be at least 1, got 0"),
        ({"units": 2, "cell": "gated"}, "cell must be one of 'simple', 'gru', 'lstm', got 'gated'"),
    ):
        with pytest.raises(ValueError, match=message):
            RecurrentLayer(**options)
    with pytest.raises(ValueError, match="num_layers must be at least 1, got 0"):
        RecurrentEncoder(2, 0)
    with pytest.raises(ValueError, match="backwards must be False with bidirectional=True"):
        RecurrentEncoder(2, bidirectional=True, backwards=True)
