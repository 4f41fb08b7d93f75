"""The position-wise feed-forward network and its gated variants."""

from collections.abc import Mapping
from typing import Any, ClassVar

import keras

from layers.activations import GatedActivation, get_activation
from layers.constructor_arguments import ConfigFromArguments
from layers.dense import Dense
from layers.dropout import Dropout
from layers.fusion import as_matrix, fused
from layers.initializers import separate
from layers.roles import COLUMNS, ROWS, Role


@keras.saving.register_keras_serializable("keras_transformer_zoo")
class FeedForward(ConfigFromArguments, keras.layers.Layer):
    """Position-wise feed-forward network: the same two layers at each position.

    * plain: `down(activation(up(x)))`
    * gated: `down(activation(gate(x)) * up(x))`. This is GLU with "sigmoid", GEGLU with "gelu", SwiGLU with "silu",
      ReGLU with "relu" and the bilinear network with "identity". gpt-oss uses `gate_limit` and `up_offset` too.

    The projections are `layers.dense.Dense`, so LoRA and quantization work on them.

    Args:
        intermediate_dim: Width between the two layers.
        activation: Name of the activation, see `layers.activations.get_activation`.
        gated: Whether a second projection of the input is multiplied with the activation.
        use_bias: Whether the projections add a bias.
        dropout: Rate of the dropout between the activation and the second layer, in [0, 1). Dropout of the output
            belongs to the residual connection around this layer.
        kernel_initializer: Initializer of the projections.
        output_initializer: Initializer of the last projection. Default `kernel_initializer`.
        bias_initializer: Initializer of the biases.
        output_dim: Width of the output. Default the width of the input.
        gate_limit: In a gated network, `gate(x)` is clipped to at most `gate_limit` before the activation, and `up(x)`
            to `[-gate_limit, gate_limit]`. None for no limit.
        up_offset: In a gated network, added to `up(x)` after the clipping.

    Call arguments:
        inputs: `(..., dim)`, usually `(batch, length, dim)`.
        training: Whether dropout is active.

    Returns:
        `(..., output_dim)`.

    Raises:
        ValueError: If a width is not positive, `dropout` is not in [0, 1), `activation` is unknown, or a limit or an
            offset is given without a gate.

    Example:

    >>> layer = FeedForward(2048, activation="silu", gated=True, use_bias=False)
    >>> layer(keras.ops.ones((2, 5, 512))).shape
    (2, 5, 512)

    Reference:
        Vaswani et al. 2017, "Attention Is All You Need", section 3.3, equation 2; gated: Shazeer 2020, "GLU Variants
        Improve Transformer", equations 5 and 6.
    """

    weight_roles: ClassVar[Mapping[str, Role]] = {"gate": COLUMNS, "up": COLUMNS, "down": ROWS}

    def __init__(
        self,
        intermediate_dim: int,
        activation: str = "relu",
        gated: bool = False,
        use_bias: bool = True,
        dropout: float = 0.0,
        kernel_initializer: Any = "glorot_uniform",
        output_initializer: Any = None,
        bias_initializer: Any = "zeros",
        output_dim: int | None = None,
        gate_limit: float | None = None,
        up_offset: float = 0.0,
        **kwargs: Any,
    ) -> None:
        super().__init__(**kwargs)
        if intermediate_dim < 1:
            raise ValueError(f"intermediate_dim must be at least 1, got {intermediate_dim}.")
        if output_dim is not None and output_dim < 1:
            raise ValueError(f"output_dim must be at least 1, or None for the input's width, got {output_dim}.")
        if not 0 <= dropout < 1:
            raise ValueError(f"dropout must be at least 0 and below 1, got {dropout}.")
        require_gate(gated, gate_limit, up_offset)
        self.intermediate_dim = intermediate_dim
        self.activation = activation
        self.gated = gated
        self.use_bias = use_bias
        self.dropout = dropout
        self.kernel_initializer = keras.initializers.get(kernel_initializer)
        self.output_initializer = keras.initializers.get(output_initializer)
        self.bias_initializer = keras.initializers.get(bias_initializer)
        self.output_dim = output_dim
        self.gate_limit = gate_limit
        self.up_offset = up_offset
        self.supports_masking = True
        self._activation_function = (
            GatedActivation(activation, gate_limit, up_offset) if gated else get_activation(activation)
        )
        self.gate = self._dense(intermediate_dim, "gate") if gated else None
        self.up = self._dense(intermediate_dim, "up")
        self.down = None  # its width may be that of the input
        self.dropout_layer = Dropout(dropout, dtype=self.dtype_policy, name="dropout") if dropout else None

    def _dense(self, units: int, name: str) -> Dense:
        initializer = (name == "down" and self.output_initializer) or self.kernel_initializer
        index = ("up", "down", "gate").index(name)
        return Dense(
            units,
            use_bias=self.use_bias,
            kernel_initializer=separate(initializer, index),
            bias_initializer=separate(self.bias_initializer, index),
            dtype=self.dtype_policy,
            name=name,
        )

    def build(self, input_shape: tuple[int | None, ...]) -> None:
        if self.gated:
            self.gate.build(input_shape)
        self.up.build(input_shape)
        self.down = self._dense(self.output_dim or input_shape[-1], "down")
        self.down.build((*input_shape[:-1], self.intermediate_dim))

    def call(self, inputs: Any, training: bool | None = None) -> Any:
        if training:
            return self._network(inputs, training)
        # at inference the products are fused with what stands between them
        return as_matrix(lambda rows: self._network(rows, training), inputs)

    def _network(self, inputs: Any, training: bool | None) -> Any:
        activation = fused(self._activation_function) if training else self._activation_function
        hidden = activation(self.gate(inputs), self.up(inputs)) if self.gated else activation(self.up(inputs))
        if self.dropout_layer is not None:
            hidden = self.dropout_layer(hidden, training=training)
        return self.down(hidden)  # (..., output_dim)

    def compute_output_shape(self, input_shape: tuple[int | None, ...]) -> tuple[int | None, ...]:
        return (*input_shape[:-1], self.output_dim or input_shape[-1])


def require_gate(gated: bool, gate_limit: float | None, up_offset: float) -> None:
    """Raises a ValueError if a network without a gate is given a limit or an offset.

    Args:
        gated: Whether the network has a gate.
        gate_limit, up_offset: See `FeedForward`.
    """
    if not gated and (gate_limit is not None or up_offset != 0):
        raise ValueError(
            f"gate_limit must be None and up_offset 0 without a gate, got gate_limit={gate_limit!r} and "
            f"up_offset={up_offset!r}."
        )
