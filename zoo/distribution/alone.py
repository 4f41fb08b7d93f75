"""Models that train on several devices, computed on one: samples during the training, and all that follows it."""

import contextlib
from collections.abc import Iterator
from typing import Any

import keras

from zoo.distribution.choice import forget
from zoo.distribution.layouts import ModelLayouts
from zoo.storage.processes import is_first_process, num_processes, part, whole_value


@contextlib.contextmanager
def alone(model: keras.Model) -> Iterator[bool]:
    """In which the first process computes with a model on one device, which must have room for its weights.

    All processes must enter. They hand over what the first one lacks, and then wait at the next step of the training.

    Args:
        model: The model that trains.

    Yields:
        Whether this process is the one that computes.

    Example:

    >>> with alone(model) as may_compute:
    ...     lines = model.generate(prompts) if may_compute else []
    """
    if keras.backend.backend() == "tensorflow":
        strategy, model._distribute_strategy = model._distribute_strategy, None
        functions = _set_functions(model, {})
        try:
            yield True
        finally:
            model._distribute_strategy = strategy
            _set_functions(model, functions)
        return
    layouts = keras.backend.backend() == "jax" and keras.distribution.distribution()
    if not isinstance(layouts, ModelLayouts):
        yield True
        return
    variables = _variables_of(model)
    shared = [(variable, variable._value, variable._layout) for variable in variables]
    functions = _set_functions(model, {})
    _hold_whole(variables)
    keras.distribution.set_distribution(None)
    try:
        yield is_first_process()
    finally:
        keras.distribution.set_distribution(layouts)
        for variable, value, layout in shared:
            variable._value, variable._layout = value, layout
        _set_functions(model, functions)


@contextlib.contextmanager
def predicting(model: keras.Model, *, by_batch: bool = False) -> Iterator[None]:
    """In which a model predicts, by one device where Keras would want as many rows for each replica.

    On TensorFlow each replica would compute all rows of a single batch, and Keras put these one behind the other.

    Args:
        model: The model, whose weights must fit on one device.
        by_batch: Whether Keras is given single batches, which it leaves whole on JAX.

    Raises:
        ValueError: If there are several processes, and not single batches.
    """
    is_mirrored = keras.backend.backend() == "tensorflow" and model._distribute_strategy is not None
    is_divided = isinstance(keras.distribution.distribution(), ModelLayouts) and not by_batch
    if not is_mirrored and not is_divided:
        yield
        return
    if num_processes() > 1:
        raise ValueError(
            f"{num_processes()} processes do not predict together: do it in `with zoo.distribution.alone(model) as "
            "may_compute`, which all must enter."
        )
    with alone(model):
        yield


def leave(model: keras.Model) -> bool:
    """Takes a trained model off the devices for good: it is one of a single device from here on.

    Where it trains again, that is with a fresh optimizer.

    Args:
        model: The compiled model, whose weights must fit on one device.

    Returns:
        Whether this is the first process. The others have nothing to do any more: they should end.
    """
    _set_functions(model, {})
    if keras.backend.backend() == "tensorflow":
        strategy, model._distribute_strategy = model._distribute_strategy, None
        if strategy is not None:
            import tensorflow as tf

            for variable in _variables_of(model):
                of_replica = strategy.experimental_local_results(variable.value)[0]
                # another one: optimizers would know that of a replica by the one of all replicas, which goes
                with tf.device(of_replica.device):
                    variable._value = tf.Variable(of_replica, trainable=of_replica.trainable, name=variable.name)
            forget()
            model.renew_training()
        return True
    if keras.backend.backend() != "jax" or not isinstance(keras.distribution.distribution(), ModelLayouts):
        return True
    _hold_whole(_variables_of(model))
    forget()
    part()
    if is_first_process():
        model.renew_training()
    return is_first_process()


def _variables_of(model: keras.Model) -> list[keras.Variable]:
    """Weights, seeds and metrics, each once."""
    return list({id(variable): variable for variable in (*model.variables, *model.metrics_variables)}.values())


def _hold_whole(variables: list[keras.Variable]) -> None:
    """Gives variables values that are whole on the first device of the first process; in others they have none."""
    import jax

    for variable in variables:
        value = whole_value(variable)
        variable._value = jax.device_put(value, jax.local_devices()[0]) if is_first_process() else None
        # by which Keras would share what is assigned
        variable._layout = None


def _set_functions(model: keras.Model, functions: dict[str, Any]) -> dict[str, Any]:
    """Gives a model compiled functions, None for those that are not named, and returns those that it had."""
    before = {}
    for name in ("train_function", "test_function", "predict_function"):
        before[name] = getattr(model, name)
        setattr(model, name, functions.get(name))
    return before
