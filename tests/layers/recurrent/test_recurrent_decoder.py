"""The recurrent decoder against a step-by-step formula, in one call, step by step, and fed with its own output."""

import keras
import numpy as np
import numpy_recurrent as reference
import pytest
from keras import ops

from layers.recurrent import AttentionWindow, RecurrentDecoder, RecurrentEncoder, RecurrentReadout

LENGTHS = np.array([6, 3, 1])
LUONG = {"attention": "current_state", "readout": "attentional"}
# encoder options, decoder options; the encoder's outputs have the width 4
DECODERS = {
    "sutskever": ({"cell": "lstm", "num_layers": 2}, {"cell": "lstm", "num_layers": 2, "bridge": "copy"}),
    "cho": ({}, {"reset_after": False, "context_input": True, "bridge": "context", "readout": "maxout"}),
    "fixed_concatenation": ({}, {"context_input": True, "readout": "concatenation"}),
    "bahdanau": (
        {"bidirectional": True},
        {"attention": "previous_state", "bridge": "backward", "readout": "maxout", "score_units": 7, "readout_dim": 3},
    ),
    "bahdanau_deep": (
        {"cell": "lstm"},
        {
            "cell": "lstm",
            "num_layers": 2,
            "attention": "previous_state",
            "score": "bilinear",
            "readout": "concatenation",
        },
    ),
    "bahdanau_local": ({}, {"attention": "previous_state", "window": 1, "window_center": "monotonic"}),
    "luong_additive": ({}, {**LUONG, "score": "additive"}),
    "luong_dot": ({"cell": "simple"}, {**LUONG, "cell": "simple", "score": "dot", "bridge": "copy"}),
    "luong_scaled_dot": ({}, {**LUONG, "score": "scaled_dot"}),
    "luong_bilinear": ({}, {**LUONG, "score": "bilinear", "readout_dim": 5}),
    "luong_deep_feeding": (
        {"cell": "lstm", "num_layers": 2},
        {**LUONG, "cell": "lstm", "num_layers": 2, "score": "dot", "input_feeding": True, "bridge": "copy"},
    ),
    "luong_local_p": ({}, {**LUONG, "score": "bilinear", "window": 2}),
    "luong_local_p_feeding": ({}, {**LUONG, "score": "additive", "window": 1, "input_feeding": True}),
    "luong_local_m": ({}, {**LUONG, "score": "dot", "window": 1, "window_center": "monotonic"}),
    "luong_local_m_feeding": (
        {},
        {**LUONG, "score": "dot", "window": 1, "window_center": "monotonic", "input_feeding": True},
    ),
}


@pytest.fixture
def rng():
    return np.random.default_rng(1)


def make(name, rng):
    """Encoder, decoder, sources with mask, embedded targets."""
    encoder_options, options = DECODERS[name]
    units = 4 // (2 if encoder_options.get("bidirectional") else 1)
    encoder = RecurrentEncoder(units, return_states=True, **encoder_options)
    decoder = RecurrentDecoder(4, **options)
    encoder.build((None, None, 3))
    decoder.build((None, None, 2), (None, None, 4))
    for weight in [*encoder.weights, *decoder.weights]:
        weight.assign(0.7 * rng.normal(size=weight.shape))
    sources = rng.normal(size=(3, 6, 3)).astype("float32")
    targets = rng.normal(size=(3, 5, 2)).astype("float32")
    return encoder, decoder, sources, np.arange(6) < LENGTHS[:, None], targets


@pytest.mark.parametrize("name", DECODERS)
def test_decoder_is_the_formula(name, rng):
    encoder, decoder, sources, mask, targets = make(name, rng)
    memory, encoder_states = encoder(sources, mask)
    outputs, weights = decoder(targets, memory, mask, encoder_states, return_weights=True)
    for row, length in enumerate(LENGTHS):
        alone, states = reference.encode(encoder, sources[row, :length])
        expected, expected_weights = reference.decode(decoder, targets[row], alone, states)
        # float32 against float64 over a dozen recurrent steps
        np.testing.assert_allclose(outputs[row], expected, atol=2e-5)
        if weights is None:
            assert decoder.attention is None
        else:
            np.testing.assert_allclose(weights[row, :, :length], expected_weights, atol=2e-5)
            np.testing.assert_array_equal(weights[row, :, length:], 0)
    # one token after the other, as in decoding
    state, constants = decoder.start(memory, ops.convert_to_tensor(mask), encoder_states)
    for t in range(targets.shape[1]):
        output, step_weights, state = decoder.step(targets[:, t], state, constants)
        np.testing.assert_allclose(output, outputs[:, t], atol=1e-5)
        if weights is not None:
            np.testing.assert_allclose(step_weights, weights[:, t], atol=1e-5)


@pytest.mark.parametrize("name", ["bahdanau", "luong_dot"])
def test_masks_of_keras(name, rng):
    """What `Masking` says of sources and targets: the former in place of `memory_mask`, the latter is carried on."""
    encoder, decoder, sources, mask, targets = make(name, rng)
    real = np.arange(5) < np.array([[5], [2], [4]])
    sources, targets = (np.where(m[..., None], x, np.float32(0)) for m, x in ((mask, sources), (real, targets)))
    memory, encoder_states = encoder(sources, mask)
    expected = ops.convert_to_numpy(decoder(targets, memory, mask, encoder_states))
    masking = keras.layers.Masking()
    memory, encoder_states = encoder(masking(sources))
    for return_weights in (False, True):
        arguments = {"memory_mask": None, "encoder_states": encoder_states, "return_weights": return_weights}
        outputs = decoder(masking(targets), memory, **arguments)
        outputs = outputs[0] if return_weights else outputs
        np.testing.assert_allclose(ops.convert_to_numpy(outputs)[real], expected[real], atol=1e-6)
        np.testing.assert_array_equal(ops.convert_to_numpy(outputs._keras_mask), real)


@pytest.mark.parametrize("name", ["cho", "bahdanau", "luong_dot", "luong_deep_feeding", "luong_local_m"])
def test_own_output_as_input(name, rng):
    """Where it is told to, a step reads what was chosen at the step before, as decoding does."""
    encoder, decoder, sources, mask, targets = make(name, rng)
    memory, encoder_states = encoder(sources, mask)
    table = rng.normal(size=(decoder.output_dim, 2)).astype("float32")
    use_gold = np.array([[False, True, False, False, True], [False] * 5, [True] * 5])
    numbers = rng.uniform(size=(3, 5)).astype("float32")

    def choose(readout, number):
        return ops.matmul(readout, table) + ops.expand_dims(number, -1)

    outputs, weights = decoder(
        targets, memory, mask, encoder_states, use_gold=use_gold, choose=choose, numbers=numbers, return_weights=True
    )
    state, constants = decoder.start(memory, ops.convert_to_tensor(mask), encoder_states)
    fed = targets[:, 0]
    for t in range(5):
        token = np.where(use_gold[:, t : t + 1] | (t == 0), targets[:, t], fed)
        output, step_weights, state = decoder.step(token, state, constants)
        np.testing.assert_allclose(outputs[:, t], output, atol=1e-5)
        if weights is not None:
            np.testing.assert_allclose(weights[:, t], step_weights, atol=1e-5)
        fed = np.asarray(choose(output, numbers[:, t]))
    always = decoder(targets, memory, mask, encoder_states)
    np.testing.assert_allclose(outputs[2], always[2], atol=1e-5)


def test_no_gradient_through_the_choice(rng, gradients):
    encoder, decoder, sources, mask, targets = make("bahdanau", rng)
    memory, states = encoder(sources, mask)
    factor = np.ones((1, 2), "float32")

    def loss(factor):
        return ops.sum(
            decoder(
                targets,
                memory,
                mask,
                states,
                use_gold=np.zeros((3, 5), "bool"),
                choose=lambda readout, number: readout[:, :2] * factor,
                numbers=np.zeros((3, 5), "float32"),
            )
        )

    gradient = gradients(lambda factor: loss(factor) + ops.sum(factor), factor)[0]
    # only that of the plain sum
    np.testing.assert_array_equal(gradient, 1)


@pytest.mark.parametrize("name", ["sutskever", "bahdanau_deep", "luong_deep_feeding"])
def test_dropout_is_on_the_inputs_of_the_layers(name, rng):
    encoder, decoder, sources, mask, targets = make(name, rng)
    decoder.rate = 0.5
    memory, states = encoder(sources, mask)
    at_rest = np.asarray(decoder(targets, memory, mask, states))
    np.testing.assert_array_equal(decoder(targets, memory, mask, states, training=False), at_rest)
    first, second = (np.asarray(decoder(targets, memory, mask, states, training=True)) for _ in range(2))
    assert np.abs(first - at_rest).max() > 1e-3 and np.abs(first - second).max() > 1e-3


def test_half_precision(rng):
    for name in ("bahdanau", "luong_local_p_feeding"):
        encoder, decoder, sources, mask, targets = make(name, rng)
        memory, states = encoder(sources, mask)
        expected = decoder(targets, memory, mask, states)
        half = RecurrentDecoder.from_config({**decoder.get_config(), "dtype": "mixed_bfloat16"})
        half.build((None, None, 2), (None, None, 4))
        half.set_weights(decoder.get_weights())
        outputs = half(targets, memory, mask, states)
        assert keras.backend.standardize_dtype(outputs.dtype) == "bfloat16"
        # 8 significant bits, five recurrent steps
        np.testing.assert_allclose(ops.cast(outputs, "float32"), expected, atol=0.15)


def test_window_of_a_long_source():
    window = AttentionWindow(2, "monotonic")
    mask = np.arange(6) < np.array([[6], [4]])
    visible, factors = window(np.zeros((2, 3), "float32"), mask, step=np.array([5, 5]))
    assert factors is None
    # of the second row, which has four tokens, the last one is the centre
    expected = [[False, False, True, True, True, True], [False, True, True, True, False, False]]
    np.testing.assert_array_equal(visible, expected)
    with pytest.raises(ValueError, match="step must be given with center='monotonic', got None"):
        window(np.zeros((2, 3), "float32"), mask)


def test_configuration_survives(rng):
    for name in ("cho", "luong_local_p_feeding"):
        decoder = make(name, rng)[1]
        assert RecurrentDecoder.from_config(decoder.get_config()).get_config() == decoder.get_config()
    for layer in (AttentionWindow(3), RecurrentReadout("maxout", 4)):
        assert type(layer).from_config(layer.get_config()).get_config() == layer.get_config()


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"attention": "soft"}, "attention must be one of 'none', 'previous_state', 'current_state', got 'soft'"),
        ({"bridge": "none"}, "bridge must be one of .* got 'none'"),
        ({"input_feeding": True}, "input_feeding must be False with attention='none'"),
        ({"context_input": True, **LUONG}, "context_input must be False with attention='current_state'"),
        ({"bridge": "context"}, "bridge must be one of .* with context_input=False, got 'context'"),
        ({"window": 2}, "window must be None with attention='none', got 2"),
        ({"window": 0, **LUONG}, "radius must be at least 1, got 0"),
        (
            {"window": 2, "window_center": "last", **LUONG},
            "center must be one of 'predicted', 'monotonic', got 'last'",
        ),
        ({"readout": "linear"}, "kind must be one of .* got 'linear'"),
        (
            {"readout_dim": 3},
            "dim must be None, or at least 1 with kind='attentional' or 'maxout'; got 3 with 'state'",
        ),
        ({"score": "cosine", **LUONG}, "kind must be one of .* got 'cosine'"),
    ],
)
def test_wrong_arguments(options, message):
    with pytest.raises(ValueError, match=message):
        RecurrentDecoder(4, **options)


def test_builds_itself_and_checks_widths():
    encoder, decoder = RecurrentEncoder(16, return_states=True), RecurrentDecoder(16, attention="previous_state")
    memory, states = encoder(ops.ones((2, 7, 8)))
    assert decoder(ops.ones((2, 5, 8)), memory, ops.ones((2, 7), "bool"), states).shape == (2, 5, 16)
    with pytest.raises(ValueError, match="memory must have the width of the states, 8, with bridge='copy'; got 16"):
        RecurrentDecoder(8, bridge="copy").build((None, None, 8), memory.shape)


def test_own_output_needs_a_choice(rng):
    encoder, decoder, sources, mask, targets = make("cho", rng)
    memory, states = encoder(sources, mask)
    with pytest.raises(ValueError, match="choose and numbers must be given with use_gold"):
        decoder(targets, memory, mask, states, use_gold=np.zeros((3, 5), "bool"))
