"""Gradients of every attention path: against finite differences, and for long sequences against the plain path."""

import keras
import numpy as np
import pytest
from keras import ops

from layers.attention import AttentionMask
from layers.attention.kernels.blocked import blocked_attention

PADDING = np.array([[True, True, False, True, True, False, False]])
MASKS = {
    "none": {},
    "causal": {"causal": True},
    "window": {"window": (2, 1)},
    "causal_window": {"causal": True, "window": (2, 0)},
    "causal_block": {"causal": True, "block_size": 3},
    "padding": {"key_padding_mask": PADDING},
    "nothing_visible": {"causal": True, "key_padding_mask": ~PADDING},
    "allowed": {"allowed": np.random.default_rng(4).random((7, 7)) < 0.5},
}
OPTIONS = {
    "plain": {},
    "soft_cap": {"soft_cap": 1.5},
    "sinks": {"sinks": (2,)},
    "bias": {"bias": (1, 2, 7, 7)},
    "bias_of_keys": {"bias": (1, 1, 1, 7)},
    "all": {"soft_cap": 1.5, "sinks": (2,), "bias": (1, 2, 1, 7)},
}
CASES = [(mask, "plain") for mask in MASKS] + [("causal_window", option) for option in OPTIONS] + [("padding", "all")]


@pytest.mark.sampled(12)
@pytest.mark.parametrize("path", ["plain", "blocked", "banded"])
@pytest.mark.parametrize(("mask", "option"), CASES)
def test_finite_differences(kernels, short_pieces, gradients, path, mask, option):
    banded = mask in ("window", "causal_window", "causal_block") and "bias" not in OPTIONS[option]
    if path == "banded" and (not banded or option == "all"):
        pytest.skip("this path does not take this mask or a bias that is a matrix")
    generator = np.random.default_rng(0)
    options = dict(OPTIONS[option])
    # two query heads on one key head
    shapes = {"query": (1, 2, 7, 2), "key": (1, 1, 7, 2), "value": (1, 1, 7, 2)}
    shapes |= {name: options.pop(name) for name in ("sinks", "bias") if name in options}
    arrays = [generator.normal(size=shape) for shape in shapes.values()]
    factors = generator.normal(size=(1, 2, 7, 2))

    def function(query, key, value, *others):
        extras = dict(zip(list(shapes)[3:], others, strict=True))
        mask_value = AttentionMask(**MASKS[mask])
        return ops.sum(kernels.run(path, query, key, value, mask_value, scale=0.7, **options, **extras) * factors)

    if keras.backend.backend() == "jax":
        pytest.skip("JAX computes in float32 unless told otherwise for the whole process")
    for index, gradient in enumerate(gradients(function, *arrays)):
        # along one random direction of each argument: entry by entry would take hundreds of evaluations
        direction = generator.normal(size=gradient.shape)
        ahead, behind = (
            float(function(*arrays[:index], arrays[index] + step * direction, *arrays[index + 1 :]))
            for step in (1e-6, -1e-6)
        )
        np.testing.assert_allclose(np.sum(gradient * direction), (ahead - behind) / 2e-6, atol=1e-7, rtol=1e-7)


@pytest.mark.parametrize("path", ["blocked", "banded"])
@pytest.mark.parametrize("mask", ["none", "causal", "causal_window"])
def test_gradient_of_a_bias_of_the_distance(kernels, short_pieces, gradients, path, mask):
    if path == "banded" and mask != "causal_window":
        pytest.skip("this path needs a window")
    arrays = [kernels.normal(1, 4, 9, 5), *(kernels.normal(1, 2, 9, 5, seed=seed) for seed in (1, 2))]
    table = kernels.normal(4, 17, seed=3)
    factors = kernels.normal(1, 4, 9, 5, seed=4)

    def loss(path):
        def function(query, key, value, table):
            def bias(query_positions, key_positions):
                distance = ops.expand_dims(key_positions, 0) - ops.expand_dims(query_positions, 1)
                # the banded path asks for distances beyond the ends, for keys that are only padding
                return ops.expand_dims(ops.take(table, ops.clip(distance + 8, 0, 16), axis=1), 0)

            bias.depends_on_distance = True
            mask_value = AttentionMask(**MASKS[mask])
            return ops.sum(kernels.run(path, query, key, value, mask_value, scale=0.4, bias=bias) * factors)

        return function

    for ours, expected in zip(
        gradients(loss(path), *arrays, table), gradients(loss("plain"), *arrays, table), strict=True
    ):
        np.testing.assert_allclose(ours, expected, atol=2e-5, rtol=2e-5)


@pytest.mark.parametrize("mask", ["none", "causal"])
def test_gradients_of_a_long_sequence(kernels, gradients, mask):
    # several blocks of the size that is used by default, and one that is not full
    arrays = [kernels.normal(1, 2, 600, 8, seed=seed) for seed in range(3)]
    factors = kernels.normal(1, 2, 600, 8, seed=3)

    def loss(path):
        from layers.attention import attend

        def function(*tensors):
            return ops.sum(attend(*tensors, AttentionMask(**MASKS[mask]), scale=0.35, path=path) * factors)

        return function

    for ours, expected in zip(gradients(loss("blocked"), *arrays), gradients(loss("plain"), *arrays), strict=True):
        np.testing.assert_allclose(ours, expected, atol=1e-5, rtol=1e-4)


@pytest.mark.parametrize("path", ["plain", "blocked", "banded"])
def test_gradients_where_nothing_is_visible_are_zero(kernels, short_pieces, gradients, path):
    arrays = [kernels.normal(2, 2, 6, 4, seed=seed) for seed in range(3)]
    mask = AttentionMask(window=(2, 2), key_padding_mask=np.array([[True] * 6, [False] * 6]))
    for gradient in gradients(lambda *tensors: ops.sum(kernels.run(path, *tensors, mask, scale=0.5) ** 2), *arrays):
        assert np.all(np.isfinite(gradient))
        np.testing.assert_array_equal(gradient[1], 0)
        assert np.all(np.any(gradient[0] != 0, axis=(0, 2)))


@pytest.mark.parametrize("path", ["plain", "blocked", "banded"])
@pytest.mark.parametrize("compiled_by_xla", [False, pytest.param(True, marks=pytest.mark.slow)])
def test_gradients_in_a_graph(kernels, short_pieces, gradients, path, compiled_by_xla):
    arrays = [kernels.normal(2, 2, 9, 4, seed=seed) for seed in range(3)]

    def loss(*tensors):
        return ops.sum(kernels.run(path, *tensors, AttentionMask(causal=True, window=(3, 0)), scale=0.5) ** 2)

    expected = gradients(loss, *arrays)
    if keras.backend.backend() == "jax":
        import jax

        result = jax.jit(jax.grad(loss, argnums=(0, 1, 2)))(*arrays)
    else:
        tf = pytest.importorskip("tensorflow")

        # without XLA the lengths are not known when the graph is built
        shape = (2, 2, 9, 4) if compiled_by_xla else (None, 2, None, 4)

        @tf.function(jit_compile=compiled_by_xla, autograph=False, input_signature=[tf.TensorSpec(shape)] * 3)
        def gradient(*tensors):
            with tf.GradientTape() as tape:
                tape.watch(tensors)
                value = loss(*tensors)
            return tape.gradient(value, tensors)

        result = gradient(*arrays)
    for ours, eager in zip(result, expected, strict=True):
        np.testing.assert_allclose(ours, eager, atol=1e-5, rtol=1e-5)


def test_blocked_gradients_in_half_precision(kernels, gradients):
    arrays = [kernels.normal(1, 2, 9, 8, seed=seed) for seed in range(3)]

    def loss(dtype):
        def function(*tensors):
            output = blocked_attention(*(ops.cast(x, dtype) for x in tensors), scale=0.35, block_length=4)
            return ops.sum(ops.cast(output, "float32") ** 2)

        return function

    for half, full in zip(gradients(loss("bfloat16"), *arrays), gradients(loss("float32"), *arrays), strict=True):
        # inputs, output and gradients rounded to 8 bits
        np.testing.assert_allclose(half, full, atol=0.03, rtol=0.03)
