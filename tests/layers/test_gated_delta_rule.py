"""Gated delta rules against a loop over tokens, whole and with caches."""

import numpy as np
import pytest
from keras import ops

from layers import GatedDeltaRule
from layers.delta_rule import delta_rule

WIDTH = 6


@pytest.fixture
def rng():
    return np.random.default_rng(0)


def built(layer, rng):
    layer.build((None, None, WIDTH))
    layer.set_weights([rng.normal(size=weight.shape) * 0.5 for weight in layer.weights])
    return layer


def loop(query, key, value, log_decay, strength, state, segments=None):
    """Yang et al. 2025, equation 10, token by token, for a row and a head."""
    outputs = []
    for place in range(len(query)):
        if segments is not None and place and segments[place] != segments[place - 1]:
            state = np.zeros_like(state)
        state = np.exp(log_decay[place]) * state
        error = value[place] - state.T @ key[place]
        state = state + strength[place] * np.outer(key[place], error)
        outputs.append(state.T @ query[place])
    return np.stack(outputs), state


# one token; a part of a chunk; several chunks, the last one not whole
@pytest.mark.parametrize("length", [1, 5, 150])
def test_rule(length, rng):
    batch, heads, group, key_dim, value_dim = 2, 2, 3, 4, 5
    query, key = rng.normal(size=(2, batch, length, heads, key_dim))
    key /= np.linalg.norm(key, axis=-1, keepdims=True)
    value = rng.normal(size=(batch, length, heads, group, value_dim))
    # also heads that forget at once, and such that forget nothing
    log_decay = -np.exp(rng.normal(size=(batch, length, heads, group)) * 3)
    strength = rng.uniform(size=(batch, length, heads, group))
    state = rng.normal(size=(batch, heads, group, key_dim, value_dim))
    arrays = [x.astype("float32") for x in (query, key, value, log_decay, strength)]
    outputs, after = delta_rule(*arrays, state.astype("float32"))
    segments = np.sort(rng.integers(0, 4, (batch, length)))
    packed, _ = delta_rule(*arrays, segment_ids=segments)
    for row, head, member in np.ndindex(batch, heads, group):
        one = [query[row, :, head], key[row, :, head]]
        one += [x[row, :, head, member] for x in (value, log_decay, strength)]
        expected, expected_state = loop(*one, state[row, head, member])
        np.testing.assert_allclose(outputs[row, :, head, member], expected, rtol=1e-3, atol=1e-4)
        np.testing.assert_allclose(after[row, head, member], expected_state, rtol=1e-3, atol=1e-4)
        if length > 1:
            expected, _ = loop(*one, np.zeros((key_dim, value_dim)), segments[row])
            np.testing.assert_allclose(packed[row, :, head, member], expected, rtol=1e-3, atol=1e-4)


def by_hand(layer, x):
    """A row `(length, width)`."""
    weights = {weight.path.split("/", 1)[-1]: ops.convert_to_numpy(weight) for weight in layer.weights}

    def sigmoid(x):
        return 1 / (1 + np.exp(-x))

    keys, values = layer.num_key_heads * layer.key_dim, layer.num_heads * layer.value_dim
    mixed = np.concatenate([x @ weights[f"{name}/kernel"] for name in ("query", "key", "value")], axis=-1)
    padded = np.concatenate([np.zeros((layer.kernel_size - 1, 2 * keys + values)), mixed])
    taps = weights["convolution/kernel"]
    mixed = sum(padded[place : place + len(x)] * taps[place] for place in range(layer.kernel_size))
    query, key, value = np.split(mixed * sigmoid(mixed), [keys, 2 * keys], axis=-1)
    query, key = (each.reshape(len(x), layer.num_key_heads, -1) for each in (query, key))
    query, key = (each / np.sqrt((each**2).sum(-1, keepdims=True) + 1e-6) for each in (query, key))
    value = value.reshape(len(x), layer.num_heads, -1)
    strength = sigmoid(x @ weights["strength/kernel"])
    step = np.log1p(np.exp(x @ weights["decay/kernel"] + weights["decay_bias"]))
    log_decay, read = -np.exp(weights["log_rate"]) * step, []
    for head in range(layer.num_heads):
        shared = head // (layer.num_heads // layer.num_key_heads)
        state = np.zeros((layer.key_dim, layer.value_dim))
        q, k = query[:, shared] * layer.key_dim**-0.5, key[:, shared]
        read.append(loop(q, k, value[:, head], log_decay[:, head], strength[:, head], state)[0])
    read = np.stack(read, axis=1)
    normed = read / np.sqrt((read**2).mean(-1, keepdims=True) + layer.epsilon) * weights["norm/scale"]
    gate = (x @ weights["gate/kernel"]).reshape(normed.shape)
    return (normed * gate * sigmoid(gate)).reshape(len(x), -1) @ weights["output/kernel"]


def made(rng, **options):
    return built(GatedDeltaRule(4, 3, 5, 2, kernel_size=3, name="a", **options), rng)


def test_formula_and_padding(rng):
    layer, x = made(rng), rng.normal(size=(2, 7, WIDTH)).astype("float32")
    mask = np.array([[0, 0, 1, 1, 1, 1, 1], [1, 1, 1, 1, 0, 0, 0]], "bool")
    x[~mask] = np.nan
    padded = layer(x, padding_mask=mask)
    np.testing.assert_allclose(padded[0, 2:], by_hand(layer, x[0, 2:]), rtol=1e-3, atol=1e-5)
    np.testing.assert_allclose(padded[1, :4], by_hand(layer, x[1, :4]), rtol=1e-3, atol=1e-5)


def test_rows_of_different_lengths_in_a_cache(rng):
    """Pieces of texts, of which rows may have none; and a prompt that is padded on the left."""
    layer, index, fed = made(rng), np.array([0, 0], "int32"), [np.zeros((0, WIDTH))] * 2
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


def test_layer_contract(rng, check_layer):
    x = rng.normal(size=(2, 5, WIDTH)).astype("float32")
    # the norm of what heads read makes small vectors large, with what bfloat16 has rounded before
    check_layer(made(rng), x, half_precision_tolerance=0.1)


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ((0, 4), "num_heads must be an integer of at least 1, got 0"),
        ((4, 4, 4, 3), "num_key_heads must be a divisor of num_heads=4, got 3"),
    ],
)
def test_errors(arguments, message):
    with pytest.raises(ValueError, match=message):
        GatedDeltaRule(*arguments)
