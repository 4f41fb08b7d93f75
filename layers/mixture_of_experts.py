"""Mixture of experts: a feed-forward network with top-k routing."""

import math
from typing import Any

import keras
from keras import ops

from layers.activations import GatedActivation, get_activation
from layers.constructor_arguments import ConfigFromArguments
from layers.dense import Dense
from layers.devices import batch_parts
from layers.dropout import Dropout
from layers.expert_blocks import assign_in_blocks, assign_within_capacity, combine, gather_blocks
from layers.feed_forward import FeedForward, require_gate
from layers.fusion import fused
from layers.initializers import separate
from layers.roles import COLUMNS, ROWS, WHOLE, Role
from layers.router import Router

# constructor arguments that are passed to the router
_OF_ROUTER = """
    experts_per_token normalize_weights load_balance_weight scoring bias_update_rate weight_scale z_loss_weight
    expert_groups groups_per_token
""".split()


@keras.saving.register_keras_serializable("keras_transformer_zoo")
class MixtureOfExperts(ConfigFromArguments, keras.layers.Layer):
    """Mixture of feed-forward experts: a `Router` sends each token to a few of them.

    `y = sum_{e in K} g_e expert_e(x)`. The router chooses the experts K of a token and their weights g, in float32. An
    expert is a network like `FeedForward`, plain or gated. With a shared expert, its output is added to `y` for every
    token.

    There are two ways to compute the experts. Their shapes do not depend on the routing, so XLA can compile both.

    * Dropless (`capacity_factor=None`): every token gets all its experts. Assignments are laid out in at most
      `2 * num_experts` blocks. A block belongs to one expert, and has as many rows as an expert gets on average. The
      cost is at most that of `2 * experts_per_token` experts per token for any loads.
    * With a capacity: in training each expert takes `ceil(capacity_factor * experts_per_token * tokens / num_experts)`
      tokens, in their order, first choices before second ones. Assignments over the capacity are dropped: they add
      nothing to `y`, and only the residual connection around the layer carries the token on. `dropped_share` is the
      fraction of assignments that the last training step dropped. At inference nothing is dropped, so that the output
      of a row does not depend on the rest of the batch or on the number of tokens per call.

    In training the router adds its losses. Padding is not routed: it takes no capacity, does not count in the losses,
    and its outputs are zero.

    The kernels of the experts are stacked in arrays `(num_experts, dim, intermediate_dim)`. LoRA and quantization of
    Keras do not act on them.

    Args:
        num_experts: Number of experts.
        intermediate_dim: Width between the two layers of an expert.
        experts_per_token: Number of experts of each token.
        activation: Name of the activation, see `layers.activations.get_activation`.
        gated: Whether experts multiply the activation with a second projection.
        use_bias: Whether the experts' projections add a bias.
        router_bias: Whether the router's logits have a bias.
        capacity_factor: Capacity of an expert in training, relative to the mean load, or None for dropless experts.
        scoring, normalize_weights, weight_scale, bias_update_rate, load_balance_weight, z_loss_weight, expert_groups,
            groups_per_token: See `Router`.
        shared_intermediate_dim: Width between the layers of the shared expert (DeepSeek, Qwen); None for none.
        shared_gate: Whether the output of the shared expert is multiplied by `sigmoid(x w)` (Qwen 2).
        dropout: Rate of the dropout between the activation and the second layer, in [0, 1).
        kernel_initializer: Initializer of each expert's kernels.
        output_initializer: Initializer of each expert's last kernel. Default `kernel_initializer`.
        bias_initializer: Initializer of the experts' biases.
        gate_limit: In gated experts, `gate(x)` is clipped to at most `gate_limit` before the activation, and `up(x)` to
            `[-gate_limit, gate_limit]`. None for no limit.
        up_offset: In gated experts, added to `up(x)` after the clipping.

    Call arguments:
        inputs: `(batch, length, dim)`.
        mask: True where a token is real, `(batch, length)`.
        training: Whether dropout, the capacity and the losses are active.

    Returns:
        `(batch, length, dim)`.

    Raises:
        ValueError: If a number is out of range, `experts_per_token` is more than `num_experts`, or `activation` is
            unknown.

    Example:

    >>> layer = MixtureOfExperts(num_experts=4, intermediate_dim=32)
    >>> layer(keras.ops.ones((2, 5, 16))).shape
    (2, 5, 16)

    Reference:
        Shazeer et al. 2017, "Outrageously Large Neural Networks", section 2; Lepikhin et al. 2021, "GShard", section
        2.2; Fedus et al. 2022, "Switch Transformers", section 2.2, equations 2 to 6; dropless blocks: Gale et al. 2023,
        "MegaBlocks", section 4; sigmoid, bias, shared experts: DeepSeek-AI 2024, "DeepSeek-V3", section 2.1.2,
        equations 12 to 20; z-loss: Zoph et al. 2022, "ST-MoE", section 3.3, equation 5.
    """

    argument_attributes = {
        **{name: f"router.{name}" for name in _OF_ROUTER},
        "router_bias": "router.use_bias",
        "shared_gate": "has_shared_gate",
    }

    def __init__(
        self,
        num_experts: int,
        intermediate_dim: int,
        experts_per_token: int = 2,
        activation: str = "silu",
        gated: bool = True,
        use_bias: bool = False,
        normalize_weights: bool | None = None,
        capacity_factor: float | None = None,
        load_balance_weight: float = 0.01,
        scoring: str = "softmax",
        bias_update_rate: float | None = None,
        weight_scale: float = 1.0,
        z_loss_weight: float = 0.0,
        expert_groups: int | None = None,
        groups_per_token: int | None = None,
        shared_intermediate_dim: int | None = None,
        shared_gate: bool = False,
        router_bias: bool = False,
        gate_limit: float | None = None,
        up_offset: float = 0.0,
        dropout: float = 0.0,
        kernel_initializer: Any = "glorot_uniform",
        output_initializer: Any = None,
        bias_initializer: Any = "zeros",
        **kwargs: Any,
    ) -> None:
        super().__init__(**kwargs)
        for name, value in (("num_experts", num_experts), ("intermediate_dim", intermediate_dim)):
            if value < 1:
                raise ValueError(f"{name} must be at least 1, got {value}.")
        if capacity_factor is not None and capacity_factor <= 0:
            raise ValueError(f"capacity_factor must be above 0, or None for no limit, got {capacity_factor}.")
        if shared_intermediate_dim is not None and shared_intermediate_dim < 1:
            raise ValueError(f"shared_intermediate_dim must be at least 1 or None, got {shared_intermediate_dim}.")
        if shared_gate and shared_intermediate_dim is None:
            raise ValueError("shared_gate must be False without shared_intermediate_dim, got True.")
        require_gate(gated, gate_limit, up_offset)
        if not 0 <= dropout < 1:
            raise ValueError(f"dropout must be at least 0 and below 1, got {dropout}.")
        self.num_experts = num_experts
        self.intermediate_dim = intermediate_dim
        self.activation = activation
        self.gated = gated
        self.use_bias = use_bias
        self.capacity_factor = capacity_factor
        self.shared_intermediate_dim = shared_intermediate_dim
        self.has_shared_gate = shared_gate
        self.gate_limit = gate_limit
        self.up_offset = up_offset
        self.dropout = dropout
        self.kernel_initializer = keras.initializers.get(kernel_initializer)
        self.output_initializer = keras.initializers.get(output_initializer)
        self.bias_initializer = keras.initializers.get(bias_initializer)
        self.supports_masking = True
        self._activation_function = (
            GatedActivation(activation, gate_limit, up_offset) if gated else get_activation(activation)
        )
        self.router = Router(
            num_experts,
            experts_per_token,
            scoring,
            normalize_weights,
            weight_scale,
            bias_update_rate,
            load_balance_weight,
            z_loss_weight,
            use_bias=router_bias,
            expert_groups=expert_groups,
            groups_per_token=groups_per_token,
            dtype=keras.backend.result_type(self.variable_dtype, "float32"),
            name="router",
        )
        self.dropout_layer = Dropout(dropout, dtype=self.dtype_policy, name="dropout") if dropout else None
        self.shared_experts = self.shared_gate = None
        if shared_intermediate_dim is not None:
            self.shared_experts = FeedForward(
                shared_intermediate_dim,
                activation,
                gated,
                use_bias,
                dropout,
                # seeds other than those of the routed experts
                kernel_initializer=separate(self.kernel_initializer, 3 * num_experts),
                output_initializer=self.output_initializer and separate(self.output_initializer, 3 * num_experts),
                bias_initializer=self.bias_initializer,
                gate_limit=gate_limit,
                up_offset=up_offset,
                dtype=self.dtype_policy,
                name="shared_experts",
            )
        if shared_gate:
            self.shared_gate = Dense(1, use_bias=False, dtype=self.dtype_policy, name="shared_gate")

    @property
    def weight_roles(self) -> dict[str, Role]:
        """The roles of its weights, see `layers.roles`: each device has a part of the width of all experts.

        Whole experts on each device would be slower: the expert of a block is known too late to send rows to devices,
        so experts would be sent instead.
        """
        columns = {f"{name}_{kind}": COLUMNS for name in ("gate", "up") for kind in ("kernel", "bias")}
        return {**columns, "down_kernel": ROWS, "down_bias": WHOLE, "shared_gate": WHOLE, "dropped_share": WHOLE}

    def build(self, input_shape: tuple[int | None, ...]) -> None:
        self.router.build(input_shape)
        if self.shared_experts is not None:
            self.shared_experts.build(input_shape)
        if self.shared_gate is not None:
            self.shared_gate.build(input_shape)
        dim, hidden = input_shape[-1], self.intermediate_dim
        self.gate_kernel: keras.Variable | None
        self.gate_bias: keras.Variable | None
        self.gate_kernel, self.gate_bias = self._add_projection("gate", dim, hidden) if self.gated else (None, None)
        self.up_kernel, self.up_bias = self._add_projection("up", dim, hidden)
        self.down_kernel, self.down_bias = self._add_projection("down", hidden, dim)
        if self.capacity_factor is not None:
            self.dropped_share = self.add_weight(
                name="dropped_share",
                shape=(),
                initializer="zeros",
                trainable=False,
                dtype="float32",
                aggregation="mean",  # replicas see different rows
            )

    def _add_projection(self, name: str, input_dim: int, output_dim: int) -> tuple[Any, Any]:
        shape = (self.num_experts, input_dim, output_dim)
        initializer = (name == "down" and self.output_initializer) or self.kernel_initializer
        first = ("gate", "up", "down").index(name) * self.num_experts
        kernel = self.add_weight(
            name=f"{name}_kernel", shape=shape, initializer=_stacked(initializer, first, self.num_experts)
        )
        if not self.use_bias:
            return kernel, None
        shape = (self.num_experts, 1, output_dim)
        initializer = separate(self.bias_initializer, first)
        return kernel, self.add_weight(name=f"{name}_bias", shape=shape, initializer=initializer)

    def call(self, inputs: Any, mask: Any = None, training: bool | None = None) -> Any:
        tokens = ops.reshape(inputs, (-1, inputs.shape[-1]))
        token_mask = None
        if mask is not None:
            token_mask = ops.reshape(ops.convert_to_tensor(mask, dtype="bool"), (-1, 1))
            tokens = ops.where(token_mask, tokens, ops.cast(0, tokens.dtype))
        weights, assignments = self.router(tokens, padding_mask=token_mask, training=training)
        parts = batch_parts(ops.shape(inputs)[0])
        if training and self.capacity_factor is not None:
            places = assign_within_capacity(assignments, self._capacity(ops.shape(tokens)[0]))
            self._count_dropped(assignments, places.has_slot)
            outputs = self._apply_experts(gather_blocks(tokens, places), None, training)
            outputs = combine(outputs, places.slots, weights)  # (tokens, dim)
        elif parts == 1:
            blocks, experts, slots = _in_blocks((tokens, assignments))  # (blocks, rows, dim)
            outputs = combine(self._apply_experts(blocks, experts, training), slots, weights)
        else:
            outputs = self._in_parts(parts, tokens, weights, assignments, training)
        if self.shared_experts is not None:
            shared = self.shared_experts(tokens, training=training)
            if self.shared_gate is not None:
                shared = shared * ops.sigmoid(self.shared_gate(tokens))
            outputs = outputs + (
                shared if token_mask is None else ops.where(token_mask, shared, ops.cast(0, shared.dtype))
            )
        return ops.reshape(outputs, ops.shape(inputs))

    def _in_parts(self, parts: int, tokens: Any, weights: Any, assignments: Any, training: bool | None) -> Any:
        """The output of the routed experts if devices have parts of the batch. Each part has its own blocks."""

        def divide(values: Any) -> Any:
            return ops.reshape(values, (*values.shape[:-2], parts, -1, values.shape[-1]))

        assignments = ops.swapaxes(divide(assignments), 0, 1)  # (parts, choice, token, expert)
        blocks, experts, slots = ops.vectorized_map(_in_blocks, (divide(tokens), assignments))
        outputs = self._apply_experts(blocks, experts, training)  # (parts, blocks, rows, dim)
        outputs = ops.vectorized_map(lambda part: combine(*part), (outputs, slots, divide(weights)))
        return ops.reshape(outputs, ops.shape(tokens))

    def _capacity(self, num_tokens: Any) -> Any:
        """Number of rows of an expert, for a number of tokens that is an integer or a scalar tensor."""
        assignments = self.router.experts_per_token * num_tokens
        if isinstance(assignments, int):
            return math.ceil(self.capacity_factor * assignments / self.num_experts)
        return ops.cast(ops.ceil(self.capacity_factor * ops.cast(assignments, "float32") / self.num_experts), "int32")

    def _apply_experts(self, blocks: Any, block_experts: Any, training: bool | None) -> Any:
        """The experts applied to the rows of their blocks: `(..., blocks, rows, dim)` to the same shape."""

        def project(x: Any, kernel: Any, bias: Any) -> Any:
            if block_experts is not None:
                kernel = ops.take(kernel, block_experts, axis=0)
                bias = None if bias is None else ops.take(bias, block_experts, axis=0)
            x = ops.matmul(x, kernel)
            return x if bias is None else x + bias

        hidden = project(blocks, self.up_kernel, self.up_bias)
        activation = fused(self._activation_function) if training else self._activation_function
        if self.gated:
            hidden = activation(project(blocks, self.gate_kernel, self.gate_bias), hidden)
        else:
            hidden = activation(hidden)
        if self.dropout_layer is not None:
            hidden = self.dropout_layer(hidden, training=training)
        return project(hidden, self.down_kernel, self.down_bias)

    def _count_dropped(self, assignments: Any, placed: Any) -> None:
        total = ops.maximum(ops.sum(assignments), 1)
        dropped = ops.sum(assignments) - ops.sum(ops.cast(placed, "int32"))
        self.dropped_share.assign(ops.cast(dropped, "float32") / ops.cast(total, "float32"))

    def compute_output_shape(self, input_shape: tuple[int | None, ...]) -> tuple[int | None, ...]:
        return input_shape


def _in_blocks(part: tuple[Any, Any]) -> tuple[Any, Any, Any]:
    """From `(tokens, assignments)` to the blocks of tokens, the expert of each block, and the slots of assignments."""
    tokens, assignments = part
    places = assign_in_blocks(assignments)
    return gather_blocks(tokens, places), places.experts, places.slots


def _stacked(initializer: Any, first: int, num_kernels: int) -> Any:
    """An initializer of stacked kernels that draws one kernel at a time.

    Initializers would take the first of three axes for the window of a convolution.

    Args:
        initializer: Initializer of one kernel.
        first: Index of the first kernel among all kernels of the layer, each of which has its own draw.
        num_kernels: Number of kernels.
    """
    # the seeds are drawn now, as for all other weights: values may be drawn later, in another order
    own = [separate(initializer, first + index) for index in range(num_kernels)]

    def initialize(shape: Any, dtype: Any = None) -> Any:
        return ops.stack([draw(shape[1:], dtype=dtype) for draw in own])

    return initialize
