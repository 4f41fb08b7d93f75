"""What does not work on several devices, said before the first step."""

from typing import Any

import keras

from layers.devices import num_replicas
from layers.keras_internals import optimizer_strategy, sublayers, value_and_layout
from layers.mixture_of_experts import MixtureOfExperts
from zoo.counts import losses_of, reduction_of
from zoo.distribution.choice import chosen
from zoo.distribution.layouts import ModelLayouts

_WAY = (
    "On one machine use tf.distribute.MirroredStrategy (zoo.distribution.use('mirrored')); on several machines "
    "KERAS_BACKEND=jax with zoo.distribution.use('data') or a mesh."
)


def require_distributable(model: keras.Model) -> None:
    """Raises a ValueError if a model cannot train on the devices that were chosen for it.

    Args:
        model: A compiled model.
    """
    if keras.backend.backend() == "tensorflow":
        _require_mirrored(model)
        return
    layouts = keras.distribution.distribution()
    if layouts is not None and not isinstance(layouts, ModelLayouts):
        raise ValueError(
            f"The distribution must be one of zoo.distribution.use(), got {layouts!r}: with others batches are not "
            "filled up, and weights are not shared by their roles."
        )
    if keras.backend.backend() != "jax" or not model.weights:
        return
    # the layout that Keras has given it; without one it lies on one device
    layout = value_and_layout(model.weights[0])[1]
    if layout is None and layouts is not None:
        raise ValueError(
            "The model was made before zoo.distribution.use(): choose the distribution first, then make the model."
        )
    if layout is not None and (
        layouts is None or getattr(layout, "backend_layout", layout).mesh != layouts.device_mesh.backend_mesh
    ):
        raise ValueError("The model was made for another distribution: choose it again, or make the model anew.")


def _require_mirrored(model: keras.Model) -> None:
    import tensorflow as tf

    strategy = model.distribute_strategy
    outer = tf.distribute.get_strategy() if tf.distribute.has_strategy() else None
    for each in (strategy, outer):
        if each is None:
            continue
        # by their public names, which their classes have not
        for name in ("MultiWorkerMirroredStrategy", "ParameterServerStrategy"):
            if isinstance(each, getattr(tf.distribute, name)):
                raise ValueError(f"Keras 3 does not train with tf.distribute.{name}. {_WAY}")
    if outer is not None and outer is not strategy:
        raise ValueError(
            "The model was made outside of the scope of the strategy that is active now: make it inside of it."
        )
    if chosen() is not None and chosen() is not strategy:
        raise ValueError(
            "The model was made outside of zoo.distribution.scope(), which is of 'mirrored': make it inside of it."
        )
    if strategy.num_replicas_in_sync == 1:
        return
    if optimizer_strategy(model.optimizer, strategy) is not strategy:
        raise ValueError(
            "The optimizer was made outside of the scope of the strategy that the model was made in: make it inside of "
            "it, with zoo.distribution.scope()."
        )
    if model.jit_compile:
        raise ValueError(
            "jit_compile must be False with tf.distribute: replicas within programs of XLA wait for each other without "
            f"end, got {model.jit_compile!r}."
        )
    if any(isinstance(layer, MixtureOfExperts) for layer in sublayers(model)):
        raise ValueError(
            "A model with a mixture of experts does not train with tf.distribute, where each replica would balance the "
            "loads of experts by its own rows: use KERAS_BACKEND=jax and zoo.distribution.use('data'), or one device."
        )
    loss = model.loss
    if compares_rows(loss):
        raise ValueError(
            "The loss compares the rows of a batch, and with tf.distribute a replica sees its own alone: train on one "
            "device, or with KERAS_BACKEND=jax and zoo.distribution.use('data')."
        )
    if model.optimizer is not None and model.optimizer.gradient_accumulation_steps:
        raise ValueError(
            "gradient_accumulation_steps must be None with tf.distribute: Keras cannot update within its condition, "
            f"got {model.optimizer.gradient_accumulation_steps}: take larger batches, or KERAS_BACKEND=jax."
        )
    if isinstance(model.optimizer, keras.optimizers.LossScaleOptimizer):
        raise ValueError(
            "The dtype policy must not be mixed_float16 with tf.distribute, where each replica would scale its loss by "
            "itself: use mixed_bfloat16."
        )


def compares_rows(loss: Any) -> bool:
    """Returns whether a loss compares the rows of a batch with each other, as that of other rows as negatives does.

    Args:
        loss: The loss of `compile`, nested in any way.
    """
    return any(getattr(each, "compares_rows", False) for each in keras.tree.flatten(loss))


def require_fillable(loss: Any, metrics: Any = None) -> None:
    """Raises a ValueError if a batch cannot be filled up with rows without weight.

    Args:
        loss: The loss of `compile`.
        metrics: The `metrics` of `compile`, which do not look at weights.
    """
    for each in losses_of(loss):
        reduction = reduction_of(each)
        if reduction in (None, "none"):
            raise ValueError(
                f"The loss {getattr(each, 'name', each)} must have a reduction where a batch is shared by several "
                f"devices, got reduction={reduction!r}."
            )
    unweighted = [each for each in keras.tree.flatten(metrics) if each is not None]
    if unweighted:
        raise ValueError(
            "metrics must be given as weighted_metrics where a batch is shared by several devices, got metrics="
            f"{[getattr(each, 'name', each) for each in unweighted]}: they would count rows that fill up a batch."
        )


def replicas_of(model: keras.Model) -> int:
    """Returns into how many parts a batch of a model is divided.

    Args:
        model: The model.
    """
    if keras.backend.backend() == "tensorflow":
        return max(model.distribute_strategy.num_replicas_in_sync, num_replicas())
    layouts = keras.distribution.distribution()
    return layouts.data_size if isinstance(layouts, ModelLayouts) else 1
