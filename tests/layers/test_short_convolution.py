"""Short convolutions against a formula, whole and with caches."""

import numpy as np
import pytest
from keras import ops

from layers import FeedForward, ShortConvolution, TransformerBlock

WIDTH = 6


@pytest.fixture
def rng():
    return np.random.default_rng(0)


def built(layer, rng):
    layer.build((None, None, WIDTH))
    layer.set_weights([rng.normal(size=weight.shape) * 0.5 for weight in layer.weights])
    return layer


def by_hand(layer, x, segments=None):
    """A row `(length, width)`: a loop over positions and what each sees."""
    weights = {weight.path.split("/", 1)[-1]: ops.convert_to_numpy(weight) for weight in layer.weights}

    def linear(name, x):
        return x @ weights[f"{name}/kernel"] + weights.get(f"{name}/bias", 0)

    products, taps = linear("input_gate", x) * linear("value", x), weights["convolution/kernel"]
    mixed = np.zeros_like(products)
    for place in range(len(x)):
        for distance in range(min(layer.kernel_size, place + 1)):
            if segments is None or segments[place] == segments[place - distance]:
                mixed[place] += taps[layer.kernel_size - 1 - distance] * products[place - distance]
    return linear("output", linear("output_gate", x) * (mixed + weights.get("convolution/bias", 0)))


@pytest.mark.parametrize(("size", "use_bias"), [(1, False), (3, True), (9, False)])
def test_formula(size, use_bias, rng):
    layer = built(ShortConvolution(size, use_bias, name="a"), rng)
    x = rng.normal(size=(2, 7, WIDTH)).astype("float32")
    segments = np.array([[0, 0, 0, 1, 1, 2, 2], [3, 3, 3, 3, 3, 3, 0]])
    for row in range(2):
        np.testing.assert_allclose(layer(x)[row], by_hand(layer, x[row]), rtol=1e-4, atol=1e-5)
        packed = layer(x, segment_ids=segments)[row]
        np.testing.assert_allclose(packed, by_hand(layer, x[row], segments[row]), rtol=1e-4, atol=1e-5)


def test_padding_on_both_sides_is_not_seen(rng):
    layer = built(ShortConvolution(3, True, name="a"), rng)
    x = rng.normal(size=(2, 6, WIDTH)).astype("float32")
    mask = np.array([[0, 0, 1, 1, 1, 1], [1, 1, 1, 0, 0, 0]], "bool")
    x[~mask] = np.nan
    padded = layer(x, padding_mask=mask)
    np.testing.assert_allclose(padded[0, 2:], by_hand(layer, x[0, 2:]), rtol=1e-4, atol=1e-5)
    np.testing.assert_allclose(padded[1, :3], by_hand(layer, x[1, :3]), rtol=1e-4, atol=1e-5)


# in how many pieces a text of 8 tokens is fed
@pytest.mark.parametrize("pieces", [(8,), (1,) * 8, (3, 1, 4), (2, 6)])
@pytest.mark.parametrize("per_row", [False, True])
def test_with_a_cache_outputs_are_those_of_the_whole(pieces, per_row, rng):
    layer = built(ShortConvolution(4, True, name="a"), rng)
    x, start, outputs = rng.normal(size=(2, 8, WIDTH)).astype("float32"), 0, []
    cache = layer.make_cache(2, 8)
    for size in pieces:
        index = np.full((2,), start, "int32") if per_row else start
        output, cache = layer(x[:, start : start + size], cache=cache, cache_index=index)
        outputs.append(output)
        start += size
    assert cache["entry"].shape == (2, 1, 4, WIDTH)
    np.testing.assert_allclose(np.concatenate(outputs, axis=1), layer(x), rtol=1e-4, atol=1e-5)


def test_rows_of_different_lengths_in_a_cache(rng):
    """A prompt padded on the left, for one index of all rows; prompts padded on the right, with one per row."""
    layer = built(ShortConvolution(3, True, name="a"), rng)
    x = rng.normal(size=(2, 6, WIDTH)).astype("float32")
    positions = np.arange(5) - np.array([[0], [3]])
    _, cache = layer(x[:, :5], positions=positions, cache=layer.make_cache(2, 6), cache_index=0)
    output, _ = layer(x[:, 5:], positions=np.array([[5], [2]]), cache=cache, cache_index=5)
    np.testing.assert_allclose(output[1], by_hand(layer, x[1, 3:])[-1:], rtol=1e-4, atol=1e-5)
    cache, index = layer.make_cache(2, 9), np.array([0, 0], "int32")
    fed = [x[0, :0], x[1, :0]]
    for lengths in ([4, 1], [0, 3], [1, 0], [1, 1]):
        new = rng.normal(size=(2, max(lengths), WIDTH)).astype("float32")
        steps = np.arange(max(lengths))
        positions = np.where(steps < np.array(lengths)[:, None], index[:, None] + steps, -1)
        output, cache = layer(new, positions=positions, cache=cache, cache_index=index)
        for row, length in enumerate(lengths):
            fed[row] = np.concatenate([fed[row], new[row, :length]])
            expected = by_hand(layer, fed[row])[len(fed[row]) - length :]
            np.testing.assert_allclose(output[row, :length], expected, rtol=1e-4, atol=1e-5)
        index = index + np.array(lengths, "int32")


def test_layer_contract(rng, check_layer):
    check_layer(built(ShortConvolution(3, True, name="short"), rng), rng.normal(size=(2, 5, WIDTH)).astype("float32"))


def test_errors(rng):
    layer, x = built(ShortConvolution(3), rng), np.ones((2, 4, WIDTH), "float32")
    cache = layer.make_cache(2, 4)
    for call, message in (
        (lambda: ShortConvolution(0), "kernel_size must be an integer of at least 1, got 0"),
        (lambda: layer(x, cache=cache), "cache and cache_index must be given together"),
        (
            lambda: layer(x, cache=cache, cache_index=0, padding_mask=np.ones((2, 4), "bool")),
            "padding_mask must be None with a cache.*Give padding positions below zero",
        ),
        (
            lambda: TransformerBlock(layer, FeedForward(8))(x, prefix_length=np.ones((2,), "int32")),
            "prefix_length must be None with attention=<ShortConvolution",
        ),
    ):
        with pytest.raises(ValueError, match=message):
            call()


def test_a_cache_before_there_are_weights():
    with pytest.raises(ValueError, match="must be built before it makes a cache"):
        ShortConvolution(3).make_cache(2, 8)
