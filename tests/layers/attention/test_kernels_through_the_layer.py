"""Each path of attention as a layer calls it: with variables, eagerly and compiled, in full and half precision."""

import keras
import numpy as np
import pytest
from keras import ops
from numpy_attention import array, formula, made, normal, order, relative_bias
from tensorflow_backend import require_tensorflow

OPTIONS = {
    "plain": {},
    "sinks": {"sinks": True},
    "all": {"sinks": True, "logit_soft_cap": 1.5, "output_gate": True, "position": lambda: relative_bias()},
}
MASKS = {"causal window": {"causal": True, "window": (3, 0)}, "window": {"window": (2, 2)}}


def visible(mask):
    left, right = mask["window"]
    return (order(9) <= left) & (order(9) >= -right)


def expected(layer, x, mask, has_bias):
    bias = None
    if has_bias:
        bias = array(layer.position(ops.arange(9), ops.arange(9)))[0]
    return formula(layer, x, visible=visible(mask), bias=bias, cap=layer.logit_soft_cap)[0]


@pytest.mark.sampled(12)
@pytest.mark.parametrize("dtype", ["float32", "mixed_bfloat16"])
@pytest.mark.parametrize("compiled", [False, True], ids=["eager", "compiled"])
@pytest.mark.parametrize("path", ["plain", "blocked", "banded"])
@pytest.mark.parametrize("name", OPTIONS)
def test_outputs(name, path, compiled, dtype, with_xla):
    options = {key: value() if callable(value) else value for key, value in OPTIONS[name].items()}
    mask = MASKS["window" if name == "plain" else "causal window"]
    layer, x = made(4, 6, num_key_value_heads=2, path=path, dtype=dtype, **mask, **options), normal(2, 9, 12)

    def call(x):
        return ops.cast(layer(x), "float32")

    output = with_xla(call)(x) if compiled else array(call(ops.convert_to_tensor(x)))
    # 8 bits of each number in bfloat16, through three products
    tolerance = 2e-5 if dtype == "float32" else 0.1
    wanted = expected(layer, x, mask, "position" in options)
    np.testing.assert_allclose(output, wanted, atol=tolerance, rtol=tolerance)


@pytest.mark.parametrize("path", ["plain", "blocked", "banded"])
def test_gradients_of_sinks(path):
    """By differences of the formula in float64."""
    tf = require_tensorflow()
    mask = MASKS["causal window"]
    layer, x = made(4, 6, num_key_value_heads=2, path=path, sinks=True, **mask), normal(1, 9, 12)
    with tf.GradientTape() as tape:
        loss = tf.reduce_sum(layer(x) ** 2)
    gradient = array(tape.gradient(loss, layer.sinks.value))
    values = array(layer.sinks)
    for head in range(4):
        losses = []
        for step in (1e-3, -1e-3):
            moved = values.copy()
            moved[head] += step
            layer.sinks.assign(moved)
            losses.append((expected(layer, x, mask, False) ** 2).sum())
        np.testing.assert_allclose(gradient[head], (losses[0] - losses[1]) / 2e-3, rtol=2e-3, atol=1e-3)


def test_kernels_take_variables():
    """Also those that a user calls, with every tensor in a variable."""
    from layers.attention import attend

    tensors = {
        name: keras.Variable(normal(1, 2, 5, 4, seed=seed)) for seed, name in enumerate(("query", "key", "value"))
    }
    options = {"bias": keras.Variable(normal(1, 2, 5, 5, seed=3)), "sinks": keras.Variable(normal(2, seed=4))}
    results = [array(attend(**tensors, **options, scale=0.5, path=path)) for path in ("plain", "blocked")]
    np.testing.assert_allclose(results[1], results[0], atol=1e-5)
