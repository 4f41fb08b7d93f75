"""Rematerialization: a layer is computed again in the backward pass instead of keeping its intermediate results."""

from collections.abc import Callable
from typing import Any

import keras
from keras import ops


class _Unrounded(keras.layers.Layer):
    """Copies the values of variables in their own type, not in the compute dtype of the layer that reads them."""

    def __init__(self, variables: list[keras.Variable]) -> None:
        super().__init__(autocast=False)
        self._read = lambda: [ops.copy(variable.value) for variable in variables]

    def call(self, inputs: Any) -> list[Any]:
        return self._read()


def rematerialize(layer: keras.layers.Layer, function: Callable[..., Any], *arguments: Any) -> Any:
    """Returns `function(*arguments)`, whose intermediate results are computed again in the backward pass.

    Both computations draw the same random numbers. Moving averages and losses are updated once.

    Args:
        layer: The layer whose variables, and those of its sublayers, `function` uses.
        function: A function that returns one tensor.
        arguments: Nested structures. The gradient flows to their floating-point tensors and to the variables. Tensors
            that `function` uses otherwise are constants.

    Reference:
        Chen et al. 2016, "Training Deep Nets with Sublinear Memory Cost", section 3.
    """
    leaves = keras.tree.flatten(arguments)
    flows = [ops.is_tensor(leaf) and keras.backend.is_float_dtype(leaf.dtype) for leaf in leaves]
    tensors = [leaf for leaf, chosen in zip(leaves, flows, strict=True) if chosen]
    variables = layer.variables
    values = _Unrounded(variables)(tensors[0])
    is_float = [keras.backend.is_float_dtype(variable.dtype) for variable in variables]
    floats = [value for value, chosen in zip(values, is_float, strict=True) if chosen]
    written: list[int] = []
    num_losses: list[int] = []

    def pure(*given: Any) -> list[Any]:
        rest = iter(given)
        again = [next(rest) if chosen else leaf for chosen, leaf in zip(flows, leaves, strict=True)]
        start = [next(rest) if chosen else value for chosen, value in zip(is_float, values, strict=True)]
        scope = keras.StatelessScope(collect_losses=True)
        for variable, value in zip(variables, start, strict=True):
            # not as `state_mapping`, which would round it to the compute dtype of the layer
            scope.add_update((variable, value))
        with scope:
            before = [scope.get_current_value(variable) for variable in variables]
            output = function(*keras.tree.pack_sequence_as(arguments, again))
            after = [scope.get_current_value(variable) for variable in variables]
        written[:] = [index for index in range(len(variables)) if after[index] is not before[index]]
        num_losses[:] = [len(scope.losses)]
        return [output, *scope.losses, *(ops.stop_gradient(after[index]) for index in written)]

    output, *rest = keras.remat(pure)(*tensors, *floats)
    for loss in rest[: num_losses[0]]:
        layer.add_loss(loss)
    for index, value in zip(written, rest[num_losses[0] :], strict=True):
        variables[index].assign(value)
    return output
