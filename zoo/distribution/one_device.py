"""Models that train on several devices, computed on one: samples during the training, and all that follows it."""

import contextlib
from collections.abc import Iterator
from typing import Any

import keras

from layers.keras_internals import model_strategy, set_model_strategy, set_value_and_layout, value_and_layout
from zoo.distribution.choice import forget
from zoo.distribution.layouts import ModelLayouts
from zoo.storage.processes import is_first_process, num_processes, separate_processes, whole_value


@contextlib.contextmanager
def on_one_device(model: keras.Model) -> Iterator[bool]:
    """A context in which the first process computes with a model on one device.

    The device must have room for all weights. All processes must enter the context. They send the first process the
    weights that it lacks, and then wait at the next training step.

    Args:
        model: The model that trains.

    Yields:
        Whether this process is the one that computes.

    Example:

    >>> with alone(model) as may_compute:
    ...     lines = model.generate(prompts) if may_compute else []
    """
    if keras.backend.backend() == "tensorflow":
        strategy = set_model_strategy(model, None)
        functions = _set_functions(model, {})
        try:
            yield True
        finally:
            set_model_strategy(model, strategy)
            _set_functions(model, functions)
        return
    layouts = keras.backend.backend() == "jax" and keras.distribution.distribution()
    if not isinstance(layouts, ModelLayouts):
        yield True
        return
    variables = _variables_of(model)
    shared = [(variable, *value_and_layout(variable)) for variable in variables]
    functions = _set_functions(model, {})
    _hold_whole(variables)
    keras.distribution.set_distribution(None)
    try:
        yield is_first_process()
    finally:
        keras.distribution.set_distribution(layouts)
        for variable, value, layout in shared:
            set_value_and_layout(variable, value, layout)
        _set_functions(model, functions)


@contextlib.contextmanager
def predicts_on_one_device(model: keras.Model, *, by_batch: bool = False) -> Iterator[None]:
    """In which a model predicts, by one device where Keras would want as many rows for each replica.

    On TensorFlow each replica would compute all rows of a single batch, and Keras put these one behind the other.

    Args:
        model: The model, whose weights must fit on one device.
        by_batch: Whether Keras is given single batches, which it leaves whole on JAX.

    Raises:
        ValueError: If there are several processes, and not single batches.
    """
    is_mirrored = keras.backend.backend() == "tensorflow" and model_strategy(model) is not None
    is_divided = isinstance(keras.distribution.distribution(), ModelLayouts) and not by_batch
    if not is_mirrored and not is_divided:
        yield
        return
    if num_processes() > 1:
        raise ValueError(
            f"{num_processes()} processes do not predict together: do it in `with "
            "zoo.distribution.on_one_device(model) as may_compute`, which all must enter."
        )
    with on_one_device(model):
        yield


def move_to_one_device(model: keras.Model) -> bool:
    """Moves a trained model to a single device for good.

    If it is trained again, it has a new optimizer.

    Args:
        model: The compiled model, whose weights must fit on one device.

    Returns:
        Whether this is the first process. The others have nothing left to do, and should end.
    """
    _set_functions(model, {})
    if keras.backend.backend() == "tensorflow":
        strategy = set_model_strategy(model, None)
        if strategy is not None:
            import tensorflow as tf

            for variable in _variables_of(model):
                of_replica = strategy.experimental_local_results(variable.value)[0]
                # another one: optimizers would know that of a replica by the one of all replicas, which goes
                with tf.device(of_replica.device):
                    own = tf.Variable(of_replica, trainable=of_replica.trainable, name=variable.name)
                set_value_and_layout(variable, own)
            forget()
            model.renew_training()
        return True
    if keras.backend.backend() != "jax" or not isinstance(keras.distribution.distribution(), ModelLayouts):
        return True
    _hold_whole(_variables_of(model))
    forget()
    separate_processes()
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
        held = jax.device_put(value, jax.local_devices()[0]) if is_first_process() else None
        # without the layout, by which Keras would share what is assigned
        set_value_and_layout(variable, held)


def _set_functions(model: keras.Model, functions: dict[str, Any]) -> dict[str, Any]:
    """Gives a model compiled functions, None for those that are not named, and returns those that it had."""
    before = {}
    for name in ("train_function", "test_function", "predict_function"):
        before[name] = getattr(model, name)
        setattr(model, name, functions.get(name))
    return before
