"""All uses of Keras names that are not public. No other file of `layers`, `zoo` and `recipes` has any.

Keras may change these names in any release. `tests/test_keras_internals.py` calls each function, and tells if the
installed version of Keras does not fit.
"""

import contextlib
import functools
import types
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

import keras
from keras.src.backend import get_keras_mask
from keras.src.backend.common import global_state
from keras.src.backend.common.variables import AutocastScope
from keras.src.losses.loss import scale_loss_for_distribution
from keras.src.utils.tracking import DotNotTrackScope

# the variables that get their initial values at the next call of a layer
_WAITING = "uninitialized_variables"


# Layers and tensors


def sublayers(layer: Any, *, recursive: bool = True, include_self: bool = True) -> list[Any]:
    """Returns the layers inside a layer or a model, each once.

    Args:
        layer: The layer.
        recursive: Whether to include layers inside these layers.
        include_self: Whether to include the layer itself, as the first.

    Example:

    >>> [dense for dense in sublayers(model) if isinstance(dense, keras.layers.Dense)]
    """
    return layer._flatten_layers(recursive=recursive, include_self=include_self)


def mask_of(tensor: Any) -> Any:
    """Returns the mask that a layer has attached to its output; None without one.

    Args:
        tensor: Output of a layer.
    """
    return get_keras_mask(tensor)


@contextlib.contextmanager
def unlocked(layer: keras.Layer) -> Iterator[None]:
    """A context in which layers and variables can be added to a built layer, or removed from it.

    Args:
        layer: The layer.
    """
    layer._tracker.unlock()
    try:
        yield
    finally:
        layer._tracker.lock()


def stored_kernel(layer: keras.layers.Dense) -> Any:
    """Returns the kernel variable as it is stored: without low-rank updates, as integers if the layer is quantized.

    Args:
        layer: A built `Dense`.
    """
    return layer._kernel


# Variables


def has_value(variable: keras.Variable) -> bool:
    """Returns whether a variable has a value; a new variable in a stateless scope has none.

    Args:
        variable: The variable.
    """
    return variable._value is not None


def initialize(variable: keras.Variable, value: Any = None) -> None:
    """Gives a variable its first value.

    Args:
        variable: A variable without a value.
        value: The value; None for that of its initializer.
    """
    if value is None:
        variable._deferred_initialize()
        return
    variable._initialize(value)
    variable._initializer = None


def overwrite(variable: keras.Variable, value: Any) -> None:
    """Assigns to a variable even inside a stateless scope.

    Args:
        variable: A variable with a value.
        value: The new one.
    """
    variable._direct_assign(value)


def value_and_layout(variable: keras.Variable) -> tuple[Any, Any]:
    """Returns the backend's tensor or variable with the value, and its layout on a mesh (None without one).

    Args:
        variable: The variable.
    """
    return variable._value, getattr(variable, "_layout", None)


def set_value_and_layout(variable: keras.Variable, value: Any, layout: Any = None) -> None:
    """Replaces the backend's tensor or variable with the value.

    Args:
        variable: The variable.
        value: A tensor of the backend; on TensorFlow a `tf.Variable`; None for no value in this process.
        layout: Layout on a mesh of values that are assigned later.
    """
    variable._value, variable._layout = value, layout


@contextlib.contextmanager
def new_variables(found: list[keras.Variable]) -> Iterator[None]:
    """A context in which variables that a stateless scope leaves without a value are appended to a list.

    Args:
        found: The list.
    """
    before = global_state.get_global_attribute(_WAITING)
    global_state.set_global_attribute(_WAITING, found)
    try:
        yield
    finally:
        global_state.set_global_attribute(_WAITING, [] if before is None else before)


def stateless_scope() -> keras.StatelessScope | None:
    """Returns the active stateless scope; None outside of one."""
    return global_state.get_global_attribute("stateless_scope")


def uncast_values(variables: Sequence[keras.Variable]) -> list[Any]:
    """Returns the values of variables in their own type, whatever the layer that is being called computes in.

    Args:
        variables: The variables.
    """
    with AutocastScope(None):
        return [keras.ops.convert_to_tensor(variable.value) for variable in variables]


def with_cast_weights(call: Callable[..., Any]) -> Callable[..., Any]:
    """Lets the `call` of a layer with `autocast = False` read weights in its compute dtype, as other layers do.

    Such a layer has to cast its inputs itself. Keras would leave weights in their own dtype too, but only where the
    layer is called by another one.

    Args:
        call: The method.
    """

    @functools.wraps(call)
    def cast(self: keras.Layer, *arguments: Any, **options: Any) -> Any:
        if self.compute_dtype == self.variable_dtype:
            return call(self, *arguments, **options)
        with AutocastScope(self.compute_dtype):
            return call(self, *arguments, **options)

    return cast


def is_inferring_shapes() -> bool:
    """Returns whether Keras runs a call to find shapes alone, as it does to build a layer or a functional model."""
    return global_state.get_global_attribute("symbolic_scope") is not None


# Losses and models


def share_of_loss(loss: Any) -> Any:
    """Returns a loss divided by the number of `tf.distribute` replicas, because their gradients are summed.

    Args:
        loss: A scalar.
    """
    return scale_loss_for_distribution(loss)


def takes_logits(loss: Any) -> bool:
    """Returns whether a Keras loss or metric takes logits; true for those without such a choice.

    Args:
        loss: The loss or metric.
    """
    return getattr(loss, "from_logits", getattr(loss, "_from_logits", True)) is not False


def function_of(metric: Any) -> Any:
    """Returns the function of which a Keras metric takes the mean; None for other metrics.

    Args:
        metric: The metric.
    """
    return getattr(metric, "_fn", None)


def compiled_loss(model: keras.Model) -> Callable[..., Any] | None:
    """Returns the loss of `compile` as a function of labels, outputs and sample weights; None without one.

    Args:
        model: The model.
    """
    return model._compile_loss


def replace_loss_mean(model: keras.Model, metric: keras.metrics.Metric) -> None:
    """Replaces the metric that is `loss` in the logs of a model.

    Args:
        model: A compiled model.
        metric: Its `update_state` is called with the loss of each batch and its number of rows.
    """
    # Keras has it apart from the metrics of a model that users add
    with DotNotTrackScope():
        model._loss_tracker = metric


def model_strategy(model: keras.Model) -> Any:
    """Returns the `tf.distribute` strategy that a model was made in; None without one and on other backends.

    Args:
        model: The model.
    """
    return getattr(model, "_distribute_strategy", None)


def set_model_strategy(model: keras.Model, strategy: Any) -> Any:
    """Sets the `tf.distribute` strategy of a model on TensorFlow.

    Args:
        model: The model.
        strategy: The strategy, or None.

    Returns:
        The previous strategy.
    """
    before, model._distribute_strategy = model._distribute_strategy, strategy
    return before


# Optimizers


def optimizer_strategy(optimizer: Any, default: Any = None) -> Any:
    """Returns the `tf.distribute` strategy that an optimizer was made in.

    Args:
        optimizer: The optimizer.
        default: What is returned if it has none.
    """
    return getattr(optimizer, "_distribution_strategy", default)


def batches_seen(optimizer: keras.optimizers.Optimizer) -> Any:
    """Returns the number of batches that an optimizer was given, of which several may make an update.

    Args:
        optimizer: The optimizer.
    """
    return optimizer._iterations


def schedule_of(optimizer: Any) -> keras.optimizers.schedules.LearningRateSchedule | None:
    """Returns the schedule of the learning rate; None if the rate is a number.

    Args:
        optimizer: The optimizer.
    """
    rate = getattr(optimizer, "_learning_rate", None)
    return rate if isinstance(rate, keras.optimizers.schedules.LearningRateSchedule) else None


def copy_exclusions(optimizer: keras.optimizers.Optimizer, fresh: keras.optimizers.Optimizer) -> None:
    """Copies the exclusions from weight decay of one optimizer to another.

    Args:
        optimizer: The optimizer whose exclusions are copied.
        fresh: The optimizer that gets them, not built yet.
    """
    for name in ("_exclude_from_weight_decay", "_exclude_from_weight_decay_pattern"):
        if hasattr(optimizer, name):
            setattr(fresh, name, getattr(optimizer, name))


def moments_of(optimizer: keras.optimizers.Adam, variable: Any) -> tuple[keras.Variable, keras.Variable]:
    """Returns Adam's first and second moment of the gradients of a weight.

    Args:
        optimizer: The built optimizer.
        variable: The weight.
    """
    index = index_of(optimizer, variable)
    return optimizer._momentums[index], optimizer._velocities[index]


def muon_leaves_to_adamw(optimizer: keras.optimizers.Muon, variable: keras.Variable) -> bool:
    """Returns whether Muon updates a weight by AdamW, as it does if the weight is not a matrix.

    Args:
        optimizer: The optimizer.
        variable: The weight.
    """
    return optimizer._should_use_adamw(variable)


def update_weights(optimizer: keras.optimizers.Optimizer, *arguments: Any) -> None:
    """Updates all weights by the method of the optimizer's class.

    Args:
        optimizer: The optimizer.
        *arguments: Gradients, weights and learning rate.
    """
    type(optimizer)._backend_update_step(optimizer, *arguments)


def replace_update_weights(optimizer: keras.optimizers.Optimizer, function: Callable[..., None]) -> None:
    """Makes an optimizer call a function to update all weights.

    Args:
        optimizer: The optimizer.
        function: Takes the optimizer and the arguments of `update_weights`.
    """
    optimizer._backend_update_step = types.MethodType(function, optimizer)


def clip_gradients(optimizer: keras.optimizers.Optimizer, gradients: Sequence[Any]) -> list[Any]:
    """Clips gradients by the method of the optimizer's class.

    Args:
        optimizer: The optimizer.
        gradients: Tensors or None.
    """
    return type(optimizer)._clip_gradients(optimizer, gradients)


def replace_clip_gradients(optimizer: keras.optimizers.Optimizer, function: Callable[..., list[Any]]) -> None:
    """Makes an optimizer call a function to clip gradients.

    Args:
        optimizer: The optimizer.
        function: Takes the optimizer and the gradients.
    """
    optimizer._clip_gradients = types.MethodType(function, optimizer)


def take_gradients_as_sums(optimizer: keras.optimizers.Optimizer) -> None:
    """Makes an optimizer on TensorFlow use gradients as they are, because they are already summed over replicas.

    Args:
        optimizer: The optimizer.
    """
    optimizer._all_reduce_sum_gradients = list


def are_overwritten(optimizer: keras.optimizers.Optimizer, variables: Sequence[Any] | None) -> list[bool]:
    """Returns which variables an optimizer sets to their gradients, as it does with the scales of float8.

    Args:
        optimizer: The optimizer.
        variables: The variables; None for those that the optimizer was built for.
    """
    variables = optimizer._trainable_variables if variables is None else variables
    return [optimizer._overwrite_variable_with_gradient(variable) for variable in variables]


def index_of(optimizer: keras.optimizers.Optimizer, variable: Any) -> int:
    """Returns the index of a weight among the weights that an optimizer was built for.

    Args:
        optimizer: The built optimizer.
        variable: The weight.
    """
    return optimizer._get_variable_index(variable)


class OptimizerHooks:
    """A mixin for Keras optimizers that gives two of their steps public names, for subclasses to override."""

    def update_all(self, *arguments: Any) -> None:
        """Updates all weights.

        Args:
            *arguments: Gradients, weights and learning rate.
        """
        super()._backend_update_step(*arguments)

    def decay_weights(self, variables: Sequence[Any]) -> None:
        """Applies the weight decay to weights.

        Args:
            variables: The weights.
        """
        super()._apply_weight_decay(variables)

    def _backend_update_step(self, *arguments: Any) -> None:
        self.update_all(*arguments)

    def _apply_weight_decay(self, variables: Sequence[Any]) -> None:
        self.decay_weights(variables)


# Training


class ModelHooks(keras.Model):
    """A model that chooses the batch on which TensorFlow's trainer builds it in the scope of a strategy."""

    def batch_to_build_on(self, iterator: Any) -> Any:
        """Returns a batch; or None for the batch of Keras, the mean over the replicas.

        Args:
            iterator: Yields epoch, step and iterator of batches.
        """
        return None

    def _maybe_symbolic_build(self, iterator: Any = None, data_batch: Any = None) -> None:
        batch = None if iterator is None else self.batch_to_build_on(iterator)
        if batch is not None:
            iterator, data_batch = None, batch
        super()._maybe_symbolic_build(iterator, data_batch)


def is_evaluated_by_fit(arguments: Mapping[str, Any]) -> bool:
    """Returns whether `fit` has called `evaluate`, which then reuses the data of the previous epoch.

    Args:
        arguments: The keyword arguments of `evaluate`.
    """
    return bool(arguments.get("_use_cached_eval_dataset"))


# Attributes in which Keras callbacks keep their state, without their settings (patience, monitor, ...).
CALLBACK_STATE = {
    keras.callbacks.EarlyStopping: ("wait", "stopped_epoch", "best", "best_epoch", "best_weights"),
    keras.callbacks.ReduceLROnPlateau: ("wait", "best", "cooldown_counter"),
    keras.callbacks.ModelCheckpoint: ("best", "_batches_seen_since_last_saving", "_last_batch_seen"),
    keras.callbacks.CSVLogger: ("keys",),
    keras.callbacks.TensorBoard: ("_global_train_batch", "_global_test_batch", "_previous_epoch_iterations"),
}
