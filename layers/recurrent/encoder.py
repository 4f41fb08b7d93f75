"""A recurrent encoder: stacked layers in one or both directions."""

from typing import Any

import keras
from keras import ops

from layers.capture import point
from layers.constructor_arguments import ConfigFromArguments
from layers.dropout import Dropout
from layers.recurrent.layer import RecurrentLayer
from layers.roles import WHOLE


@keras.saving.register_keras_serializable("keras_transformer_zoo")
class RecurrentEncoder(ConfigFromArguments, keras.layers.Layer):
    """Stacked recurrent layers, each in one or both directions.

    A padded row gives the same as the row alone: padding does not change the states, and its outputs are zero.

    With `units=None` the outputs are as wide as the inputs. The encoder can then replace the attention of a
    `TransformerBlock`, for comparison. It takes `O(n * dim^2)` operations for n positions, one step after the other.

    Args:
        units: Width of the state of each layer and direction. Default: such that the outputs are as wide as the inputs.
        num_layers: Number of layers.
        cell: "simple", "gru" or "lstm".
        reset_after: See `RecurrentLayer`.
        bidirectional: Whether each layer reads in both directions. Its output is their concatenation, forward first.
        backwards: Whether a unidirectional encoder reads from the end. Sutskever et al. 2014, section 3.3, found that
            reversed sources are easier to learn.
        dropout: Rate of the dropout between layers.
        return_states: Whether to return the last states too.

    Call arguments:
        inputs: `(batch, length, dim)`.
        mask: True where a position is real, `(batch, length)`. Padding must be on the right. Default: the mask that the
            inputs carry from a Keras layer (`Embedding(mask_zero=True)`, `Masking`).
        training: Whether dropout is active.

    Returns:
        The outputs of the last layer, `(batch, length, units)`, or `(batch, length, 2 * units)` if bidirectional. With
        `return_states` a tuple of the outputs and the last states. `states[i][j]` is the list of state tensors
        `(batch, units)` of layer i in direction j.

    Raises:
        ValueError: If an argument is out of range, if both `backwards` and `bidirectional` are set, or if the inputs
            have an odd width with `bidirectional=True` and `units=None`.

    Example:

    >>> encoder = RecurrentEncoder(16, num_layers=2, bidirectional=True, return_states=True)
    >>> outputs, states = encoder(keras.ops.ones((2, 5, 8)))
    >>> outputs.shape, len(states), len(states[0])
    ((2, 5, 32), 2, 2)

    Reference:
        Schuster and Paliwal 1997, "Bidirectional Recurrent Neural Networks"; Bahdanau et al. 2015, section 3.2 and
        appendix A.2.1; as a replacement of attention: Vaswani et al. 2017, section 4 and table 1, row 2.
    """

    # each step needs the whole state, so dividing its matrices would need communication in each step
    weight_role = WHOLE

    def __init__(
        self,
        units: int | None = None,
        num_layers: int = 1,
        cell: str = "gru",
        reset_after: bool = True,
        bidirectional: bool = False,
        backwards: bool = False,
        dropout: float = 0.0,
        return_states: bool = False,
        **kwargs: Any,
    ) -> None:
        super().__init__(**kwargs)
        if num_layers < 1:
            raise ValueError(f"num_layers must be at least 1, got {num_layers}.")
        if bidirectional and backwards:
            raise ValueError("backwards must be False with bidirectional=True, got True: both directions are read.")
        self.units = units
        self.num_layers = num_layers
        self.cell = cell
        self.reset_after = reset_after
        self.bidirectional = bidirectional
        self.backwards = backwards
        self.dropout = dropout
        self.return_states = return_states
        self.supports_masking = True
        self.directions = ("forward", "backward") if bidirectional else ("backward" if backwards else "forward",)
        self.layers_by_direction = [] if units is None else self._make_layers(units)
        self.between = [
            Dropout(dropout, dtype=self.dtype_policy, name=f"dropout_{index}") for index in range(num_layers - 1)
        ]

    def _make_layers(self, units: int) -> list[list[RecurrentLayer]]:
        return [
            [
                RecurrentLayer(
                    units,
                    self.cell,
                    self.reset_after,
                    backwards=direction == "backward",
                    dtype=self.dtype_policy,
                    name=f"{direction}_{index}",
                )
                for direction in self.directions
            ]
            for index in range(self.num_layers)
        ]

    @property
    def output_dim(self) -> int | None:
        """Width of the outputs; None if it depends on inputs that are not known yet."""
        if not self.layers_by_direction:
            return None
        return sum(layer.units for layer in self.layers_by_direction[0])

    @property
    def output_shape(self) -> tuple[int | None, ...]:
        """The shape of the outputs, for the summary of a model."""
        return (None, None, self.output_dim)

    def build(self, inputs_shape: tuple[int | None, ...]) -> None:
        dim = inputs_shape[-1]
        if not self.layers_by_direction:
            if dim % len(self.directions):
                raise ValueError(
                    f"inputs must have an even width with bidirectional=True and units=None, got {tuple(inputs_shape)}."
                )
            self.layers_by_direction = self._make_layers(dim // len(self.directions))
        for directions in self.layers_by_direction:
            for layer in directions:
                layer.build((None, None, dim))
            dim = self.output_dim

    def call(self, inputs: Any, mask: Any = None, training: bool | None = None) -> Any:
        outputs, all_states = point(f"{self.name}.hidden", inputs), []
        for index, directions in enumerate(self.layers_by_direction):
            if index:
                outputs = self.between[index - 1](outputs, training=training)
            results = [layer(outputs, mask=mask, training=training) for layer in directions]
            outputs = results[0][0]
            if len(results) > 1:
                outputs = ops.concatenate([result[0] for result in results], axis=-1)
            outputs = point(f"{self.name}.hidden", outputs)
            all_states.append([result[1] for result in results])
        return (outputs, all_states) if self.return_states else outputs
