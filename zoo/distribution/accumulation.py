"""Gradient accumulation: the update of several batches is that of one batch which holds them all."""

import types
from collections.abc import Iterable, Sequence
from contextvars import ContextVar
from typing import Any

from keras import ops

from layers.keras_internals import are_overwritten, batches_seen, clip_gradients, replace_clip_gradients
from zoo.counts import current_count

# what the average of Keras over the batches of an update is multiplied with
_FACTOR: ContextVar[Any] = ContextVar("_FACTOR", default=None)


def weigh_accumulated(optimizer: Any) -> None:
    """Makes an optimizer average the gradients of batches by what counts in each.

    Keras gives each batch the same weight. With one token in a batch and thousand in another, that token would count
    like all others together.

    Args:
        optimizer: The optimizer. Without gradient accumulation it stays as it is.
    """
    optimizer = getattr(optimizer, "inner_optimizer", optimizer)
    if not getattr(optimizer, "gradient_accumulation_steps", None) or hasattr(optimizer, "accumulated_count"):
        return
    # of the batches since the last update
    optimizer.accumulated_count = optimizer.add_variable(
        shape=(), initializer="zeros", dtype="float32", name="accumulated_count"
    )
    optimizer.apply = types.MethodType(_apply, optimizer)
    replace_clip_gradients(optimizer, _clip)


# Keras's LossScaleOptimizer passes the variables by name
def _apply(optimizer: Any, gradients: Sequence[Any], trainable_variables: Iterable[Any] | None = None) -> None:
    steps, count = optimizer.gradient_accumulation_steps, current_count()
    count = ops.ones((), "float32") if count is None else count
    total = ops.convert_to_tensor(optimizer.accumulated_count) + count
    is_update = (batches_seen(optimizer) + 1) % steps == 0
    variables = None if trainable_variables is None else list(trainable_variables)
    weighted = [
        gradient
        if gradient is None or is_overwritten
        else ops.convert_to_tensor(gradient) * ops.cast(count, gradient.dtype)
        for gradient, is_overwritten in zip(gradients, are_overwritten(optimizer, variables), strict=True)
    ]
    before = _FACTOR.set(ops.divide_no_nan(ops.cast(steps, "float32"), total))
    try:
        type(optimizer).apply(optimizer, weighted, variables)
    finally:
        _FACTOR.reset(before)
    optimizer.accumulated_count.assign(ops.where(is_update, 0.0, total))


def _clip(optimizer: Any, gradients: Sequence[Any]) -> list[Any]:
    factor = _FACTOR.get()
    means = [None if gradient is None else gradient * ops.cast(factor, gradient.dtype) for gradient in gradients]
    return clip_gradients(optimizer, means)
