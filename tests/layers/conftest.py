"""Tools for tests of layers that work with every backend."""

from pathlib import Path

import keras
import numpy as np
import pytest


@pytest.hookimpl(tryfirst=True)
def pytest_collection_modifyitems(items):
    """All tests of layers run on every backend."""
    for item in items:
        if Path(__file__).parent in item.path.parents:
            item.add_marker(pytest.mark.backends)


def _to_numpy(x):
    return keras.ops.convert_to_numpy(x)


@pytest.fixture
def with_xla():
    """Turns a function of tensors into one that XLA compiles and that returns NumPy arrays."""

    def compile_function(function):
        if keras.backend.backend() == "jax":
            import jax

            compiled = jax.jit(function)
        else:
            tf = pytest.importorskip("tensorflow")
            compiled = tf.function(function, jit_compile=True, autograph=False)
        return lambda *arrays: keras.tree.map_structure(
            _to_numpy, compiled(*[keras.ops.convert_to_tensor(array) for array in arrays])
        )

    return compile_function


@pytest.fixture
def gradients():
    """`gradients(function, *arrays)`: gradients of a scalar function with respect to its arguments, as NumPy arrays."""

    def compute(function, *arrays):
        tensors = [keras.ops.convert_to_tensor(array) for array in arrays]
        if keras.backend.backend() == "jax":
            import jax

            result = jax.grad(function, argnums=tuple(range(len(tensors))))(*tensors)
        else:
            tf = pytest.importorskip("tensorflow")
            with tf.GradientTape() as tape:
                tape.watch(tensors)
                value = function(*tensors)
            result = [tf.convert_to_tensor(gradient) for gradient in tape.gradient(value, tensors)]
        return [_to_numpy(gradient) for gradient in result]

    return compute


@pytest.fixture
def check_gradients(gradients):
    """Compares gradients with central differences in float64; the layers in the function must be of that dtype."""

    def check(function, *arrays, step=1e-6, tolerance=1e-6):
        if keras.backend.backend() == "jax":
            pytest.skip("JAX computes in float32 unless told otherwise for the whole process.")
        arrays = [np.array(array, "float64") for array in arrays]
        for position, gradient in enumerate(gradients(function, *arrays)):
            numeric = np.zeros_like(gradient)
            for index in np.ndindex(*gradient.shape):
                values = []
                for sign in (1, -1):
                    moved = [array.copy() for array in arrays]
                    moved[position][index] += sign * step
                    values.append(float(function(*[keras.ops.convert_to_tensor(array) for array in moved])))
                numeric[index] = (values[0] - values[1]) / (2 * step)
            # A step of 1e-6 leaves about 1e-10 of rounding in a difference and 1e-12 of curvature.
            np.testing.assert_allclose(gradient, numeric, atol=tolerance, rtol=tolerance)

    return check


@pytest.fixture
def check_layer(tmp_path, with_xla):
    """Checks what every layer owes.

    `check_layer(layer, *arrays, **options)` calls the layer on the arrays (in inference) and asserts that a functional
    model of it with unknown batch size gives the same numbers, that the model saved to a `.keras` file and loaded does,
    that XLA does, that the configuration survives a round trip, and that half-precision policies give their dtype.
    """

    def check(layer, *arrays, half_precision_tolerance=0.05, **options):
        def flat(outputs):
            return [_to_numpy(output) for output in keras.tree.flatten(outputs)]

        expected = flat(layer(*arrays, **options))
        symbols = [keras.Input(array.shape[1:], dtype=str(array.dtype)) for array in arrays]
        model = keras.Model(symbols, layer(*symbols, **options))
        path = tmp_path / f"{layer.name}.keras"
        model.save(path)
        loaded = keras.models.load_model(path)
        for symbolic_output, value in zip(keras.tree.flatten(model.output), expected, strict=True):
            assert symbolic_output.shape == (None, *value.shape[1:])
        for name, outputs in {
            "model": model(list(arrays)),
            "loaded": loaded(list(arrays)),
            "xla": with_xla(lambda *tensors: layer(*tensors, **options))(*arrays),
        }.items():
            for output, value in zip(flat(outputs), expected, strict=True):
                # float32: other orders of summation only
                np.testing.assert_allclose(output, value, rtol=1e-5, atol=1e-5, err_msg=name)
        assert type(layer).from_config(layer.get_config()).get_config() == layer.get_config()
        for dtype in ("bfloat16", "float16"):
            half = type(layer).from_config({**layer.get_config(), "dtype": f"mixed_{dtype}"})
            half(*arrays, **options)  # builds it
            half.set_weights(layer.get_weights())
            for output, value in zip(keras.tree.flatten(half(*arrays, **options)), expected, strict=True):
                assert keras.backend.standardize_dtype(output.dtype) == dtype
                # bfloat16 keeps 8 significant bits: 0.4 % per rounded operation, a handful of which add up
                output = _to_numpy(keras.ops.cast(output, "float32"))
                np.testing.assert_allclose(output, value, atol=half_precision_tolerance, rtol=half_precision_tolerance)

    return check
