"""A loop over the steps of a sequence, differentiable and of any length, on every backend."""

from collections.abc import Callable, Sequence
from typing import Any

import keras
from keras import ops


class _Step:
    """A cell for `keras.layers.RNN`: a function and the number of features of its first state."""

    def __init__(self, function: Callable[[Any, Any], Any], state_size: int) -> None:
        self.call = function
        self.state_size = state_size

    def __call__(self, inputs: Any, states: Any) -> Any:
        return self.call(inputs, states)


def run_steps(
    step: Callable[[Any, list[Any]], tuple[Any, list[Any]]],
    sequence: Any,
    states: Sequence[Any],
    backwards: bool = False,
) -> tuple[Any, list[Any]]:
    """Calls `step` on each position of a sequence in turn.

    The loop is that of `keras.layers.RNN`: on TensorFlow a `tf.while_loop` with a known bound, so that XLA can
    differentiate it, on JAX a `scan`. It is compiled once for all lengths.

    Args:
        step: `step(inputs, states) -> (outputs, states)`. Takes `(batch, features)` and a list of tensors with the
            batch on axis 0. Returns a nested structure of tensors `(batch, ...)`, and new states with the same shapes
            and types.
        sequence: `(batch, length, features)`.
        states: The states before the first step.
        backwards: Whether to go from the last position to the first. Outputs stay at their positions.

    Returns:
        The outputs `(batch, length, ...)` and the states after the last step.

    Example:

    >>> total = lambda inputs, states: (states[0] + inputs, [states[0] + inputs])
    >>> outputs, states = run_steps(total, keras.ops.ones((1, 3, 1)), [keras.ops.zeros((1, 1))])
    >>> outputs[0, :, 0]
    [1., 2., 3.]
    """
    structure: list[Any] = []

    def flat_step(inputs: Any, states: Any) -> Any:
        outputs, states = step(inputs, states)
        structure[:] = [outputs]
        return tuple(keras.tree.flatten(outputs)), states

    # outputs are flattened and reversed here, because on JAX the loop can neither nest nor reverse them
    if backwards:
        sequence = ops.flip(sequence, axis=1)
    loop = keras.layers.RNN(_Step(flat_step, int(states[0].shape[-1])), return_sequences=True)
    _, outputs, states = loop.inner_loop(sequence, list(states), None)
    if backwards:
        outputs = [ops.flip(output, axis=1) for output in outputs]
    return keras.tree.pack_sequence_as(structure[0], list(outputs)), list(states)


class Features:
    """Several tensors `(batch, length, width)` concatenated in one, for a loop that reads one tensor.

    Args:
        tensors: Tensors by name. Those that are None are left out. All are cast to the type of the first.

    Attributes:
        joined: `(batch, length, sum of the widths)`.
    """

    def __init__(self, **tensors: Any) -> None:
        tensors = {name: tensor for name, tensor in tensors.items() if tensor is not None}
        self._names = list(tensors)
        self._ends: list[int] = []
        for tensor in tensors.values():
            self._ends.append((self._ends[-1] if self._ends else 0) + int(tensor.shape[-1]))
        dtype = next(iter(tensors.values())).dtype
        columns = [ops.cast(tensor, dtype) for tensor in tensors.values()]
        self.joined: Any = ops.concatenate(columns, axis=-1) if len(columns) > 1 else columns[0]

    def split(self, columns: Any) -> dict[str, Any]:
        """Returns the parts of one step by name, each `(batch, width)`.

        Args:
            columns: `(batch, sum of the widths)`.
        """
        starts = [0, *self._ends[:-1]]
        bounds = zip(self._names, starts, self._ends, strict=True)
        return {name: columns[:, start:end] for name, start, end in bounds}
