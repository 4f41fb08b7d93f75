"""Gradients of a number with respect to arrays, on each backend."""

from collections.abc import Callable
from typing import Any

import keras
import numpy as np
from keras import ops


def gradients_of(function: Callable[[list[Any]], Any], arrays: list[np.ndarray]) -> list[np.ndarray]:
    """Returns the gradients of a function at some place.

    Args:
        function: From tensors to one number, a tensor of shape `()`.
        arrays: The place: floating-point arrays.

    Returns:
        An array for each of `arrays`, of its shape; zeros where the number does not depend on it.

    Raises:
        NotImplementedError: If the backend cannot differentiate.

    Example:

    >>> gradients_of(lambda tensors: keras.ops.sum(tensors[0] ** 2), [np.array([1.0, 2.0], "float32")])
    [array([2., 4.], dtype=float32)]
    """
    backend = keras.backend.backend()
    tensors = [ops.convert_to_tensor(array) for array in arrays]
    if backend == "tensorflow":
        import tensorflow as tf

        with tf.GradientTape() as tape:
            tape.watch(tensors)
            result = function(tensors)
        found = tape.gradient(result, tensors, unconnected_gradients=tf.UnconnectedGradients.ZERO)
    elif backend == "jax":
        import jax

        found = jax.grad(function)(tensors)
    elif backend == "torch":
        import torch

        tensors = [tensor.detach().requires_grad_() for tensor in tensors]
        with torch.enable_grad():
            found = torch.autograd.grad(function(tensors), tensors, allow_unused=True)
        found = [ops.zeros_like(at) if one is None else one for one, at in zip(found, tensors, strict=True)]
    else:
        raise NotImplementedError(f"Gradients need the backend tensorflow, jax or torch, got {backend!r}.")
    return [ops.convert_to_numpy(one) for one in found]
