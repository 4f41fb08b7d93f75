import math

import keras
import numpy as np
import pytest
from keras import ops

from layers.dropout import Dropout, dropout_multiplier, quantized_rate


def dropped(rate, shape, seed=3, steps=1, **options):
    """Outputs of a dropout layer for ones, one array per step."""
    layer = Dropout(rate, seed=seed, **options)
    return [ops.convert_to_numpy(layer(ops.ones(shape), training=True)) for _ in range(steps)]


@pytest.mark.parametrize("rate", [0.1, 0.3, 0.5, 0.9, 0.001])
def test_rate_and_scale(rate):
    count = 400_000
    (outputs,) = dropped(rate, (count,))
    numerator, bits = quantized_rate(rate)
    true_rate = numerator / 2**bits
    assert abs(true_rate / rate - 1) <= 0.02
    # five standard deviations of a binomial count
    assert abs(np.mean(outputs == 0) - true_rate) < 5 * np.sqrt(true_rate * (1 - true_rate) / count)
    np.testing.assert_allclose(outputs[outputs != 0], 1 / (1 - true_rate), rtol=1e-6)


def test_the_fewest_bits_that_give_the_rate():
    assert quantized_rate(0.5) == (128, 8)
    assert quantized_rate(0.3) == (77, 8)
    assert quantized_rate(0.01) == (655, 16)
    assert quantized_rate(1e-6) == (4295, 32)
    assert quantized_rate(1 - 1e-12) == (2**32 - 1, 32)


@pytest.mark.parametrize("rate", [0.3, 0.01])
def test_decisions_are_independent(rate):
    count = 300_000
    first, second = (outputs == 0 for outputs in dropped(rate, (count,), steps=2))

    def correlation(x, y):
        return np.corrcoef(x, y)[0, 1] * np.sqrt(len(x))  # about standard normal if independent

    # Decisions come from the bytes of words of 4 or 8 bytes: neighbours in a word, and in neighbouring words.
    for lag in (1, 2, 3, 4, 5, 7, 8, 16, 20, 128):
        assert abs(correlation(first[:-lag], first[lag:])) < 5, lag
    assert abs(correlation(first, second)) < 5
    assert abs(correlation(first[1:], second[:-1])) < 5


@pytest.mark.parametrize("sizes", [(2**16, 2**16), (2**30, 9), (1, 2**20, 2**12 + 1)])
def test_more_elements_than_an_integer_counts(sizes, monkeypatch):
    """With sizes that are tensors, of 32 bits each; the random numbers themselves are not drawn."""

    class DrawnError(Exception):
        pass

    def randint(shape, *arguments, dtype, **options):
        count = int(dtype.removeprefix("int")) // 8
        for size in shape:
            count *= int(size)
        raise DrawnError(count)

    monkeypatch.setattr(keras.random, "randint", randint)
    shape = [ops.convert_to_tensor(size, "int32") for size in sizes]
    with pytest.raises(DrawnError) as drawn:
        dropout_multiplier(shape, 0.5, 1)
    assert math.prod(sizes) <= drawn.value.args[0] < 2 * math.prod(sizes)


@pytest.mark.parametrize("shape", [(7,), (3, 5), (128, 4, 3, 20), (1, 1)])
def test_any_shape(shape):
    assert dropped(0.5, shape)[0].shape == shape


def test_seed_makes_the_sequence_reproducible():
    first, again, other = (np.stack(dropped(0.5, (50,), seed=seed, steps=2)) for seed in (1, 1, 2))
    np.testing.assert_array_equal(first, again)
    assert np.any(first[0] != first[1])
    assert np.any(first != other)


def test_inference_and_trivial_rates():
    x = ops.ones((4, 5))
    assert Dropout(0.5)(x) is x
    assert Dropout(0.5)(x, training=False) is x
    assert Dropout(0.0)(x, training=True) is x
    np.testing.assert_array_equal(Dropout(1.0)(x, training=True), np.zeros((4, 5)))


def test_noise_shape_shares_decisions():
    (outputs,) = dropped(0.5, (20, 6, 30), noise_shape=(None, 1, None))
    np.testing.assert_array_equal(outputs, np.repeat(outputs[:, :1], 6, axis=1))
    assert 0.3 < np.mean(outputs == 0) < 0.7


def test_gradient_is_the_same_factors(gradients):
    layer = Dropout(0.5, seed=1)
    x = np.ones((6, 7), "float32")
    seen = []

    def function(x):
        seen.append(layer(x, training=True))
        return ops.sum(seen[-1])

    (gradient,) = gradients(function, x)
    if keras.backend.backend() == "tensorflow":  # JAX's values cannot be kept from inside
        np.testing.assert_array_equal(gradient, seen[-1])
    assert set(np.unique(gradient)) == {0.0, 2.0}


def test_xla_draws_the_same_numbers(with_xla):
    def function(x):
        return x * dropout_multiplier(ops.shape(x), 0.3, seed=5, dtype=x.dtype)

    x = np.ones((9, 11), "float32")
    np.testing.assert_array_equal(with_xla(function)(x), ops.convert_to_numpy(function(ops.convert_to_tensor(x))))


@pytest.mark.parametrize("jit_compile", [False, True])
def test_in_fit_with_unknown_sizes(jit_compile):
    inputs = keras.Input((None,))
    model = keras.Model(inputs, Dropout(0.5, seed=1)(inputs))
    model.compile("sgd", "mse", jit_compile=jit_compile)
    loss = model.train_on_batch(np.ones((64, 33), "float32"), np.ones((64, 33), "float32"))
    # (2 - 1)^2 and (0 - 1)^2: one whichever is dropped
    assert abs(float(loss) - 1) < 1e-6


@pytest.mark.parametrize("dtype", ["mixed_bfloat16", "mixed_float16"])
def test_half_precision(dtype):
    outputs = Dropout(0.3, seed=1, dtype=dtype)(np.ones((100, 100), "float32"), training=True)
    assert keras.backend.standardize_dtype(outputs.dtype) == dtype[len("mixed_") :]
    values = np.unique(ops.convert_to_numpy(ops.cast(outputs, "float32")))
    np.testing.assert_allclose(values, [0, 256 / 179], rtol=2**-8)  # bfloat16 has 8 significant bits


def test_config_round_trip():
    layer = Dropout(0.3, noise_shape=(None, 1), seed=4, name="d")
    copy = Dropout.from_config(layer.get_config())
    assert copy.get_config() == layer.get_config()


def test_wrong_rate():
    with pytest.raises(ValueError, match="rate=1.5"):
        Dropout(1.5)
