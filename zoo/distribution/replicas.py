"""Training on the devices of one machine by `tf.distribute.MirroredStrategy`: what Keras leaves to each replica.

Each replica has a copy of the weights and its part of the rows of a batch. Keras takes the mean of a loss over the
tokens of a replica and gives all replicas the same weight, and clips the gradient of each replica by itself. Here both
are as on one device that has the whole batch.
"""

import contextlib
import types
from collections.abc import Iterable, Sequence
from typing import Any

import keras

from layers.devices import num_replicas
from layers.keras_internals import (
    are_overwritten,
    model_strategy,
    take_gradients_as_sums,
)


def scope_of(model: keras.Model) -> contextlib.AbstractContextManager[Any]:
    """Returns the scope of the strategy that a model was made in, where variables for it are made.

    Args:
        model: The model; without a strategy, and within a scope, nothing is done.
    """
    strategy = model_strategy(model)
    if keras.backend.backend() != "tensorflow" or strategy is None or num_replicas() > 1:
        return contextlib.nullcontext()
    return strategy.scope()


def mean_over_replicas(value: Any) -> Any:
    """Returns the mean of a value over the replicas of a `tf.distribute.Strategy`; elsewhere the value itself.

    Args:
        value: A tensor of this replica.
    """
    if num_replicas() == 1:
        return value
    import tensorflow as tf

    context = tf.distribute.get_replica_context()
    return value if context is None else context.all_reduce(tf.distribute.ReduceOp.MEAN, value)


def add_gradients_first(optimizer: keras.optimizers.Optimizer) -> None:
    """Makes an optimizer add up the gradients of all replicas before it clips and accumulates them.

    Args:
        optimizer: An optimizer that was made in the scope of a strategy; elsewhere it stays as it is.
    """
    if keras.backend.backend() != "tensorflow" or num_replicas() == 1:
        return
    optimizer.apply = types.MethodType(_apply, optimizer)
    take_gradients_as_sums(optimizer)


# Keras's LossScaleOptimizer passes the variables by name
def _apply(optimizer: Any, gradients: Sequence[Any], trainable_variables: Iterable[Any] | None = None) -> None:
    import tensorflow as tf

    gradients, context = list(gradients), tf.distribute.get_replica_context()
    variables = None if trainable_variables is None else list(trainable_variables)
    overwritten = are_overwritten(optimizer, variables)
    present = [index for index, gradient in enumerate(gradients) if gradient is not None and not overwritten[index]]
    if context is not None and present:
        # all at once: replicas then wait for each other once
        sums = context.all_reduce(tf.distribute.ReduceOp.SUM, [gradients[index] for index in present])
        for index, total in zip(present, sums, strict=True):
            gradients[index] = total
    for index, gradient in enumerate(gradients):
        if context is not None and overwritten[index] and gradient is not None:
            # the largest, as Keras has it for the batches of an accumulated update
            of_replicas = context.all_gather(tf.expand_dims(gradient, 0), axis=0)
            gradients[index] = tf.reduce_max(of_replicas, axis=0)
    type(optimizer).apply(optimizer, gradients, variables)


def first_replica(batch: Any, strategy: Any) -> Any:
    """Returns what the first replica has of a batch, of which Keras asks for shapes and types alone.

    Args:
        batch: Nested tensors, or values per replica.
        strategy: The `tf.distribute.Strategy`.
    """
    return keras.tree.map_structure(lambda part: strategy.experimental_local_results(part)[0], batch)
