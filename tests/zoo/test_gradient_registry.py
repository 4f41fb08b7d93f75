"""Graphs with custom gradients go when nothing uses them any more; their gradients work as long as they are there."""

import dataclasses
import gc
import weakref

import keras
import numpy as np
import pytest

import zoo

tf = pytest.importorskip("tensorflow")
if keras.backend.backend() != "tensorflow":
    pytest.skip("the registry is TensorFlow's", allow_module_level=True)


def slope(x):
    """The derivative of `x * sigmoid(x)`."""
    sigmoid = 1 / (1 + np.exp(-x))
    return sigmoid * (1 + x * (1 - sigmoid))


def entries():
    from tensorflow.python.framework import ops

    return [name for name in ops.gradient_registry.list() if name.startswith("CustomGradient-")]


def silu_function():
    return tf.function(keras.ops.silu, autograph=False)


def silu_in_a_loop():
    """`silu` in a loop, whose body is a graph of its own."""

    def once(count, x):
        return count + 1, keras.ops.silu(x)

    def looped(x):
        return keras.ops.while_loop(lambda count, x: count < 1, once, (0, x))[1]

    return tf.function(looped, autograph=False)


@pytest.mark.parametrize("make", [silu_function, silu_in_a_loop])
def test_gradients_and_graphs(make):
    gc.collect()
    before = entries()
    x = tf.constant([-1.0, 0.5, 2.0])
    function = make()
    for _ in range(2):
        # the tape is outside: the gradient is looked up when the graph has long been made
        gc.collect(1)
        with tf.GradientTape() as tape:
            tape.watch(x)
            y = function(x)
        np.testing.assert_allclose(tape.gradient(y, x), slope(x.numpy()), rtol=1e-5)
    assert len(entries()) > len(before)
    graph = weakref.ref(function.get_concrete_function(x).graph)
    del function, tape, y
    gc.collect()
    assert graph() is None
    assert entries() == before


def test_gradient_of_a_saved_model(tmp_path):
    """A loaded model has its gradients, though the function that it was saved from is gone."""
    module = tf.Module()
    module.call = tf.function(keras.ops.silu, autograph=False, input_signature=[tf.TensorSpec([None], tf.float32)])
    tf.saved_model.save(module, tmp_path)
    del module
    gc.collect()
    loaded, x = tf.saved_model.load(tmp_path), tf.constant([-1.0, 2.0])
    with tf.GradientTape() as tape:
        tape.watch(x)
        y = loaded.call(x)
    np.testing.assert_allclose(tape.gradient(y, x), slope(x.numpy()), rtol=1e-5)


def test_training_leaves_no_graph(tiny_llama, texts):
    """The custom gradients of an activation, of a loss and of blocks that are computed again."""
    config = dataclasses.replace(tiny_llama.backbone.config, remat=True)

    def train():
        model = zoo.CausalLM(zoo.Backbone.from_config(config), tiny_llama.tokenizer)
        model.compile("sgd")
        model.fit(texts[:8], verbose=0)
        return model

    train()  # makes the programs that all activations of a process share
    gc.collect()
    before = entries()
    model = train()
    assert len(entries()) > len(before)
    dropped = weakref.ref(model)
    del model
    gc.collect()
    assert dropped() is None
    assert entries() == before
