"""Adam's update by one operation of TensorFlow: the same numbers as those of Keras."""

import functools

import keras
import numpy as np
import pytest

from zoo.training import scale_learning_rates
from zoo.training.one_kernel import update_by_one_kernel


def weights_after(optimizer, steps=4, dtype="float32", rows=None):
    """Weights after some steps on fixed gradients, and how many operations a step's graph has."""
    import tensorflow as tf

    generator = np.random.default_rng(0)
    variables = [keras.Variable(generator.normal(size=shape), dtype=dtype) for shape in ((5, 3), (3,))]
    optimizer.build(variables)
    gradients = generator.normal(size=(steps, 5, 3)), generator.normal(size=(steps, 3))

    @tf.function(autograph=False)
    def step(first, second):
        if rows is not None:
            first = tf.IndexedSlices(tf.gather(first, rows), tf.constant(rows), tf.constant([5, 3]))
        optimizer.apply([first, second], variables)

    for first, second in zip(*gradients, strict=True):
        step(tf.constant(first, dtype), tf.constant(second, dtype))
    graph = step.get_concrete_function(tf.constant(first, dtype), tf.constant(second, dtype)).graph
    weights = [keras.ops.convert_to_numpy(variable.value) for variable in variables]
    return weights, [operation.type for operation in graph.get_operations()]


@pytest.fixture(autouse=True)
def only_tensorflow():
    if keras.backend.backend() != "tensorflow":
        pytest.skip("kernels of TensorFlow")


@pytest.mark.parametrize(
    "make",
    [
        lambda: keras.optimizers.Adam(0.01, beta_1=0.8, beta_2=0.95, epsilon=1e-4),
        lambda: keras.optimizers.AdamW(0.01, weight_decay=0.1, clipnorm=0.5),
        lambda: keras.optimizers.Adam(keras.optimizers.schedules.ExponentialDecay(0.01, 2, 0.5)),
        lambda: keras.optimizers.Adam(0.01, gradient_accumulation_steps=2),
        lambda: keras.optimizers.Adam(0.01, use_ema=True, ema_momentum=0.5, ema_overwrite_frequency=2),
    ],
    ids=["adam", "adamw_clipped", "schedule", "accumulated", "average"],
)
def test_numbers_of_keras(make):
    ours = make()
    update_by_one_kernel(ours)
    found, operations = weights_after(ours)
    expected, theirs = weights_after(make())
    for value, wanted in zip(found, expected, strict=True):
        # the same formula, its parts in another order: some roundings of numbers of about 1
        np.testing.assert_allclose(value, wanted, atol=1e-6)
    if not ours.gradient_accumulation_steps:
        assert operations.count("ResourceApplyAdam") == 2
        assert len(operations) < len(theirs)


def test_repeated_rows_of_an_embedding():
    """A token that a batch has twice counts with the sum of its gradients. (Keras adds up the squares of both.)"""
    rows, generator = [1, 3, 1], np.random.default_rng(0)
    weights = generator.normal(size=(5, 3))
    generator.normal(size=(3,))
    moment, velocity = np.zeros((5, 3)), np.zeros((5, 3))
    for step, gradient in enumerate(generator.normal(size=(4, 5, 3)), start=1):
        dense = np.zeros((5, 3))
        for row in rows:
            dense[row] += gradient[row]
        moment, velocity = 0.9 * moment + 0.1 * dense, 0.99 * velocity + 0.01 * dense**2
        root = np.sqrt(velocity / (1 - 0.99**step)) + 1e-12
        weights = weights - 0.01 * moment / (1 - 0.9**step) / root
    optimizer = keras.optimizers.Adam(0.01, beta_2=0.99, epsilon=1e-12)
    update_by_one_kernel(optimizer)
    np.testing.assert_allclose(weights_after(optimizer, rows=rows)[0][0], weights, atol=1e-6)


def test_two_updates_in_one_graph():
    """The second one has the next step's correction of the moments."""
    import tensorflow as tf

    def weights_after_two(optimizer):
        variable = keras.Variable(np.ones(3))
        optimizer.build([variable])

        @tf.function(autograph=False)
        def twice():
            for gradient in ([1.0, 2.0, -3.0], [0.5, -2.0, 1.0]):
                optimizer.apply([tf.constant(gradient)], [variable])

        twice()
        return keras.ops.convert_to_numpy(variable.value)

    ours = keras.optimizers.Adam(0.01)
    update_by_one_kernel(ours)
    np.testing.assert_allclose(weights_after_two(ours), weights_after_two(keras.optimizers.Adam(0.01)), atol=1e-6)


def test_loss_scale():
    ours = keras.optimizers.LossScaleOptimizer(keras.optimizers.Adam(0.01), initial_scale=4.0)
    update_by_one_kernel(ours)
    found, _ = weights_after(ours)
    expected, _ = weights_after(keras.optimizers.LossScaleOptimizer(keras.optimizers.Adam(0.01), initial_scale=4.0))
    np.testing.assert_allclose(found[0], expected[0], atol=1e-6)


def test_rates_of_layers():
    """A tenth of the rate for the first weight: what Adam of Keras with a tenth of the rate does."""
    import tensorflow as tf

    variables = [keras.Variable(np.ones((3,)), name=name) for name in ("slow", "quick")]
    factors = {variables[0].path: 0.1, variables[1].path: 1.0}
    optimizer = scale_learning_rates(keras.optimizers.Adam(0.01), factors)
    optimizer.build(variables)
    optimizer.apply([tf.constant([1.0, 2.0, -3.0])] * 2, variables)
    for variable, rate in zip(variables, (0.001, 0.01), strict=True):
        # the first step of Adam has the size of the rate
        np.testing.assert_allclose(variable.numpy(), 1 - rate * np.array([1, 1, -1]), rtol=1e-5)


def test_others_are_left_alone():
    class Own(keras.optimizers.Adam):
        def update_step(self, gradient, variable, learning_rate):
            variable.assign_add(gradient)

    for make in (Own, keras.optimizers.SGD, functools.partial(keras.optimizers.Adam, amsgrad=True)):
        optimizer = make(0.01)
        update_by_one_kernel(optimizer)
        for value, wanted in zip(weights_after(optimizer)[0], weights_after(make(0.01))[0], strict=True):
            np.testing.assert_array_equal(value, wanted)
