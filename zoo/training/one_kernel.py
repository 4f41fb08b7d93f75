"""Adam's update of a weight by one operation of TensorFlow, where Keras writes it as a dozen."""

import contextlib
import types
from collections.abc import Iterator
from contextvars import ContextVar
from typing import Any

import keras
from keras import ops


def update_by_one_kernel(optimizer: keras.optimizers.Optimizer) -> None:
    """Makes `Adam` and `AdamW` of Keras update each weight by one operation on TensorFlow.

    The formula is the same, the steps of large models take a little less time, and a training step is traced a third
    faster: a model has a hundred weights. Other optimizers, subclasses and other backends are left as they are.

    Numbers differ where a batch has a token twice and the embedding is not tied: the gradient of such a row is the sum
    of its parts, as the formula and the other backends have it, of which Keras squares each by itself on TensorFlow.

    Args:
        optimizer: The optimizer, built or not.

    Example:

    >>> optimizer = keras.optimizers.AdamW(1e-4)
    >>> update_by_one_kernel(optimizer)
    """
    if isinstance(optimizer, keras.optimizers.LossScaleOptimizer):
        update_by_one_kernel(optimizer.inner_optimizer)
    elif type(optimizer) in (keras.optimizers.Adam, keras.optimizers.AdamW):
        optimizer.update_step = types.MethodType(_update_step, optimizer)
        optimizer._backend_update_step = types.MethodType(_backend_update_step, optimizer)


# What all weights of a type have in common in one update: made once, as a model has hundreds of weights.
_shared: ContextVar[dict[Any, dict[str, Any]]] = ContextVar("shared")


@contextlib.contextmanager
def one_update() -> Iterator[None]:
    """Within it, which is to be one update of all weights, `apply_adam` makes what they have in common once."""
    token = _shared.set({})
    try:
        yield
    finally:
        _shared.reset(token)


def _backend_update_step(optimizer: keras.optimizers.Adam, *arguments: Any) -> None:
    with one_update():
        type(optimizer)._backend_update_step(optimizer, *arguments)


def _update_step(optimizer: keras.optimizers.Adam, gradient: Any, variable: Any, learning_rate: Any) -> None:
    if has_one_kernel(optimizer):
        apply_adam(optimizer, gradient, variable, learning_rate)
    else:
        type(optimizer).update_step(optimizer, gradient, variable, learning_rate)


def has_one_kernel(optimizer: keras.optimizers.Optimizer) -> bool:
    """Whether TensorFlow has a kernel for the update of an optimizer: one of Keras, or one that differs in its rates.

    Args:
        optimizer: The optimizer.
    """
    if keras.backend.backend() != "tensorflow" or not isinstance(optimizer, keras.optimizers.Adam):
        return False
    import tensorflow as tf

    # variables of a strategy have several handles
    return not optimizer.amsgrad and not tf.distribute.has_strategy()


def apply_adam(optimizer: keras.optimizers.Adam, gradient: Any, variable: Any, learning_rate: Any) -> None:
    """Updates one weight and its moments (Kingma and Ba 2015, algorithm 1, in the order of section 2).

    Args:
        optimizer: The optimizer, which is built and for which `has_one_kernel`.
        gradient: Its gradient; of an embedding also `tf.IndexedSlices`.
        variable: The `tf.Variable` of the weight.
        learning_rate: A scalar.
    """
    import tensorflow as tf

    index = optimizer._get_variable_index(variable)
    tf.raw_ops.ResourceApplyAdam(
        var=variable.handle,
        m=optimizer._momentums[index].value.handle,
        v=optimizer._velocities[index].value.handle,
        grad=tf.cast(tf.convert_to_tensor(gradient), variable.dtype),
        lr=tf.cast(learning_rate, variable.dtype),
        **_scalars(optimizer, variable.dtype),
    )


def _scalars(optimizer: keras.optimizers.Adam, dtype: Any) -> dict[str, Any]:
    import tensorflow as tf

    made = _shared.get({})
    if dtype not in made:
        beta_1, beta_2 = (tf.cast(beta, dtype) for beta in (optimizer.beta_1, optimizer.beta_2))
        step = ops.cast(optimizer.iterations + 1, dtype)
        made[dtype] = {
            "beta1_power": tf.pow(beta_1, step),
            "beta2_power": tf.pow(beta_2, step),
            "beta1": beta_1,
            "beta2": beta_2,
            "epsilon": tf.cast(optimizer.epsilon, dtype),
        }
    return made[dtype]
