"""A recurrent decoder with soft attention or a fixed context."""

from collections.abc import Callable
from typing import Any

import keras
from keras import ops

from layers.attention.scores import make_scored_attention
from layers.constructor_arguments import ConfigFromArguments
from layers.dense import Dense
from layers.recurrent.layer import RecurrentLayer
from layers.recurrent.passes import read_at_once, read_in_loop, read_own_output
from layers.recurrent.readout import RecurrentReadout
from layers.recurrent.window import AttentionWindow
from layers.roles import WHOLE

ATTENTIONS = ("none", "previous_state", "current_state")
BRIDGES = ("dense", "copy", "backward", "context")


@keras.saving.register_keras_serializable("keras_transformer_zoo")
class RecurrentDecoder(ConfigFromArguments, keras.layers.Layer):
    """A recurrent decoder that attends to an encoded source, or reads a fixed context.

    Notation: `E y_{t-1}` is the embedded previous token, `s_t` the state of the last layer, `m` the encoder's outputs,
    `[a; b]` concatenation.

    * `attention="previous_state"` (Bahdanau et al. 2015, equations 4 to 6): `c_t = attend(s_{t-1}, m)`, and the first
      layer reads `[E y_{t-1}; c_t]`.
    * `attention="current_state"` (Luong et al. 2015, section 3): the first layer reads `E y_{t-1}`, then
      `c_t = attend(s_t, m)`. With `input_feeding` (section 3.3) the first layer reads `[E y_{t-1}; a_{t-1}]`, where
      `a_t` is the readout and `a_0` is zero.
    * `attention="none"`: only the initial state depends on the source (Sutskever et al. 2014). With `context_input`,
      each step also reads the fixed context, `[E y_{t-1}; c]` with `c = tanh(V m_last)` (Cho et al. 2014, appendix
      A.1).

    The keys of the attention are projected once per source. With teacher forcing, each layer processes the whole target
    in one call and attends to the source in one product. With `input_feeding` or `attention="previous_state"`, a loop
    over the steps computes what depends on the state.

    Args:
        units: Width of the state of each layer.
        num_layers: Number of layers.
        cell: "simple", "gru" or "lstm".
        reset_after: See `RecurrentLayer`.
        attention: "none", "previous_state" or "current_state".
        score: How queries are compared with keys: "additive", "dot", "scaled_dot" or "bilinear".
        score_units: Width of the hidden layer of "additive"; None for `units`.
        window: Number of source positions on each side that are seen (Luong et al. 2015, section 3.2); None for all.
        window_center: "predicted" (local-p) or "monotonic" (local-m).
        input_feeding: Whether the previous readout is part of the input. Only with "current_state".
        context_input: Whether the fixed context is part of the input. Only with "none".
        bridge: How the encoder's last states become the initial states. "dense": `tanh(W [all directions] + b)` of the
            encoder layer with the same index, or the last one if there are fewer; without tanh for the cell state of an
            LSTM. "backward": the same, with the backward direction alone (Bahdanau et al. 2015, appendix A.2.2).
            "context": `tanh(W c + b)` (Cho et al. 2014). "copy": the states themselves.
        readout: The vector from which logits are computed, see `RecurrentReadout`.
        readout_dim: Width of the readout, see `RecurrentReadout`.
        dropout: Rate of the dropout on the inputs of each layer. Recurrent connections have none (Zaremba et al. 2014).

    Call arguments:
        embedded: Embedded target without its last token, `(batch, length, embedding_dim)`.
        memory: The encoder's outputs, `(batch, source_length, memory_dim)`.
        memory_mask: True where a source token is real, `(batch, source_length)`. If passed as `memory_mask=None`, it is
            Keras's mask of the memory.
        encoder_states: The encoder's last states, see `RecurrentEncoder`.
        use_gold: For scheduled sampling: true where the input of a step is `embedded`, false where it is the result of
            `choose` for the previous step, `(batch, length)`. The first step always reads `embedded`.
        choose: Function from a readout `(batch, output_dim)` and random numbers `(batch,)` to an embedded token
            `(batch, embedding_dim)`. No gradient passes through it.
        numbers: Uniform random numbers in (0, 1) for `choose`, `(batch, length)`.
        return_weights: Whether to return the attention weights too.
        training: Whether dropout is active.

    Returns:
        The readouts, `(batch, length, output_dim)`. With `return_weights` a tuple of the readouts and the attention
        weights, `(batch, length, source_length)`, which are None without attention.

    Raises:
        ValueError: If an argument is out of range, or two arguments exclude each other.

    Example:

    >>> encoder = RecurrentEncoder(16, return_states=True)
    >>> decoder = RecurrentDecoder(16, attention="previous_state")
    >>> memory, states = encoder(keras.ops.ones((2, 7, 8)))
    >>> decoder(keras.ops.ones((2, 5, 8)), memory, keras.ops.ones((2, 7), "bool"), states).shape
    (2, 5, 16)
    """

    argument_attributes = {
        "attention": "attends",
        "window": "window_radius",
        "readout": "readout.kind",
        "readout_dim": "readout.dim",
        "dropout": "rate",
    }
    # each step needs the whole state, so dividing its matrices would need communication in each step
    weight_role = WHOLE

    def __init__(
        self,
        units: int,
        num_layers: int = 1,
        cell: str = "gru",
        reset_after: bool = True,
        attention: str = "none",
        score: str = "additive",
        score_units: int | None = None,
        window: int | None = None,
        window_center: str = "predicted",
        input_feeding: bool = False,
        context_input: bool = False,
        bridge: str = "dense",
        readout: str = "state",
        readout_dim: int | None = None,
        dropout: float = 0.0,
        **kwargs: Any,
    ) -> None:
        super().__init__(**kwargs)
        self.supports_masking = True
        for name, value, allowed in (("attention", attention, ATTENTIONS), ("bridge", bridge, BRIDGES)):
            if value not in allowed:
                raise ValueError(f"{name} must be one of {', '.join(map(repr, allowed))}, got {value!r}.")
        if input_feeding and attention != "current_state":
            raise ValueError(
                f"input_feeding must be False with attention={attention!r}, got True: it needs 'current_state'."
            )
        if context_input and attention != "none":
            raise ValueError(f"context_input must be False with attention={attention!r}, got True: it needs 'none'.")
        if bridge == "context" and not context_input:
            allowed = ", ".join(repr(name) for name in BRIDGES if name != "context")
            raise ValueError(f"bridge must be one of {allowed} with context_input=False, got 'context'.")
        if window is not None and attention == "none":
            raise ValueError(f"window must be None with attention='none', got {window}.")
        self.units = units
        self.num_layers = num_layers
        self.cell = cell
        self.reset_after = reset_after
        self.attends = attention
        self.score = score
        self.score_units = score_units
        self.window_radius = window
        self.window_center = window_center
        self.input_feeding = input_feeding
        self.context_input = context_input
        self.bridge = bridge
        self.rate = dropout
        self.seed_generator = keras.random.SeedGenerator()
        policy = self.dtype_policy
        self.recurrent_layers = [
            RecurrentLayer(units, cell, reset_after, dtype=policy, name=f"layer_{index}") for index in range(num_layers)
        ]
        self.attention = self.window = self.context_layer = None
        if attention != "none":
            width = {"units": score_units or units} if score == "additive" else {}
            self.attention = make_scored_attention(score, dtype=policy, name="attention", **width)
            if window is not None:
                self.window = AttentionWindow(window, window_center, dtype=policy, name="window")
        if context_input:
            self.context_layer = Dense(units, activation="tanh", dtype=policy, name="context")
        self.readout = RecurrentReadout(readout, readout_dim, dtype=policy, name="readout")
        self.bridges = []
        if bridge != "copy":
            self.bridges = [
                [
                    Dense(units, activation=None if number else "tanh", dtype=policy, name=f"bridge_{index}_{number}")
                    for number in range(layer.number_of_states)
                ]
                for index, layer in enumerate(self.recurrent_layers)
            ]

    @property
    def output_dim(self) -> int:
        """Width of the readouts."""
        return self.readout.output_dim

    @property
    def output_shape(self) -> tuple[int | None, ...]:
        """The shape of the readouts, for the summary of a model."""
        return (None, None, self.output_dim)

    def build(
        self,
        embedded_shape: tuple[int | None, ...],
        memory_shape: tuple[int | None, ...],
        memory_mask_shape: tuple[int | None, ...] | None = None,
        encoder_states_shape: Any = None,
        **other_shapes: Any,
    ) -> None:
        """Creates the weights.

        Args:
            embedded_shape: `(..., embedding_dim)`.
            memory_shape: `(..., memory_dim)`. With the bridge "backward", half of the width belongs to each direction.
        """
        embedding_dim, memory_dim = embedded_shape[-1], memory_shape[-1]
        if self.bridge == "copy" and memory_dim != self.units:
            raise ValueError(
                f"memory must have the width of the states, {self.units}, with bridge='copy'; got {memory_dim}."
            )
        context_dim = memory_dim if self.attention is not None else self.units if self.context_layer is not None else 0
        state_shape, sequence = (None, self.units), (None, None, memory_dim)
        if self.attention is not None:
            self.attention.build((None, None, self.units), sequence)
        if self.window is not None:
            self.window.build((None, None, self.units))
        if self.context_layer is not None:
            self.context_layer.build((None, memory_dim))
        self.readout.build(state_shape, (None, context_dim) if context_dim else None, (None, embedding_dim))
        extra = self.readout.output_dim if self.input_feeding else context_dim if self.attends != "current_state" else 0
        dim = embedding_dim + extra
        for layer in self.recurrent_layers:
            layer.build((None, None, dim))
            dim = self.units
        bridge_dim = {"backward": memory_dim // 2, "context": self.units}.get(self.bridge, memory_dim)
        for bridge in keras.tree.flatten(self.bridges):
            bridge.build((None, bridge_dim))

    def start(self, memory: Any, memory_mask: Any, encoder_states: list[Any]) -> tuple[dict[str, Any], dict[str, Any]]:
        """Returns the initial state of the steps, and the constant tensors that they read.

        Args:
            memory, memory_mask, encoder_states: See the call arguments.

        Returns:
            `(state, constants)`: nested structures of tensors with the batch on axis 0.
        """
        constants, context = {}, None
        if self.attention is not None:
            constants = {"memory": memory, "keys": self.attention.project_keys(memory), "mask": memory_mask}
        elif self.context_layer is not None:
            context = self.context_layer(_joined(encoder_states[-1], 0))
            constants = {"context": context}
        state = {"layers": self._initial_states(encoder_states, context)}
        batch = ops.shape(memory)[0]
        if self.input_feeding:
            state["readout"] = ops.zeros((batch, self.output_dim), dtype=self.compute_dtype)
        if self.window is not None and self.window.center == "monotonic":
            state["steps"] = ops.zeros((batch,), dtype="int32")
        return state, constants

    def _initial_states(self, encoder_states: list[Any], context: Any) -> list[list[Any]]:
        states = []
        for index, layer in enumerate(self.recurrent_layers):
            source = encoder_states[min(index, len(encoder_states) - 1)]
            if self.bridge == "backward":
                source = source[-1:]
            joined = [_joined(source, number) for number in range(layer.number_of_states)]
            if self.bridge == "context":
                joined = [context] * len(joined)
            if self.bridge != "copy":
                joined = [dense(x) for dense, x in zip(self.bridges[index], joined, strict=True)]
            states.append(joined)
        return keras.tree.map_structure(lambda state: ops.cast(state, self.compute_dtype), states)

    def make_advance(
        self, constants: dict[str, Any], embedding_dim: int
    ) -> tuple[Callable[[Any], Any], Callable[..., tuple[Any, ...]]]:
        """Returns the projection of embedded tokens to the gates of the first layer, and the function of one step.

        Args:
            constants: Second result of `start`.
            embedding_dim: Width of the embedded tokens.

        Returns:
            `project(embedded)` and `advance(projected, state, multipliers) -> (output of the last layer, context or
            None, weights or None, new states of the layers)`. `multipliers` are the dropout factors by layer.
        """
        first = self.recurrent_layers[0]
        steps = [layer.make_step() for layer in self.recurrent_layers]
        projections = [layer.make_projection(self.units) for layer in self.recurrent_layers[1:]]
        if self.attends == "previous_state":
            project_context = first.make_context_projection(constants["memory"].shape[-1])
        elif self.input_feeding:
            project_context = first.make_context_projection(self.output_dim)
        elif self.context_layer is not None:
            fixed = first.make_context_projection(self.units)(constants["context"])

        def advance(projected: Any, state: dict[str, Any], multipliers: dict[int, Any]) -> tuple[Any, ...]:
            context, weights, layers = constants.get("context"), None, []
            if self.attends == "previous_state":
                context, weights = self.attend(state["layers"][-1][0], constants, self._next_step(state))
                projected = projected + project_context(context)
            elif self.input_feeding:
                projected = projected + project_context(state["readout"])
            elif self.context_layer is not None:
                projected = projected + fixed
            output = None
            for index, step in enumerate(steps):
                if index:
                    projected = projections[index - 1](output * multipliers.get(index, 1))
                output, states = step(projected, state["layers"][index])
                layers.append(states)
            if self.attends == "current_state":
                context, weights = self.attend(output, constants, self._next_step(state))
            return output, context, weights, layers

        return first.make_projection(embedding_dim), advance

    def _next_step(self, state: dict[str, Any]) -> Any:
        return state["steps"] + 1 if "steps" in state else None

    def attend(self, query: Any, constants: dict[str, Any], step: Any) -> tuple[Any, Any]:
        """Returns the context and the attention weights of one or many queries.

        Args:
            query: `(batch, units)` or `(batch, length, units)`.
            constants: Second result of `start`.
            step: Number of the step, counted from 1, see `AttentionWindow`; None without a "monotonic" window.
        """
        mask, factors = constants["mask"], None
        if self.window is not None:
            mask, factors = self.window(query, mask, step=step)
        elif len(query.shape) == 3:
            mask = ops.expand_dims(ops.cast(mask, "bool"), 1)
        return self.attention(
            query, values=constants["memory"], projected_keys=constants["keys"], mask=mask, factors=factors
        )

    def new_state(self, state: dict[str, Any], layers: list[Any], readout: Any) -> dict[str, Any]:
        """Returns the state after a step.

        Args:
            state: The state before the step.
            layers: New states of the layers.
            readout: The readout of the step.
        """
        new = {"layers": layers}
        if "readout" in state:
            new["readout"] = readout
        if "steps" in state:
            new["steps"] = state["steps"] + 1
        return new

    def step(self, embedded: Any, state: dict[str, Any], constants: dict[str, Any]) -> tuple[Any, Any, dict[str, Any]]:
        """Runs one step, with one token per row.

        Args:
            embedded: `(batch, embedding_dim)`.
            state: The state returned by `start` or the last step.
            constants: Second result of `start`.

        Returns:
            The readout `(batch, output_dim)`, the attention weights `(batch, source_length)` or None, and the new
            state.
        """
        embedded = ops.cast(embedded, self.compute_dtype)
        project, advance = self.make_advance(constants, embedded.shape[-1])
        output, context, weights, layers = advance(project(embedded), state, {})
        readout = self.readout(output, context, embedded)
        return readout, weights, self.new_state(state, layers, readout)

    def call(
        self,
        embedded: Any,
        memory: Any,
        memory_mask: Any,
        encoder_states: Any,
        use_gold: Any = None,
        choose: Any = None,
        numbers: Any = None,
        return_weights: bool = False,
        training: bool | None = None,
    ) -> Any:
        state, constants = self.start(memory, memory_mask, encoder_states)
        embedded = ops.cast(embedded, self.compute_dtype)
        if use_gold is not None:
            if choose is None or numbers is None:
                raise ValueError("choose and numbers must be given with use_gold, got None.")
            own = (use_gold, choose, numbers)
            readout, weights = read_own_output(self, embedded, state, constants, *own, return_weights, training)
        elif self.attends == "previous_state" or self.input_feeding:
            readout, weights = read_in_loop(self, embedded, state, constants, return_weights, training)
        else:
            readout, weights = read_at_once(self, embedded, state, constants, training)
        return (readout, weights) if return_weights else readout

    def compute_mask(self, embedded: Any, previous_mask: Any) -> Any:
        return previous_mask, None  # readouts have the mask of the embedded tokens, weights have none


def _joined(directions: list[list[Any]], number: int) -> Any:
    """State tensor `number` of all directions of a layer, concatenated."""
    tensors = [states[number] for states in directions]
    return ops.concatenate(tensors, axis=-1) if len(tensors) > 1 else tensors[0]
