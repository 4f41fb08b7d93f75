"""Layers of one structure are traced once: the others call the function that the first one became.

To trace a layer takes TensorFlow much Python, and a decoder of thirty layers traces sixty of them, for the prompt and
for the step. All layers of one structure compute the same function of their weights and their
inputs. So it is traced for the first of them, with the weights as arguments, and the graph of each layer is one call.
TensorFlow and XLA put its operations in the place of the call before they optimize.
"""

import json
import re
from collections.abc import Callable
from typing import Any

import keras

from layers.capture import is_capturing
from layers.dense import Dense
from layers.fusion import forms_of_graph
from layers.keras_internals import mask_of, stateless_scope, sublayers, uncast_values

# names differ between layers of one structure, and a seed is a weight
_OWN = re.compile(r'"(name|seed|shared_object_id)": ("[^"]*"|\d+|null)')


class TracedOnce:
    """Calls layers, of which those of one structure share a traced function where TensorFlow builds a graph.

    In eager execution, in training, on other backends and within a `Capture` it just calls the layer.

    Example:

    >>> call = TracedOnce()
    >>> for block in blocks:
    ...     x = call(block, x, padding_mask=mask)
    """

    def __init__(self) -> None:
        # by structure and arguments; None where a function reads what is no argument of it
        self._functions: dict[Any, Callable[..., Any] | None] = {}

    def __call__(self, layer: keras.layers.Layer, *arguments: Any, **options: Any) -> Any:
        if not _may_share(options, arguments):
            return layer(*arguments, **options)
        import tensorflow as tf

        leaves = keras.tree.flatten((arguments, options))
        are_tensors = [isinstance(leaf, tf.Tensor) for leaf in leaves]
        tensors = [leaf for leaf, chosen in zip(leaves, are_tensors, strict=True) if chosen]
        given = [*uncast_values(layer.variables), *tensors]
        try:
            key = (
                structure_of(layer),
                forms_of_graph(),
                tuple(None if chosen else leaf for leaf, chosen in zip(leaves, are_tensors, strict=True)),
                str(keras.tree.map_structure(lambda _: 0, (arguments, options))),
                tuple((tensor.dtype, tuple(tensor.shape)) for tensor in given),
            )
            known = key in self._functions
        except TypeError:  # an argument that cannot be compared
            return layer(*arguments, **options)
        if not known:
            self._functions[key] = _traced(layer, leaves, are_tensors, (arguments, options), given)
        function = self._functions[key]
        return layer(*arguments, **options) if function is None else function(*given)


def _may_share(options: dict[str, Any], arguments: tuple[Any, ...]) -> bool:
    if keras.backend.backend() != "tensorflow" or options.get("training") or is_capturing():
        return False
    import tensorflow as tf

    if tf.executing_eagerly() or stateless_scope() is not None:
        return False
    # masks of Keras go with tensors, and not through functions
    return all(mask_of(tensor) is None for tensor in keras.tree.flatten(arguments) if isinstance(tensor, tf.Tensor))


def _traced(
    layer: keras.layers.Layer, leaves: list[Any], are_tensors: list[bool], structure: Any, given: list[Any]
) -> Callable[..., Any] | None:
    """The function of a layer, of its weights and of the tensors among its arguments."""
    import tensorflow as tf

    variables = layer.variables

    def run(*values: Any) -> Any:
        scope = keras.StatelessScope()
        for variable, value in zip(variables, values, strict=False):
            # not as `state_mapping`, which would round it to the compute dtype of the layer
            scope.add_update((variable, value))
        rest = iter(values[len(variables) :])
        again = [next(rest) if chosen else leaf for leaf, chosen in zip(leaves, are_tensors, strict=True)]
        arguments, options = keras.tree.pack_sequence_as(structure, again)
        with scope:
            return layer(*arguments, **options)

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
    """
    parts = sublayers(layer)
    config = _OWN.sub("", json.dumps(layer.get_config(), sort_keys=True, default=repr))
    states = [
        (type(part).__name__, str(part.dtype_policy.name), getattr(part, "quantization_mode", None))
        + ((tuple(part.active_updates),) if isinstance(part, Dense) else ())
        for part in parts
    ]
    return f"{config} {states} {[(variable.name, variable.trainable) for variable in layer.variables]}"
