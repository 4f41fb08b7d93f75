import keras
import numpy as np
import pytest
from keras import ops

from layers.mixers import ConvolutionMixer
from layers.recurrent import RecurrentEncoder

MIXERS = {
    "separable": lambda **options: ConvolutionMixer(3, name="separable", **options),
    "separable causal": lambda **options: ConvolutionMixer(4, causal=True, name="separable_causal", **options),
    "full": lambda **options: ConvolutionMixer(4, separable=False, use_bias=False, name="full", **options),
    "recurrent": lambda **options: RecurrentEncoder(name="recurrent", **options),
    "bidirectional": lambda **options: RecurrentEncoder(bidirectional=True, name="bidirectional", **options),
}


@pytest.fixture
def rng():
    return np.random.default_rng(0)


def built(layer, rng, width=6):
    layer.build((None, None, width))
    layer.set_weights([rng.normal(size=weight.shape) * 0.5 for weight in layer.weights])
    return layer


def windows(x, size, before):
    """`(batch, length, size, dim)`: what each output of a convolution sees, zeros outside."""
    padded = np.pad(x, [(0, 0), (before, size - 1 - before), (0, 0)])
    return np.stack([padded[:, i : i + size] for i in range(x.shape[1])], axis=1)


@pytest.mark.parametrize(("size", "causal", "before"), [(1, False, 0), (3, False, 1), (4, False, 1), (4, True, 3)])
def test_convolutions(size, causal, before, rng):
    x = rng.normal(size=(2, 7, 6)).astype("float32")
    layer = built(ConvolutionMixer(size, causal=causal), rng)
    depthwise, kernel, bias = layer.get_weights()
    assert depthwise.shape == (size, 6, 1) and kernel.shape == (6, 6)
    expected = np.einsum("nlsd,sd->nld", windows(x, size, before), depthwise[..., 0]) @ kernel + bias
    np.testing.assert_allclose(layer(x), expected, rtol=1e-4, atol=1e-5)
    layer = built(ConvolutionMixer(size, separable=False, causal=causal), rng)
    kernel, bias = layer.get_weights()
    assert kernel.shape == (size, 6, 6)
    expected = np.einsum("nlsd,sde->nle", windows(x, size, before), kernel) + bias
    np.testing.assert_allclose(layer(x), expected, rtol=1e-4, atol=1e-5)


def test_gated_recurrent_unit(rng):
    """Cho et al. 2014, equations 5 to 8, with the reset gate after the product (as in cuDNN and Keras)."""
    x = rng.normal(size=(2, 4, 3)).astype("float32")
    layer = built(RecurrentEncoder(), rng, width=3)
    kernel, recurrent_kernel, (input_bias, recurrent_bias) = layer.get_weights()

    def sigmoid(x):
        return 1 / (1 + np.exp(-x))

    state, states = np.zeros((2, 3)), []
    for step in range(4):
        from_input = np.split(x[:, step] @ kernel + input_bias, 3, axis=-1)
        from_state = np.split(state @ recurrent_kernel + recurrent_bias, 3, axis=-1)
        update = sigmoid(from_input[0] + from_state[0])
        reset = sigmoid(from_input[1] + from_state[1])
        candidate = np.tanh(from_input[2] + reset * from_state[2])
        state = update * state + (1 - update) * candidate
        states.append(state)
    np.testing.assert_allclose(layer(x), np.stack(states, axis=1), rtol=1e-4, atol=1e-5)


def test_bidirectional_halves(rng):
    """The first half of the width reads from the start, the second from the end."""
    x = rng.normal(size=(1, 6, 4)).astype("float32")
    layer = built(RecurrentEncoder(bidirectional=True), rng, width=4)
    changed_at_end, changed_at_start = x.copy(), x.copy()
    changed_at_end[0, -1] += 1
    changed_at_start[0, 0] += 1
    outputs, end, start = (ops.convert_to_numpy(layer(value)) for value in (x, changed_at_end, changed_at_start))
    np.testing.assert_allclose(outputs[0, :-1, :2], end[0, :-1, :2], atol=1e-6)
    np.testing.assert_allclose(outputs[0, 1:, 2:], start[0, 1:, 2:], atol=1e-6)
    assert np.abs(outputs[0, 0, 2:] - end[0, 0, 2:]).max() > 1e-4


@pytest.mark.parametrize("kind", MIXERS)
def test_padding_does_not_matter(kind, rng):
    layer = built(MIXERS[kind](), rng)
    x = rng.normal(size=(3, 5, 6)).astype("float32")
    lengths = [5, 2, 0]
    mask = np.arange(5) < np.array(lengths)[:, None]
    x[~mask] = np.nan
    outputs = ops.convert_to_numpy(layer(x, mask=mask))
    assert np.all(outputs[~mask] == 0)
    for row, length in enumerate(lengths):
        if length:
            alone = layer(x[row : row + 1, :length])
            np.testing.assert_allclose(outputs[row : row + 1, :length], alone, rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize("kind", ["separable causal", "recurrent"])
def test_causal(kind, rng):
    layer = built(MIXERS[kind](), rng)
    x = rng.normal(size=(1, 8, 6)).astype("float32")
    changed = x.copy()
    changed[0, 5] += 1
    outputs, others = ops.convert_to_numpy(layer(x)), ops.convert_to_numpy(layer(changed))
    np.testing.assert_allclose(outputs[0, :5], others[0, :5], atol=1e-6)
    assert np.abs(outputs[0, 5] - others[0, 5]).max() > 1e-4


@pytest.mark.sampled(2)
@pytest.mark.parametrize("kind", MIXERS)
def test_gradients_in_float64(kind, rng, check_gradients):
    layer = built(MIXERS[kind](dtype="float64"), rng, width=4)
    factors = rng.normal(size=(2, 4, 4))
    mask = np.arange(4) < np.array([4, 3])[:, None]
    check_gradients(lambda x: ops.sum(layer(x, mask=mask) * factors), rng.normal(size=(2, 4, 4)))


@pytest.mark.parametrize("kind", MIXERS)
def test_layer_contract(kind, rng, check_layer):
    check_layer(built(MIXERS[kind](), rng), rng.normal(size=(2, 5, 6)).astype("float32"))


@pytest.mark.parametrize("kind", MIXERS)
@pytest.mark.parametrize("jit_compile", [False, pytest.param(True, marks=pytest.mark.slow)])
def test_training_with_unknown_sizes(kind, jit_compile, rng):
    symbols = [keras.Input((None, 6)), keras.Input((None,), dtype="bool")]
    model = keras.Model(symbols, MIXERS[kind]()(symbols[0], mask=symbols[1]))
    model.compile("adam", "mse", jit_compile=jit_compile)
    x = rng.normal(size=(4, 5, 6)).astype("float32")
    mask = np.arange(5) < np.array([5, 2, 3, 1])[:, None]
    losses = [float(model.train_on_batch([x, mask], x)) for _ in range(5)]
    assert losses[-1] < losses[0]


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda x: ConvolutionMixer(0), "kernel_size must be at least 1, got 0"),
        (lambda x: RecurrentEncoder(bidirectional=True)(x), r"inputs must have an even width.*\(2, 4, 5\)"),
        (
            lambda x: ConvolutionMixer(3)(x, mask=x > 0),
            r"mask must have shape \(batch, length\), got \(2, 4, 5\)",
        ),
    ],
)
def test_errors(call, message):
    with pytest.raises(ValueError, match=message):
        call(np.ones((2, 4, 5), "float32"))
