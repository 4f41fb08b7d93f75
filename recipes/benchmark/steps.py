"""A forward pass, or a forward and backward pass, of a layer as a function without arguments."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import keras
import numpy as np

from recipes.common.errors import RecipeError


def random_inputs(batch: int, length: int, width: int) -> np.ndarray:
    """Returns the same normal numbers `(batch, length, width)` each time."""
    return np.random.default_rng(0).normal(size=(batch, length, width)).astype("float32")


def traced_step(
    function: Callable[[Any], Any], inputs: np.ndarray, variables: Sequence[keras.Variable], *, backward: bool
) -> Callable[[], Any]:
    """Traces a TensorFlow graph of a function for inputs of this shape, and returns a call of it.

    Args:
        function: From inputs to outputs.
        inputs: The inputs.
        variables: The weights that the function uses.
        backward: Whether to compute the gradients of the mean of the squared outputs by weights and inputs, as
            training does, rather than the outputs.

    Returns:
        A function that returns when the work is done.

    Raises:
        RecipeError: Keras runs on another backend.
    """
    if keras.backend.backend() != "tensorflow":
        raise RecipeError(f"this benchmark measures TensorFlow, but KERAS_BACKEND is {keras.backend.backend()!r}")
    import tensorflow as tf

    inputs = tf.constant(inputs)
    weights = [variable.value for variable in variables]

    @tf.function(autograph=False)
    def step(x: Any) -> Any:
        if not backward:
            return function(x)
        with tf.GradientTape() as tape:
            tape.watch(x)
            loss = tf.reduce_mean(tf.square(function(x)))
        return tape.gradient(loss, [x, *weights])

    traced = step.get_concrete_function(inputs)
    return lambda: traced(inputs)
