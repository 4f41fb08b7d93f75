"""One recurrent layer in one direction, over whole sequences or step by step."""

from collections.abc import Callable
from typing import Any

import keras
from keras import ops

from layers.constructor_arguments import ConfigFromArguments
from layers.padding import hide_padding
from layers.recurrent.kernels import CELLS, all_states
from layers.roles import WHOLE

NETWORKS = {"simple": keras.layers.SimpleRNN, "gru": keras.layers.GRU, "lstm": keras.layers.LSTM}


@keras.saving.register_keras_serializable("keras_transformer_zoo")
class RecurrentLayer(ConfigFromArguments, keras.layers.Layer):
    """A simple recurrent, GRU or LSTM layer in one direction, for whole sequences or single steps.

    The weights are those of `keras.layers.SimpleRNN`, `GRU` or `LSTM`, in the sublayer `network`. By default, the
    inputs of all positions are projected in one matrix product, and a loop computes the rest.

    In training on a GPU, the fused kernel (cuDNN) of the Keras layer is used if it has one: for an LSTM, and on
    TensorFlow for a GRU with `reset_after`. Keras then does not compile the training with XLA, and warns. Inference
    does not use cuDNN, so that XLA can compile decoding as a whole.

    Args:
        units: Width of the state.
        cell: "simple" (`h_t = tanh(W x_t + U h_{t-1} + b)`), "gru" or "lstm".
        reset_after: Whether the reset gate of a GRU acts after the matrix product with the state, as in cuDNN. If
            False, it acts on the state itself, as in the paper. Other cells ignore it.
        backwards: Whether the sequence is read from its end. Outputs stay at their positions.

    Call arguments:
        inputs: `(batch, length, dim)`.
        initial_state: List of initial state tensors `(batch, units)`: `[h]`, or `[h, c]` for an LSTM. Default zeros.
        mask: True where a position is real, `(batch, length)`. Padding must be on the right; there the state does not
            change and the output is zero. Default: the mask that the inputs carry from a Keras layer.
        context: `(batch, context_dim)`, concatenated to the input of every step. The layer must be built for the width
            `dim + context_dim`.
        inputs_mask: Keras's mask of the inputs, filled in by Keras.
        training: Whether the fused kernel may be used.

    Returns:
        The outputs `(batch, length, units)` and the list of states after the last real position.

    Raises:
        ValueError: If `units` or `cell` is not allowed.

    Example:

    >>> outputs, states = RecurrentLayer(16, "lstm")(keras.ops.ones((2, 5, 8)))
    >>> outputs.shape, [state.shape for state in states]
    ((2, 5, 16), [(2, 16), (2, 16)])

    Reference:
        Elman 1990, "Finding Structure in Time" (simple); Cho et al. 2014, "Learning Phrase Representations", section
        2.3 (GRU); Hochreiter and Schmidhuber 1997, "Long Short-Term Memory", and Gers et al. 2000, "Learning to Forget"
        (LSTM with forget gate).
    """

    # each step needs the whole state, so dividing its matrices would need communication in each step
    weight_role = WHOLE

    def __init__(
        self, units: int, cell: str = "gru", reset_after: bool = True, backwards: bool = False, **kwargs: Any
    ) -> None:
        super().__init__(**kwargs)
        self.supports_masking = True
        if units < 1:
            raise ValueError(f"units must be at least 1, got {units}.")
        if cell not in NETWORKS:
            raise ValueError(f"cell must be one of {', '.join(map(repr, NETWORKS))}, got {cell!r}.")
        self.units = units
        self.cell = cell
        self.reset_after = reset_after
        self.backwards = backwards
        options = {"reset_after": reset_after} if cell == "gru" else {}
        self.network = NETWORKS[cell](
            units,
            return_sequences=True,
            return_state=True,
            go_backwards=backwards,
            dtype=self.dtype_policy,
            name="network",
            **options,
        )

    @property
    def number_of_states(self) -> int:
        """Number of state tensors."""
        return 2 if self.cell == "lstm" else 1

    def build(self, inputs_shape: tuple[int | None, ...], *other_shapes: Any) -> None:
        self.network.build((None, None, inputs_shape[-1]))

    def call(
        self,
        inputs: Any,
        initial_state: Any = None,
        mask: Any = None,
        context: Any = None,
        inputs_mask: Any = None,
        training: bool | None = None,
    ) -> Any:
        mask = inputs_mask if mask is None else mask
        if initial_state is None:
            zeros = ops.zeros((ops.shape(inputs)[0], self.units), dtype=self.compute_dtype)
            initial_state = [zeros] * self.number_of_states
        initial_state = [ops.cast(state, self.compute_dtype) for state in initial_state]
        inputs = hide_padding(inputs, mask)  # NaN in padding would make the gradient of the kernel NaN
        if training and self._has_fused_kernel():
            return self._call_network(inputs, initial_state, mask, context)
        projected = self.make_projection(inputs.shape[-1])(inputs)
        if context is not None:
            projected = projected + ops.expand_dims(self.make_context_projection(context.shape[-1])(context), 1)
        kernel, biases = self._recurrent_weights()
        states = all_states(
            self._equations(), projected, initial_state, kernel, *biases, mask=mask, backwards=self.backwards
        )
        outputs = states[0]
        return hide_padding(outputs, mask), [state[:, 0 if self.backwards else -1] for state in states]

    def _has_fused_kernel(self) -> bool:
        backend = keras.backend.backend()
        has_kernel = self.cell == "lstm" or (self.cell == "gru" and self.reset_after and backend == "tensorflow")
        known = backend in ("tensorflow", "jax") and self.compute_dtype in ("float32", "float16")
        return has_kernel and known and any("gpu" in name.lower() for name in keras.distribution.list_devices())

    def _call_network(self, inputs: Any, initial_state: Any, mask: Any, context: Any) -> Any:
        if context is not None:
            shape = (*ops.shape(inputs)[:2], context.shape[-1])
            inputs = ops.concatenate([inputs, ops.broadcast_to(ops.expand_dims(context, 1), shape)], axis=-1)
        not_empty = None
        if mask is not None:
            mask = ops.cast(mask, "bool")
            # cuDNN refuses rows without any position: they get one, and their results are replaced afterwards
            not_empty = ops.any(mask, axis=1, keepdims=True)
            first = ops.expand_dims(ops.arange(ops.shape(mask)[1]) == 0, 0)
            network_mask = ops.logical_or(mask, ops.logical_and(first, ops.logical_not(not_empty)))
            outputs, *states = self.network(inputs, initial_state=initial_state, mask=network_mask)
        else:
            outputs, *states = self.network(inputs, initial_state=initial_state)
        if self.backwards:
            outputs = ops.flip(outputs, axis=1)
        if mask is not None:
            outputs = hide_padding(outputs, mask)
            states = [ops.where(not_empty, state, before) for state, before in zip(states, initial_state, strict=True)]
        return outputs, list(states)

    def _weights(self) -> tuple[Any, Any, Any]:
        cell = self.network.cell
        return tuple(
            ops.cast(ops.convert_to_tensor(weight), self.compute_dtype)
            for weight in (cell.kernel, cell.recurrent_kernel, cell.bias)
        )

    def _has_two_biases(self) -> bool:
        return self.cell == "gru" and self.reset_after

    def _equations(self) -> str:
        if self.cell != "gru":
            return self.cell
        return "gru_reset_after" if self.reset_after else "gru_reset_before"

    def _recurrent_weights(self) -> tuple[Any, list[Any]]:
        _, kernel, bias = self._weights()
        return kernel, [bias[1]] if self._has_two_biases() else []

    def make_projection(self, dim: int) -> Callable[[Any], Any]:
        """Returns the projection of the first `dim` input features to the gates, with the bias.

        Args:
            dim: Width of the inputs `(..., dim)`. The projection returns `(..., gates * units)`.
        """
        kernel, _, bias = self._weights()
        kernel, bias = kernel[:dim], bias[0] if self._has_two_biases() else bias
        return lambda inputs: ops.matmul(ops.cast(inputs, self.compute_dtype), kernel) + bias

    def make_context_projection(self, dim: int) -> Callable[[Any], Any]:
        """Returns the projection of the last `dim` input features, the `context`, to the gates.

        Args:
            dim: Width of the context `(..., dim)`. The projection returns `(..., gates * units)`.
        """
        kernel = self._weights()[0]
        kernel = kernel[kernel.shape[0] - dim :]
        return lambda context: ops.matmul(ops.cast(context, self.compute_dtype), kernel)

    def make_step(self) -> Callable[[Any, list[Any]], tuple[Any, list[Any]]]:
        """Returns `step(projected, states) -> (output, states)`, for one position.

        `projected`, `(batch, gates * units)`, is the result of the projection of `make_projection`, plus that of
        `make_context_projection` if there is a context.
        """
        forward, (kernel, biases) = CELLS[self._equations()].forward, self._recurrent_weights()

        def step(projected: Any, states: Any) -> Any:
            states, _ = forward(projected, states, kernel, *biases)
            return states[0], states

        return step

    def compute_output_spec(self, inputs: Any, *arguments: Any, **options: Any) -> tuple[Any, list[Any]]:
        state = keras.KerasTensor((inputs.shape[0], self.units), dtype=self.compute_dtype)
        outputs = keras.KerasTensor((*inputs.shape[:2], self.units), dtype=self.compute_dtype)
        return outputs, [state] * self.number_of_states
