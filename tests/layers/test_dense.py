"""Low-rank updates with magnitudes (DoRA) of dense layers, against equation 5 of Liu et al. 2024 in NumPy."""

import keras
import numpy as np
import pytest
from keras import ops

from layers.dense import Dense, LowRankUpdate


@pytest.fixture
def rng():
    return np.random.default_rng(0)


def adapted(rng, dtype=None, activation=None, **options):
    """A layer of 6 inputs and 5 outputs with an update whose parts are all random."""
    layer = Dense(5, bias_initializer="normal", activation=activation, dtype=dtype)
    layer.build((None, 6))
    add(rng, layer, "default", **options)
    return layer


def add(rng, layer, name, **options):
    update = layer.add_update(name, rank=2, dora=True, **options)
    update.lora_b.assign(rng.normal(size=(2, 5)))
    update.lora_magnitude.assign(rng.uniform(0.5, 2.0, 5))
    return update


def new_kernel(kernel, update):
    """`m (W + s A B) / |W + s A B|`, column by column, in float64."""
    first, second, magnitude = (
        np.array(part, "float64") for part in (update.lora_a, update.lora_b, update.lora_magnitude)
    )
    direction = np.array(kernel, "float64") + update.alpha / update.rank * first @ second
    return magnitude * direction / np.linalg.norm(direction, axis=0)


@pytest.mark.parametrize("activation", [None, "gelu"])
def test_the_norms_of_columns_are_the_magnitude(rng, activation):
    layer, inputs = adapted(rng, activation=activation, alpha=3.0), rng.normal(size=(3, 4, 6)).astype("float32")
    update = layer.updates["default"]
    kernel = new_kernel(layer.kernel, update)
    np.testing.assert_allclose(np.linalg.norm(kernel, axis=0), update.lora_magnitude, rtol=1e-5)
    np.testing.assert_allclose(layer.updated_kernel(), kernel, rtol=1e-5, atol=1e-6)
    function = keras.activations.get(activation)
    expected = ops.convert_to_numpy(
        function(ops.convert_to_tensor((inputs @ kernel + np.array(layer.bias)).astype("float32")))
    )
    np.testing.assert_allclose(layer(inputs), expected, rtol=1e-4, atol=1e-5)
    layer.remove_updates(["default"], merge=True)
    assert not layer.updates
    np.testing.assert_allclose(layer.kernel, kernel, rtol=1e-5, atol=1e-6)
    np.testing.assert_allclose(layer(inputs), expected, rtol=1e-4, atol=1e-5)


def test_a_new_update_changes_nothing(rng):
    layer, inputs = Dense(5), rng.normal(size=(3, 6)).astype("float32")
    before = ops.convert_to_numpy(layer(inputs))
    update = layer.add_update("default", rank=2, dora=True)
    np.testing.assert_allclose(update.lora_magnitude, np.linalg.norm(layer.kernel, axis=0), rtol=1e-6)
    np.testing.assert_allclose(layer(inputs), before, rtol=1e-5, atol=1e-6)
    # a column of zeros stays one
    layer = Dense(5, kernel_initializer="zeros")
    layer.build((None, 6))
    layer.add_update("default", rank=2, dora=True)
    np.testing.assert_array_equal(layer(inputs), np.zeros((3, 5)))


def test_each_is_relative_to_the_kernel(rng):
    layer, inputs = adapted(rng), rng.normal(size=(3, 6)).astype("float32")
    add(rng, layer, "second", alpha=0.5)
    plain = layer.add_update("third", rank=3)
    plain.lora_b.assign(rng.normal(size=(3, 5)))
    kernel = np.array(layer.kernel, "float64")
    total = kernel + np.array(plain.lora_a) @ np.array(plain.lora_b)
    for name in ("default", "second"):
        total += new_kernel(kernel, layer.updates[name]) - kernel
    expected = inputs @ total + np.array(layer.bias)
    np.testing.assert_allclose(layer(inputs), expected, rtol=1e-4, atol=1e-5)
    with pytest.raises(ValueError, match=r"must include 'second', got \['default', 'third'\]: with DoRA it depends"):
        layer.remove_updates(["third", "default"], merge=True)
    layer.remove_updates(["second", "default", "third"], merge=True)
    np.testing.assert_allclose(layer(inputs), expected, rtol=1e-4, atol=1e-5)


def test_dropout_drops_inputs_of_the_whole_update(rng):
    """As in the PEFT library: `x W + b + (g - 1) d W + g s d A B` with `d = dropout(x)` and `g` the gain."""
    keras.utils.set_random_seed(0)
    layer = adapted(rng, alpha=3.0, dropout=0.5)
    update, inputs = layer.updates["default"], np.eye(6, dtype="float32")
    kernel, new = np.array(layer.kernel), new_kernel(layer.kernel, update)
    np.testing.assert_allclose(layer(inputs), new + np.array(layer.bias), rtol=1e-4, atol=1e-5)
    rest = ops.convert_to_numpy(layer(inputs, training=True)) - kernel - np.array(layer.bias)
    # rows of the identity matrix: each is kept, and doubled, or dropped
    kept = np.abs(rest).max(axis=1) > 1e-4
    assert 0 < kept.sum() < 6
    np.testing.assert_allclose(rest[kept], 2 * (new - kernel)[kept], rtol=1e-3, atol=1e-5)


def test_half_precision_has_the_gain_of_float32(rng):
    layer, inputs = adapted(rng, dtype="mixed_bfloat16"), rng.normal(size=(3, 6)).astype("float32")
    update = layer.updates["default"]
    assert {variable.dtype for variable in update.variables} == {"float32"}
    expected = inputs @ new_kernel(layer.kernel, update) + np.array(layer.bias)
    actual = ops.convert_to_numpy(ops.cast(layer(inputs), "float32"))
    np.testing.assert_allclose(actual, expected, rtol=0.03, atol=0.03)


def test_kernels_in_8_bits(rng):
    inputs = rng.normal(size=(3, 6)).astype("float32")
    layer = adapted(rng)
    update = layer.updates["default"]
    layer.quantize("int8")
    new = new_kernel(layer.plain_kernel(), update)
    np.testing.assert_allclose(layer(inputs), inputs @ new + np.array(layer.bias), rtol=0.05, atol=0.05)
    with pytest.raises(ValueError, match="must not be quantized, got int8"):
        layer.remove_updates(["default"], merge=True)
    with pytest.raises(ValueError, match="must be in floating point or int8 for DoRA, got int4"):
        adapted(rng).quantize("int4")
    plain = Dense(5)
    plain.build((None, 6))
    before = np.array(plain.kernel)
    plain.quantize("int8")
    # the norms of what the integers stand for
    magnitude = plain.add_update("default", rank=2, dora=True).lora_magnitude
    np.testing.assert_allclose(magnitude, np.linalg.norm(before, axis=0), rtol=0.02)
    plain = Dense(5)
    plain.build((None, 6))
    plain.quantize("int4")
    with pytest.raises(ValueError, match="must be in floating point or int8 for DoRA, got int4"):
        plain.add_update("default", rank=2, dora=True)
    with pytest.raises(ValueError, match="dora must be True or False, got 1"):
        LowRankUpdate(5, 2, dora=1)
