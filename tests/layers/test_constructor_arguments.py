"""Configurations that come from the arguments of constructors."""

import keras
import numpy as np
import pytest
from keras import ops

from layers import ConfigFromArguments, Dropout, RMSNorm
from layers.constructor_arguments import constructor_arguments


@keras.saving.register_keras_serializable("test_arguments")
def halve(x):
    return x / 2


@keras.saving.register_keras_serializable("test_arguments")
class Mapped(ConfigFromArguments, keras.layers.Layer):
    """`function(inner(x)) * factor`, with a norm and weights that are no arguments."""

    argument_attributes = {"factor": "first_factor", "rate": "dropout.rate"}

    def __init__(self, factor, inner, function=halve, *, kernel_initializer="zeros", rate=0.5, **kwargs):
        super().__init__(**kwargs)
        self.first_factor = factor
        self.inner = inner
        self.function = function
        self.kernel_initializer = keras.initializers.get(kernel_initializer)
        self.dropout = Dropout(rate)

    def build(self, shape):
        if not self.inner.built:  # by another layer that shares it
            self.inner.build(shape)
        self.factor = self.add_weight(shape=(), initializer=keras.initializers.Constant(self.first_factor))

    def call(self, x):
        return self.function(self.inner(x)) * self.factor


@keras.saving.register_keras_serializable("test_arguments")
class Shifted(Mapped):
    def __init__(self, factor, inner, shift=0.0, **kwargs):
        super().__init__(factor, inner, **kwargs)
        self.shift = shift


@keras.saving.register_keras_serializable("test_arguments")
class ByHand(Mapped):
    """Writes its argument itself, which is kept as no attribute of its name."""

    def __init__(self, factor, inner, power, **kwargs):
        super().__init__(factor, inner, **kwargs)
        self.own = power

    def get_config(self):
        return {**super().get_config(), "factor": self.first_factor, "inner": self.inner, "power": self.own}


@keras.saving.register_keras_serializable("test_arguments")
class BelowByHand(ByHand):
    """Adds an argument to those of a class that writes its own."""

    def __init__(self, factor, inner, power, offset=0.0, **kwargs):
        super().__init__(factor, inner, power, **kwargs)
        self.offset = offset


@keras.saving.register_keras_serializable("test_arguments")
class Mixture(ConfigFromArguments, keras.layers.Layer):
    """`sum_i weights_i parts_i(x)` with parts in a list and by name, and options of Keras by their names."""

    def __init__(self, parts, named, weights_of_parts, dtype=None, name=None):
        super().__init__(dtype=dtype, name=name)
        self.parts, self.named, self.weights_of_parts = parts, named, weights_of_parts

    def build(self, shape):
        for part in (*self.parts, *self.named.values()):
            part.build(shape)

    def call(self, x):
        outputs = [part(x) for part in (*self.parts, *self.named.values())]
        return sum(weight * output for weight, output in zip(self.weights_of_parts, outputs, strict=True))


def made(**options):
    return Shifted(3.0, keras.layers.Dense(2, name="inner"), 1.5, kernel_initializer="ones", rate=0.25, **options)


def test_config_has_the_arguments_and_those_of_keras():
    layer = made(name="a", trainable=False, dtype="mixed_bfloat16")
    config = layer.get_config()
    assert set(config) == {
        "name",
        "trainable",
        "dtype",
        "factor",
        "inner",
        "shift",
        "function",
        "kernel_initializer",
        "rate",
    }
    assert (config["factor"], config["shift"], config["rate"], config["name"]) == (3.0, 1.5, 0.25, "a")
    again = Shifted.from_config(config)
    assert isinstance(again.inner, keras.layers.Dense) and again.function is halve
    assert again.get_config() == config
    layer.dropout.rate = 0.75
    assert layer.get_config()["rate"] == 0.75


def test_file_and_clone_have_the_same_outputs(tmp_path):
    model = keras.Sequential([keras.Input((4,)), made()])
    x = np.random.default_rng(0).normal(size=(3, 4)).astype("float32")
    expected = 1.5 * (x @ ops.convert_to_numpy(model.layers[0].inner.kernel))
    np.testing.assert_allclose(model.predict(x, verbose=0), expected, rtol=1e-5)
    model.save(tmp_path / "model.keras")
    loaded = keras.saving.load_model(tmp_path / "model.keras")
    np.testing.assert_allclose(loaded.predict(x, verbose=0), expected, rtol=1e-5)
    clone = keras.models.clone_model(model)
    clone.set_weights(model.get_weights())
    np.testing.assert_allclose(clone.predict(x, verbose=0), expected, rtol=1e-5)


def test_shared_part_is_one_object_again(tmp_path):
    shared = keras.layers.Dense(4)
    model = keras.Sequential([keras.Input((4,)), Mapped(1.0, shared), Mapped(2.0, shared)])
    model.save(tmp_path / "model.keras")
    first, second = keras.saving.load_model(tmp_path / "model.keras").layers
    assert first.inner is second.inner


def test_subclass_that_writes_its_arguments_itself():
    layer = ByHand(1.0, RMSNorm(), power=2)
    assert layer.get_config()["power"] == 2
    assert ByHand.from_config(layer.get_config()).own == 2


def test_subclass_of_one_that_writes_its_arguments_itself():
    layer = BelowByHand(1.0, RMSNorm(), 2, offset=0.5)
    again = BelowByHand.from_config(layer.get_config())
    assert (again.own, again.offset) == (2, 0.5)


def test_parts_in_lists_and_dictionaries(tmp_path):
    weights = np.array([0.5, 2.0, -1.0], "float32")
    layer = Mixture([keras.layers.Dense(2), keras.layers.Dense(2)], {"third": keras.layers.Dense(2)}, weights)
    model = keras.Sequential([keras.Input((4,)), layer])
    x = np.random.default_rng(0).normal(size=(3, 4)).astype("float32")
    kernels = [ops.convert_to_numpy(part.kernel) for part in (*layer.parts, layer.named["third"])]
    expected = sum(weight * (x @ kernel) for weight, kernel in zip(weights, kernels, strict=True))
    model.save(tmp_path / "model.keras")
    loaded = keras.saving.load_model(tmp_path / "model.keras")
    np.testing.assert_allclose(loaded.predict(x, verbose=0), expected, rtol=1e-5, atol=1e-6)
    clone = keras.models.clone_model(model)
    assert clone.layers[0].parts[0] is not layer.parts[0]
    clone.set_weights(model.get_weights())
    np.testing.assert_allclose(clone.predict(x, verbose=0), expected, rtol=1e-5, atol=1e-6)


def test_a_function_without_a_name_is_read_where_it_may_be_run(tmp_path):
    model = keras.Sequential([keras.Input((4,)), Mapped(1.0, keras.layers.Dense(2), lambda x: x * 3)])
    x = np.random.default_rng(0).normal(size=(3, 4)).astype("float32")
    with pytest.warns(UserWarning, match="lambda"):
        model.save(tmp_path / "model.keras")
    with pytest.raises(ValueError, match="lambda"):
        keras.saving.load_model(tmp_path / "model.keras")
    loaded = keras.saving.load_model(tmp_path / "model.keras", safe_mode=False)
    expected = 3 * (x @ ops.convert_to_numpy(model.layers[0].inner.kernel))
    np.testing.assert_allclose(loaded.predict(x, verbose=0), expected, rtol=1e-5, atol=1e-6)


def test_dtype_as_an_argument_is_the_policy():
    layer = Mixture([], {}, [], dtype="mixed_bfloat16", name="mixed")
    again = keras.saving.deserialize_keras_object(keras.saving.serialize_keras_object(layer))
    assert (again.compute_dtype, again.variable_dtype, again.name) == ("bfloat16", "float32", "mixed")


def test_constructor_without_options_of_keras():
    @keras.saving.register_keras_serializable("test_arguments")
    class Bare(ConfigFromArguments):
        def __init__(self, size):
            self.size = size

    assert Bare(3).get_config() == {"size": 3}
    assert keras.saving.deserialize_keras_object(keras.saving.serialize_keras_object(Bare(3))).size == 3


def test_argument_that_is_not_kept():
    class Forgetful(ConfigFromArguments, keras.layers.Layer):
        def __init__(self, gain, **kwargs):
            super().__init__(**kwargs)

        def build(self, shape):
            self.gain = self.add_weight(shape=())

    with pytest.raises(
        TypeError, match="Forgetful must keep the argument 'gain' as self.gain to be saved, which is missing"
    ):
        Forgetful(1.0).get_config()
    layer = Forgetful(1.0)
    layer.build((None, 2))
    with pytest.raises(TypeError, match="'gain' as self.gain to be saved, got a weight"):
        layer.get_config()


def test_arguments_of_base_classes():
    names = {"factor", "inner", "shift", "function", "kernel_initializer", "rate"}
    assert set(constructor_arguments(Shifted)) == names
