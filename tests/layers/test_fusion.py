"""Chains of element-wise operations in one pass over memory: the same numbers; plain operations where these are due."""

import contextlib

import keras
import numpy as np
import pytest
from keras import ops
from scipy.special import erf

from layers import FeedForward
from layers.activations import ACTIVATIONS, GatedActivation
from layers.dense import Dense
from layers.devices import has_onednn
from layers.fusion import LEAST_SIZE, fused, portable_operations, sizes, update_places, update_slice
from layers.norms import LayerNorm
from layers.remat import rematerialize

only_tensorflow = pytest.mark.skipif(keras.backend.backend() != "tensorflow", reason="programs of TensorFlow")
only_onednn = pytest.mark.skipif(not has_onednn(), reason="kernels of oneDNN in TensorFlow")
LARGE = (LEAST_SIZE // 64 + 1, 64)


def numbers(shape, dtype="float32", seed=0):
    return ops.cast(np.random.default_rng(seed).normal(0, 2, shape), dtype)


def sigmoid(x):
    return 1 / (1 + np.exp(-x))


# value and derivative by their formulas, in float64
FORMULAS = {
    "gelu": lambda x: (
        x * (1 + erf(x / 2**0.5)) / 2,
        (1 + erf(x / 2**0.5)) / 2 + x * np.exp(-(x**2) / 2) / (2 * np.pi) ** 0.5,
    ),
    "quick_gelu": lambda x: (
        x * sigmoid(1.702 * x),
        sigmoid(1.702 * x) * (1 + 1.702 * x * (1 - sigmoid(1.702 * x))),
    ),
    "silu": lambda x: (x * sigmoid(x), sigmoid(x) * (1 + x * (1 - sigmoid(x)))),
    "relu_squared": lambda x: (np.maximum(x, 0) ** 2, 2 * np.maximum(x, 0)),
}


def value_and_gradient(function, x, gradient):
    import tensorflow as tf

    with tf.GradientTape() as tape:
        tape.watch(x)
        y = function(x)
    return y, tape.gradient(y, x, gradient)


@only_tensorflow
@pytest.mark.parametrize("shape", [LARGE, (3, 4)], ids=["large", "small"])
@pytest.mark.parametrize("dtype", ["float32", "bfloat16"])
@pytest.mark.parametrize("name", FORMULAS)
def test_values_and_gradients(name, dtype, shape):
    x, gradient = numbers(shape, dtype), numbers(shape, dtype, seed=1)
    found = value_and_gradient(fused(ACTIVATIONS[name]), x, gradient)
    value, slope = FORMULAS[name](np.float64(x))
    for result, wanted in zip(found, (value, slope * np.float64(gradient)), strict=True):
        assert result.dtype == x.dtype and result.shape == x.shape
        # bfloat16 has 8 bits; small tensors take several roundings
        tolerance = {"rtol": 1e-5, "atol": 2e-6} if dtype == "float32" else {"rtol": 0.03, "atol": 0.03}
        np.testing.assert_allclose(np.float64(result), wanted, **tolerance)


@only_tensorflow
def test_half_precision_is_rounded_once():
    """Within the chain numbers are float32, so that the result is the nearest one in bfloat16, or its neighbour."""
    x = numbers(LARGE, "bfloat16")
    wanted = ops.cast(FORMULAS["silu"](np.float64(x))[0], "bfloat16")
    assert np.mean(np.float32(fused(ACTIVATIONS["silu"])(x)) == np.float32(wanted)) > 0.99


def is_compiled(concrete):
    """Whether a graph, or a function that it calls, is a program of XLA."""
    definition = concrete.graph.as_graph_def(add_shapes=False)
    nodes = [node for function in definition.library.function for node in function.node_def]
    functions = any("_XlaMustCompile" in function.attr for function in definition.library.function)
    return functions or any(node.attr["_XlaMustCompile"].b for node in (*definition.node, *nodes))


@only_tensorflow
@pytest.mark.parametrize(
    ("shape", "wanted"),
    [
        (LARGE, True),
        ((3, 4), False),
        ((None, None, 8), True),
        ((None, 1, 64), False),
        ((None, 256, 1536), True),
        (None, False),
    ],
)
def test_where_programs_are_made(shape, wanted):
    """For what is large or may be, not for a few rows."""
    import tensorflow as tf

    function = tf.function(lambda x: fused(ACTIVATIONS["silu"])(x) + 0, autograph=False)
    assert is_compiled(function.get_concrete_function(tf.TensorSpec(shape, "float32"))) == wanted


@only_tensorflow
@pytest.mark.parametrize("jit_compile", [False, True])
def test_lengths_that_are_not_known(jit_compile):
    import tensorflow as tf

    function = tf.function(
        lambda x: value_and_gradient(fused(ACTIVATIONS["gelu"]), x, tf.ones_like(x)),
        input_signature=[tf.TensorSpec((None, None, 8))],
        autograph=False,
        jit_compile=jit_compile,
    )
    for shape in ((2, 3, 8), (4, LEAST_SIZE // 32 + 1, 8), (1, 1, 8)):
        x = numbers(shape)
        for result, wanted in zip(function(x), FORMULAS["gelu"](np.float64(x)), strict=True):
            np.testing.assert_allclose(result, wanted, rtol=1e-5, atol=2e-6)


@only_tensorflow
def test_gated_product():
    import tensorflow as tf

    gate, up = numbers(LARGE), numbers(LARGE, seed=1)
    product = fused(GatedActivation("silu", limit=1.5, up_offset=1.0))
    assert product is fused(GatedActivation("silu", limit=1.5, up_offset=1.0)), "layers share what is compiled"
    with tf.GradientTape() as tape:
        tape.watch((gate, up))
        outputs = product(gate, up)
    by_gate, by_up = tape.gradient(outputs, (gate, up))
    wide, height = np.float64(gate), np.float64(up)
    value, slope = FORMULAS["silu"](np.minimum(wide, 1.5))
    clipped = np.clip(height, -1.5, 1.5) + 1
    np.testing.assert_allclose(outputs, value * clipped, rtol=1e-5, atol=1e-5)
    np.testing.assert_allclose(by_gate, slope * clipped * (wide <= 1.5), rtol=1e-5, atol=1e-5)
    np.testing.assert_allclose(by_up, value * (np.abs(height) <= 1.5), rtol=1e-5, atol=1e-5)


@only_tensorflow
def test_computed_again_in_the_backward_pass():
    """`remat` around a network of such activations."""
    import tensorflow as tf

    layer = FeedForward(LEAST_SIZE // 64, activation="gelu")
    x = numbers((2, 64, 8))
    layer.build(x.shape)
    gradients = []
    for call in (layer, lambda inputs, training: rematerialize(layer, lambda x: layer(x, training=training), inputs)):
        with tf.GradientTape() as tape:
            tape.watch(x)
            total = ops.sum(ops.square(call(x, training=True)))
        gradients.append(tape.gradient(total, x))
    np.testing.assert_allclose(*gradients, rtol=1e-4, atol=1e-3)


@only_tensorflow
@pytest.mark.parametrize("name", ["silu", "gelu"])
def test_tape_outside_of_programs_for_any_size(name):
    """Traced for unknown sizes first, then called with large tensors of several shapes under a tape."""
    import tensorflow as tf

    function = fused(ACTIVATIONS[name])
    specification = tf.TensorSpec((None, None, 8))
    step = tf.function(lambda x: value_and_gradient(function, x, tf.ones_like(x)), input_signature=[specification])
    step(numbers((2, 3, 8)))
    for shape in (LARGE, (4, LEAST_SIZE // 32 + 1, 8), (LEAST_SIZE, 2)):
        x = numbers(shape)
        for result, wanted in zip(
            value_and_gradient(function, x, tf.ones_like(x)), FORMULAS[name](np.float64(x)), strict=True
        ):
            np.testing.assert_allclose(result, wanted, rtol=1e-5, atol=2e-6)


@only_tensorflow
@pytest.mark.parametrize("shape", [LARGE, (3, 4)], ids=["large", "small"])
def test_second_derivative(shape):
    import tensorflow as tf

    cube = fused(lambda x: x * x * x)

    @tf.function(input_signature=[tf.TensorSpec((None, None))], autograph=False)
    def bend(x):
        with tf.GradientTape() as outer:
            outer.watch(x)
            _, slope = value_and_gradient(cube, x, tf.ones_like(x))
        return outer.gradient(slope, x)

    x = numbers(shape)
    np.testing.assert_allclose(bend(x), 6 * np.float64(x), rtol=1e-5)


def test_on_every_backend():
    x = numbers((3, 4))
    value = ops.convert_to_numpy(fused(ACTIVATIONS["silu"])(x))
    np.testing.assert_allclose(value, FORMULAS["silu"](np.float64(ops.convert_to_numpy(x)))[0], rtol=1e-5)
    assert fused(ACTIVATIONS["gelu"])(keras.KerasTensor((None, 7))).shape == (None, 7)


@only_tensorflow
@pytest.mark.parametrize("dtype", ["float32", "bfloat16", "int32", "bool"])
def test_slices_are_updated_by_plain_operations(dtype):
    import tensorflow as tf

    inputs, updates = numbers((3, 4, 5), dtype), numbers((3, 2, 5), dtype, seed=1)

    @tf.function(input_signature=[tf.TensorSpec((3, None, 5), dtype), tf.TensorSpec((), "int32")])
    def update(inputs, place):
        with portable_operations():
            result = update_slice(inputs, (0, place, 0), updates)
        assert result.shape.as_list() == [3, None, 5]
        return result

    # a place where the updates do not fit is moved, as NumPy's clip does
    for place in (-3, 0, 1, 2, 3, 9):
        first, expected = int(np.clip(place, 0, 2)), np.array(ops.cast(inputs, "float32"))
        expected[:, first : first + 2] = ops.cast(updates, "float32")
        np.testing.assert_array_equal(ops.cast(update(inputs, tf.constant(place)), "float32"), expected)
    used = {node.op for node in update.get_concrete_function().graph.as_graph_def().node}
    assert "TensorStridedSliceUpdate" in used and not [name for name in used if name.startswith("Xla")]


@only_tensorflow
@pytest.mark.parametrize("width", [4, 3])
@pytest.mark.parametrize("dtype", ["float32", "bfloat16", "float16"])
@pytest.mark.parametrize("form", ["plain", "xla", "converted"])
def test_places_are_updated_by_operations_of_the_graph(dtype, form, width):
    import tensorflow as tf

    inputs, updates = np.array(ops.cast(numbers((2, 3, width), dtype), "float32")), numbers((2, width), dtype, seed=1)
    # nothing is left of what was there, whatever it was
    inputs[1, 2], inputs[0, 1, 0] = np.nan, np.inf
    places = [(1, 2), (0, 1)]

    @tf.function(input_signature=[tf.TensorSpec((2, None, width), dtype)], jit_compile=form == "xla")
    def update(inputs):
        with portable_operations(jit_compile=form == "xla", converted=form == "converted"):
            result = update_places(inputs, ops.convert_to_tensor(places, "int32"), updates)
        assert result.shape.as_list() == [2, None, width]
        return result

    expected = inputs.copy()
    for place, values in zip(places, np.array(ops.cast(updates, "float32")), strict=True):
        expected[place] = values
    np.testing.assert_array_equal(ops.cast(update(ops.cast(inputs, dtype)), "float32"), expected)
    # converters and XLA do not know the operation that writes in place
    used = {node.op for node in update.get_concrete_function().graph.as_graph_def().node}
    assert ("ScatterNdNonAliasingAdd" in used) == (form == "plain")


@only_tensorflow
def test_sizes_of_a_graph_are_few_operations():
    import tensorflow as tf

    @tf.function(input_signature=[tf.TensorSpec((None, 3, None), "float32")])
    def found(x):
        return sizes(x)

    assert [int(size) for size in found(tf.zeros((2, 3, 5)))] == [2, 3, 5]
    used = [node.op for node in found.get_concrete_function().graph.as_graph_def().node]
    assert used.count("Shape") == 1 and "StridedSlice" not in used and len(used) <= 7


def kernels_of(function, *arguments):
    """What a graph computes, and the kinds of operations that are left of it when TensorFlow has optimized it."""
    from tensorflow.python.eager import context

    context.context().enable_run_metadata()
    try:
        result = function(*arguments)
        graphs = context.context().export_run_metadata().function_graphs
    finally:
        context.context().disable_run_metadata()
    return result, {node.op for graph in graphs for part in graph.partition_graphs for node in part.node}


def layer_norm_formula(x, gamma, beta, epsilon):
    x, gamma, beta = (np.float64(ops.cast(value, "float32")) for value in (x, gamma, beta))
    centred = x - x.mean(-1, keepdims=True)
    return centred / np.sqrt((centred**2).mean(-1, keepdims=True) + epsilon) * gamma + beta


def assert_close(found, wanted, tolerance):
    np.testing.assert_allclose(np.float64(ops.cast(found, "float32")), wanted, rtol=tolerance, atol=tolerance)


SHAPES = [(4, 24, 32), (None, 24, 32), (None, None, 32)]
TOLERANCES = {"float32": 2e-6, "bfloat16": 2**-8}


def one_layer_norm(dtype):
    norm = LayerNorm(0.1, dtype=dtype)
    norm.build((None, None, 32))
    norm.set_weights([numbers((32,), seed=seed) for seed in (1, 2)])
    return norm


@only_onednn
@pytest.mark.parametrize("shape", SHAPES)
@pytest.mark.parametrize("dtype", TOLERANCES)
def test_layer_norm_is_one_kernel(dtype, shape):
    import tensorflow as tf

    norm, x = one_layer_norm(dtype), 3 + numbers((4, 24, 32), dtype)
    # the product stands for what comes before
    call = tf.function(lambda x: norm(x * norm.gamma[0]), input_signature=[tf.TensorSpec(shape, dtype)])
    wanted = layer_norm_formula(x * norm.gamma[0], norm.gamma, norm.beta, 0.1)
    found, kernels = kernels_of(call, x)
    assert "_MklLayerNorm" in kernels and not {"Mean", "Rsqrt", "FusedBatchNormV3"} & kernels
    assert found.dtype == dtype
    np.testing.assert_allclose(
        np.float64(ops.cast(found, "float32")), wanted, rtol=TOLERANCES[dtype], atol=TOLERANCES[dtype]
    )


@only_onednn
@pytest.mark.parametrize(
    "case", ["training", "mixed", "portable", "eager"], ids=["training", "mixed types", "portable", "eager"]
)
def test_layer_norm_of_plain_operations(case):
    """Where it is differentiated, has weights of another type, or is to run elsewhere."""
    import tensorflow as tf

    norm = one_layer_norm("mixed_bfloat16" if case == "mixed" else "float32")
    x = numbers((4, 24, 32), norm.compute_dtype)
    call = norm if case == "eager" else tf.function(lambda x: norm(x, training=case == "training"))
    with portable_operations() if case == "portable" else contextlib.nullcontext():
        found, kernels = kernels_of(call, x)
    assert not {"_MklLayerNorm", "FusedBatchNormV3"} & kernels
    wanted = layer_norm_formula(x, norm.gamma, norm.beta, 0.1)
    if case != "mixed":
        assert_close(found, wanted, TOLERANCES["float32"])


@only_onednn
@pytest.mark.parametrize("jit_compile", [False, True])
@pytest.mark.parametrize("dtype", TOLERANCES)
def test_a_norm_of_inference_has_its_gradient(dtype, jit_compile):
    import tensorflow as tf

    norm, x, gradient = one_layer_norm(dtype), numbers((4, 24, 32), dtype), numbers((4, 24, 32), dtype, seed=3)

    def of_training(training):
        return lambda x: value_and_gradient(lambda x: norm(x, training=training), x, gradient)

    found = tf.function(of_training(False), jit_compile=jit_compile)(x)
    for result, wanted in zip(found, of_training(True)(x), strict=True):
        np.testing.assert_allclose(np.float64(result), np.float64(wanted), rtol=0.02, atol=4 * TOLERANCES[dtype])


@only_onednn
@pytest.mark.parametrize("shape", SHAPES)
@pytest.mark.parametrize("dtype", TOLERANCES)
def test_product_and_bias_are_one_kernel(dtype, shape):
    import tensorflow as tf

    layer = Dense(64, bias_initializer="normal", dtype=dtype)
    layer.build((None, None, 32))
    x = numbers((4, 24, 32), dtype)
    call = tf.function(lambda x: layer(x * layer.kernel[0, 0]), input_signature=[tf.TensorSpec(shape, dtype)])
    found, kernels = kernels_of(call, x)
    assert not {"BiasAdd", "MatMul", "_MklMatMul"} & kernels
    inputs, kernel, bias = (
        np.float64(ops.cast(value, "float32")) for value in (x * layer.kernel[0, 0], layer.kernel, layer.bias)
    )
    assert found.shape == (4, 24, 64)
    assert_close(found, inputs @ kernel + bias, TOLERANCES[dtype])


@only_onednn
@pytest.mark.parametrize("shape", SHAPES)
@pytest.mark.parametrize("dtype", TOLERANCES)
@pytest.mark.parametrize("activation", ["gelu", "relu"])
def test_product_bias_and_activation_are_one_kernel(activation, dtype, shape):
    import tensorflow as tf

    layer = FeedForward(64, activation, bias_initializer="normal", dtype=dtype)
    layer.build((None, None, 32))
    x = numbers((4, 24, 32), dtype)
    call = tf.function(lambda x: layer(x * layer.up.kernel[0, 0]), input_signature=[tf.TensorSpec(shape, dtype)])
    found, kernels = kernels_of(call, x)
    assert not {"BiasAdd", "Tanh", "Erf", "Relu", "MatMul", "_MklMatMul"} & kernels
    up, down = (
        (np.float64(ops.cast(part.kernel, "float32")), np.float64(ops.cast(part.bias, "float32")))
        for part in (layer.up, layer.down)
    )
    hidden = np.float64(ops.cast(x * layer.up.kernel[0, 0], "float32")) @ up[0] + up[1]
    if activation == "relu":
        hidden = np.maximum(hidden, 0)
    else:
        hidden = FORMULAS["gelu"](hidden)[0]
    wanted = hidden @ down[0] + down[1]
    assert found.shape == (4, 24, 32)
    scale = np.abs(wanted).max()
    np.testing.assert_allclose(
        np.float64(ops.cast(found, "float32")) / scale, wanted / scale, atol=2 * TOLERANCES[dtype]
    )


@only_tensorflow
def test_training_keeps_the_activation_in_one_pass():
    import tensorflow as tf

    layer = FeedForward(64, "gelu")
    layer.build((None, None, 32))

    def trace(training):
        function = tf.function(lambda x: layer(x, training=training), autograph=False)
        return function.get_concrete_function(tf.TensorSpec((None, None, 32)))

    assert is_compiled(trace(True))
    assert not is_compiled(trace(False))
