"""State spaces against a loop over tokens, whole and with caches."""

import numpy as np
import pytest
from keras import ops

from layers import StateSpace

WIDTH = 6


@pytest.fixture
def rng():
    return np.random.default_rng(0)


def made(rng, **options):
    layer = StateSpace(4, 3, 5, 2, **{"kernel_size": 3, "epsilon": 1e-3, "name": "a", **options})
    layer.build((None, None, WIDTH))
    layer.set_weights([rng.normal(size=weight.shape) * 0.5 for weight in layer.weights])
    return layer


def silu(x):
    return x / (1 + np.exp(-x))


def by_hand(layer, x):
    """A row `(length, width)`: Dao and Gu 2024, equation 1 with a step, and figure 6, token by token."""
    weights = {weight.path.split("/", 1)[-1]: ops.convert_to_numpy(weight) for weight in layer.weights}

    def project(name, x):
        return x @ weights[f"{name}/kernel"] + weights.get(f"{name}/bias", 0)

    keys, values = layer.num_key_heads * layer.key_dim, layer.num_heads * layer.value_dim
    mixed = np.concatenate([project(name, x) for name in ("value", "key", "query")], axis=-1)
    padded = np.concatenate([np.zeros((layer.kernel_size - 1, 2 * keys + values)), mixed])
    taps = weights["convolution/kernel"]
    mixed = sum(padded[place : place + len(x)] * taps[place] for place in range(layer.kernel_size))
    value, b, c = np.split(silu(mixed + weights.get("convolution/bias", 0)), [values, values + keys], axis=-1)
    value, b, c = (
        part.reshape(len(x), heads, -1)
        for part, heads in ((value, layer.num_heads), (b, layer.num_key_heads), (c, layer.num_key_heads))
    )
    step = np.log1p(np.exp(project("step", x) + weights["step_bias"]))
    step = np.clip(step, layer.step_limit[0], layer.step_limit[1] or np.inf)
    read = np.zeros(value.shape)
    for head in range(layer.num_heads):
        group, state = head // (layer.num_heads // layer.num_key_heads), np.zeros((layer.key_dim, layer.value_dim))
        rate = np.exp(weights["log_rate"][head])
        for place in range(len(x)):
            new = step[place, head] * np.outer(b[place, group], value[place, head])
            state = np.exp(-step[place, head] * rate) * state + new
            read[place, head] = c[place, group] @ state + weights["skip"][head] * value[place, head]
    gated = (read.reshape(len(x), -1) * silu(project("gate", x))).reshape(len(x), layer.num_key_heads, -1)
    normed = gated / np.sqrt((gated**2).mean(-1, keepdims=True) + layer.epsilon)
    return project("output", normed.reshape(len(x), -1) * weights["norm_scale"])


# several chunks, the last one not whole; limits that steps reach at both ends
@pytest.mark.parametrize(
    ("length", "options"),
    [(150, {"use_bias": True, "step_limit": (0.5, 1.0)}), (5, {"convolution_bias": False})],
)
def test_formula_padding_and_packed_sequences(length, options, rng):
    layer, x = made(rng, **options), rng.normal(size=(3, length, WIDTH)).astype("float32")
    mask = np.arange(length) >= np.array([[2], [0], [0]])
    mask[1, 4:] = False
    x[~mask] = np.nan
    padded = layer(x, padding_mask=mask)
    np.testing.assert_allclose(padded[0, 2:], by_hand(layer, x[0, 2:]), rtol=1e-3, atol=1e-4)
    np.testing.assert_allclose(padded[1, :4], by_hand(layer, x[1, :4]), rtol=1e-3, atol=1e-4)
    end = 4 * length // 5  # in the midst of a chunk
    packed = layer(x[2:], segment_ids=(np.arange(length) >= end)[None].astype("int32"))
    for part in (slice(end), slice(end, None)):
        np.testing.assert_allclose(packed[0, part], by_hand(layer, x[2, part]), rtol=1e-3, atol=1e-4)


def test_rows_of_different_lengths_in_a_cache(rng):
    """Pieces of texts, of which rows may have none; and a prompt that is padded on the left."""
    layer, index, fed = made(rng, use_bias=True), np.array([0, 0], "int32"), [np.zeros((0, WIDTH))] * 2
    cache = layer.make_cache(2, 20)
    for lengths in ([4, 1], [0, 3], [1, 0], [1, 1]):
        new, steps = rng.normal(size=(2, max(lengths), WIDTH)).astype("float32"), np.arange(max(lengths))
        positions = np.where(steps < np.array(lengths)[:, None], index[:, None] + steps, -1)
        output, cache = layer(new, positions=positions, cache=cache, cache_index=index)
        for row, length in enumerate(lengths):
            fed[row] = np.concatenate([fed[row], new[row, :length]])
            expected = by_hand(layer, fed[row])[len(fed[row]) - length :]
            np.testing.assert_allclose(output[row, :length], expected, rtol=1e-3, atol=1e-5)
        index = index + np.array(lengths, "int32")
    x = rng.normal(size=(2, 6, WIDTH)).astype("float32")
    positions = np.arange(5) - np.array([[0], [3]])
    _, cache = layer(x[:, :5], positions=positions, cache=layer.make_cache(2, 6), cache_index=0)
    output, _ = layer(x[:, 5:], positions=np.array([[5], [2]]), cache=cache, cache_index=5)
    np.testing.assert_allclose(output[1], by_hand(layer, x[1, 3:])[-1:], rtol=1e-3, atol=1e-5)


def test_first_steps_are_within_a_range():
    layer = StateSpace(8, 4)
    layer.build((None, None, WIDTH))
    steps = ops.convert_to_numpy(ops.softplus(layer.step_bias))
    assert 1e-3 * 0.99 <= steps.min() < 2e-3 and 5e-2 < steps.max() <= 1e-1


def test_layer_contract(rng, check_layer):
    x = rng.normal(size=(2, 5, WIDTH)).astype("float32")
    # the norm of what heads read makes small vectors large, with what bfloat16 has rounded before
    check_layer(made(rng), x, half_precision_tolerance=0.1)


@pytest.mark.parametrize(
    ("arguments", "options", "message"),
    [
        ((0, 4), {}, "num_heads must be an integer of at least 1, got 0"),
        ((4, 4), {"step_limit": (0.2, 0.1)}, r"step_limit must be a number of at least 0 and .*, got \(0.2, 0.1\)"),
    ],
)
def test_errors(arguments, options, message):
    with pytest.raises(ValueError, match=message):
        StateSpace(*arguments, **options)
