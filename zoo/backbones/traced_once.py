"""Layers of one structure are traced once: the others call the function that the first one became.

To trace a layer takes much Python, and a decoder of thirty layers is traced thirty times for a training step, and sixty
times to generate, for the prompt and for the step. All layers of one structure compute the same function of their
weights and their inputs. So it is traced for the first of them, with the weights as arguments, and the program of each
layer is one call. TensorFlow and XLA put its operations in the place of the call before they optimize.
"""

import json
import re
from collections.abc import Callable
from typing import Any, NamedTuple

import keras

from layers.capture import is_capturing
from layers.dense import Dense
from layers.devices import is_recorded, is_traced_for_xla, num_replicas
from layers.fusion import graph_forms
from layers.keras_internals import is_inferring_shapes, mask_of, stateless_scope, sublayers, uncast_values
from layers.view import closed, opened

# Functions that are kept: of two structures, for the prompt and the step of some lengths.
_MOST_FUNCTIONS = 64
_UNKNOWN = object()
# names differ between layers of one structure, and a seed is a weight
_OWN = re.compile(r'"(name|seed|shared_object_id)": ("[^"]*"|\d+|null)')


class TracedOnce:
    """Calls layers, of which those of one structure share a traced function where a program is built.

    In eager execution, within a `Capture`, and in training steps that XLA compiles for TensorFlow, it just calls the
    layer.

    Example:

    >>> call = TracedOnce()
    >>> for block in blocks:
    ...     x = call(block, x, padding_mask=mask)
    """

    def __init__(self) -> None:
        # by structure and arguments; None where a function reads what is no argument of it
        self._functions: dict[Any, _Function | None] = {}  # the oldest first

    def __call__(self, layer: keras.layers.Layer, *arguments: Any, **options: Any) -> Any:
        # `tf.recompute_grad` has no gradients within a function, and XLA takes all that a function with gradients is
        # given for constants, weights too: it would compile each step anew
        if keras.backend.backend() == "tensorflow":
            is_training = options.get("training")
            if (is_training and getattr(layer, "remat", False)) or (
                is_traced_for_xla() and (is_training or is_recorded())
            ):
                return layer(*arguments, **options)
        tree = opened((arguments, options))
        leaves = keras.tree.flatten(tree)
        # a tensor in several places is one argument, and stays one and the same tensor within the function
        different = {id(leaf): leaf for leaf in leaves if keras.ops.is_tensor(leaf)}
        tensors, numbers = list(different.values()), {name: number for number, name in enumerate(different)}
        places = [numbers.get(id(leaf)) for leaf in leaves]
        constants = [leaf if place is None else None for leaf, place in zip(leaves, places, strict=True)]
        if not _builds_program(tensors):
            return layer(*arguments, **options)
        variables = layer.variables
        given = [*uncast_values(variables), *tensors]
        try:
            key = (
                structure_of(layer),
                graph_forms(),
                tuple(constants),
                tuple(places),
                str(keras.tree.map_structure(lambda _: 0, tree)),
                tuple((tensor.dtype, tuple(tensor.shape)) for tensor in given),
            )
            function = self._functions.get(key, _UNKNOWN)
        except (TypeError, NotImplementedError):  # an argument or a layer that cannot be compared
            return layer(*arguments, **options)
        if function is _UNKNOWN:
            # without the tensors, which would keep the program alive that they are of
            structure = keras.tree.map_structure(lambda _: None, tree)
            function = self._functions[key] = _traced(layer, constants, places, structure, given)
            if len(self._functions) > _MOST_FUNCTIONS:  # programs keep those that they call
                self._functions.pop(next(iter(self._functions)), None)  # unless another thread was first
        if function is None:
            return layer(*arguments, **options)
        outputs, updates, losses = function.run(*given)
        for index, value in zip(function.updated, updates, strict=True):
            variables[index].assign(value)
        for loss in losses:
            layer.add_loss(loss)
        return outputs


class _Function(NamedTuple):
    """The function of all layers of a structure.

    Args:
        run: Takes values of variables and the tensors among the arguments, and returns outputs, new values of variables
            and losses.
        updated: The variables that get new values, by their place among those of the layer.
    """

    run: Callable[..., tuple[Any, list[Any], list[Any]]]
    updated: list[int]


class _Values(keras.StatelessScope):
    """A scope with values of the variables of one layer, which notes whether others are read."""

    def __init__(self) -> None:
        super().__init__(collect_losses=True, initialize_variables=False)
        self.reads_others = False

    def get_current_value(self, variable: keras.Variable) -> Any:
        value = super().get_current_value(variable)
        self.reads_others = self.reads_others or value is None
        return value


def _builds_program(tensors: list[Any]) -> bool:
    """Whether a program is being built, of which the call of a layer can be a function."""
    backend = keras.backend.backend()
    if backend not in ("tensorflow", "jax") or is_capturing() or is_inferring_shapes():
        return False
    if any(mask_of(tensor) is not None for tensor in tensors):
        return False  # masks of Keras go with tensors, and not through functions
    if backend == "jax":
        import jax

        return any(isinstance(tensor, jax.core.Tracer) for tensor in tensors)
    import tensorflow as tf

    return not tf.executing_eagerly() and stateless_scope() is None and num_replicas() == 1


def _traced(
    layer: keras.layers.Layer, constants: list[Any], places: list[int | None], structure: Any, given: list[Any]
) -> _Function | None:
    """The function of a layer, of its variables and of the tensors among its arguments, at their places in these."""
    variables = layer.variables
    updated: list[int] = []
    others: list[bool] = []

    def run(*values: Any) -> Any:
        scope = _Values()
        for variable, value in zip(variables, values, strict=False):
            # not as `state_mapping`, which would round it to the compute dtype of the layer
            scope.add_update((variable, value))
        tensors = values[len(variables) :]
        leaves = [leaf if place is None else tensors[place] for leaf, place in zip(constants, places, strict=True)]
        arguments, options = closed(keras.tree.pack_sequence_as(structure, leaves))
        with scope:
            outputs = layer(*arguments, **options)
        after = [scope.get_current_value(variable) for variable in variables]
        updated[:] = [index for index, value in enumerate(after) if value is not values[index]]
        others[:] = [scope.reads_others]
        return outputs, [after[index] for index in updated], scope.losses

    function = (_of_jax if keras.backend.backend() == "jax" else _of_tensorflow)(run, given)
    return None if function is None or others[0] else _Function(function, updated)


def _of_jax(run: Callable[..., Any], given: list[Any]) -> Callable[..., Any]:
    import jax

    function = jax.jit(run)
    function.eval_shape(*given)  # traces it, and finds what it updates; the trace is kept
    return function


def _of_tensorflow(run: Callable[..., Any], given: list[Any]) -> Callable[..., Any] | None:
    import tensorflow as tf

    specs = [tf.TensorSpec(tensor.shape, tensor.dtype) for tensor in given]
    function = tf.function(run, input_signature=specs, autograph=False).get_concrete_function()
    # what it reads besides must be the same for all layers and graphs: constants, neither variables nor other tensors
    is_own = all(
        isinstance(tensor, tf.__internal__.EagerTensor) and tensor.dtype != tf.resource
        for tensor in function.captured_inputs
    )
    return function if is_own else None


def structure_of(layer: keras.layers.Layer) -> str:
    """Returns what two layers have in common if they compute the same function of their weights and inputs.

    Args:
        layer: A layer.

    Raises:
        NotImplementedError: If one of its layers has no configuration.
    """
    parts = sublayers(layer)
    # of each part, too: what was added to it (low-rank updates), or was changed (rates of dropout), the layer knows not
    configs = [_OWN.sub("", json.dumps(part.get_config(), sort_keys=True, default=repr)) for part in parts]
    states = [
        (type(part).__name__, str(part.dtype_policy.name), getattr(part, "quantization_mode", None))
        + ((tuple(part.active_updates),) if isinstance(part, Dense) else ())
        for part in parts
    ]
    return f"{configs} {states} {[(variable.name, variable.trainable) for variable in layer.variables]}"
