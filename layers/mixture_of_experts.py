"""A feed-forward network of which each token uses a few parts only: top-k routed experts."""

import math

import keras
from keras import ops

from layers.activations import get_activation
from layers.dropout import Dropout
from layers.feed_forward import FeedForward
from layers.initializers import separate

SCORINGS = ("softmax", "sigmoid")


@keras.saving.register_keras_serializable("keras_transformer_zoo")
class MixtureOfExperts(keras.layers.Layer):
    """Feed-forward experts; a router sends each token to the `experts_per_token` that it finds most probable.

    With `p = softmax(W_r x)` in float32 and K the experts of the k highest probabilities:
    `y = sum_{e in K} g_e expert_e(x)`, where `g_e = p_e`, or `p_e / sum_{j in K} p_j` with `normalize_weights`.
    Experts are the network of `FeedForward`, plain or gated.

    With `scoring="sigmoid"` each expert is scored on its own, `p = sigmoid(W_r x)`. With `bias_update_rate` K are the
    experts of the highest `p_e + b_e`, while g stays as it is; at each training step the bias b of an expert with more
    than the mean load falls by this rate and that of one with less rises (DeepSeek-V3), which balances the loads
    without a loss. With shared experts, `y` also has the output of a network that every token passes.

    Two ways to share the work, both with shapes that do not depend on the routing (so that XLA can compile them):

    * dropless (`capacity_factor=None`): every token gets all its experts. Assignments are laid out in at most
      `2 * num_experts` blocks of as many rows as an expert gets on average; each block belongs to one expert. The cost
      is at most that of `2 * experts_per_token` experts per token, however unequal the loads are.
    * with a capacity: in training each expert takes `ceil(capacity_factor * experts_per_token * tokens / num_experts)`
      tokens, in their order, first choices before second ones. What is over the capacity is dropped: it adds nothing to
      `y` (the residual connection around the layer carries the token on). `dropped_share` holds the share of
      assignments that the last training step dropped. At inference nothing is dropped: what a row gets must not depend
      on the rest of the batch, nor on how many tokens of it are passed at a time.

    In training the load-balancing loss `load_balance_weight * num_experts * sum_e f_e P_e` is added with `add_loss`:
    `f_e` is the share of assignments that goes to expert e and `P_e` the mean of `p_e` (of sigmoids: divided by
    their sum over all experts). It is `load_balance_weight` at perfect balance. With `z_loss_weight` so is
    `z_loss_weight * mean(logsumexp(W_r x)^2)`, which keeps the logits of the router small. Padding is not routed: it
    takes no capacity, does not count in the losses and gets zeros.

    The experts' kernels are stacked in arrays `(num_experts, dim, intermediate_dim)`, which LoRA and quantization of
    Keras do not act on.

    Args:
        num_experts: number of experts.
        intermediate_dim: width between the two layers of an expert.
        experts_per_token: k.
        activation: a name that `layers.activations.get_activation` knows.
        gated: whether experts multiply the activation with a second projection.
        use_bias: whether the experts' projections add a bias. The router has none.
        normalize_weights: whether the weights of the chosen experts are made to sum to one. Default: where a token has
            more than one expert. (With one, the weight would be the constant 1 and the router learn nothing.)
        capacity_factor: room per expert in training relative to the mean load, or `None` for the dropless way.
        load_balance_weight: factor of the load-balancing loss; 0 adds none.
        scoring: "softmax" or "sigmoid", how the router scores experts.
        bias_update_rate: step of the bias that balances the loads; 0 for a bias that is kept as it is; `None` for no
            bias.
        weight_scale: factor on the weights of the chosen experts (routed scaling factor of DeepSeek).
        z_loss_weight: factor of the loss on the router's logits; 0 adds none.
        num_shared_experts: number of experts that every token passes, in one network of their joint width.
        dropout: rate of dropout between the activation and the second layer.
        kernel_initializer: of the experts' kernels, for each expert as for a single one.
        output_initializer: of the experts' last kernels, where it differs.
        bias_initializer: of the experts' biases.

    Call arguments:
        inputs: `(batch, length, dim)`.
        mask: true where a token is real, `(batch, length)`.
        training: whether dropout and the load-balancing loss are active.

    Returns:
        `(batch, length, dim)`.

    Raises:
        ValueError: if a number is out of range, `experts_per_token` is more than `num_experts`, `activation` unknown.

    Example:

    >>> layer = MixtureOfExperts(num_experts=4, intermediate_dim=32)
    >>> layer(keras.ops.ones((2, 5, 16))).shape
    (2, 5, 16)

    Source: Shazeer et al. 2017, section 2; Lepikhin et al. 2021 (GShard), section 2.2; Fedus et al. 2022 (Switch),
    section 2.2, equations 2 to 6; dropless blocks after Gale et al. 2023 (MegaBlocks), section 4; sigmoid, bias, shared
    experts: DeepSeek-AI 2024 (DeepSeek-V3), section 2.1.2, equations 12 to 20; z-loss: Zoph et al. 2022 (ST-MoE),
    section 3.3, equation 5.
    """

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
        num_shared_experts: int = 0,
        dropout: float = 0.0,
        kernel_initializer="glorot_uniform",
        output_initializer=None,
        bias_initializer="zeros",
        **kwargs,
    ):
        super().__init__(**kwargs)
        for name, value in (("num_experts", num_experts), ("intermediate_dim", intermediate_dim)):
            if value < 1:
                raise ValueError(f"`{name}` must be at least 1, got {value}.")
        if not 1 <= experts_per_token <= num_experts:
            raise ValueError(
                f"`experts_per_token` must be from 1 to `num_experts`={num_experts}, got {experts_per_token}."
            )
        if capacity_factor is not None and capacity_factor <= 0:
            raise ValueError(f"`capacity_factor` must be above 0, or None for no limit, got {capacity_factor}.")
        if scoring not in SCORINGS:
            raise ValueError(f"`scoring` must be one of {', '.join(map(repr, SCORINGS))}, got {scoring!r}.")
        for name, value in (
            ("load_balance_weight", load_balance_weight),
            ("bias_update_rate", bias_update_rate or 0),
            ("z_loss_weight", z_loss_weight),
            ("num_shared_experts", num_shared_experts),
        ):
            if value < 0:
                raise ValueError(f"`{name}` must be at least 0, got {value}.")
        if weight_scale <= 0:
            raise ValueError(f"`weight_scale` must be above 0, got {weight_scale}.")
        if not 0 <= dropout < 1:
            raise ValueError(f"`dropout` must be at least 0 and below 1, got {dropout}.")
        self.num_experts = num_experts
        self.intermediate_dim = intermediate_dim
        self.experts_per_token = experts_per_token
        self.activation = activation
        self.gated = gated
        self.use_bias = use_bias
        self.normalize_weights = experts_per_token > 1 if normalize_weights is None else normalize_weights
        self.capacity_factor = capacity_factor
        self.load_balance_weight = load_balance_weight
        self.scoring = scoring
        self.bias_update_rate = bias_update_rate
        self.weight_scale = weight_scale
        self.z_loss_weight = z_loss_weight
        self.num_shared_experts = num_shared_experts
        self.dropout = dropout
        self.kernel_initializer = keras.initializers.get(kernel_initializer)
        self.output_initializer = keras.initializers.get(output_initializer)
        self.bias_initializer = keras.initializers.get(bias_initializer)
        self.supports_masking = True
        self._activation_function = get_activation(activation)
        # Probabilities that differ little decide who computes what: half precision is not enough for them.
        self.router = keras.layers.Dense(
            num_experts, use_bias=False, dtype=keras.backend.result_type(self.variable_dtype, "float32"), name="router"
        )
        self.dropout_layer = Dropout(dropout, dtype=self.dtype_policy, name="dropout")
        self.shared_experts = None
        if num_shared_experts:
            self.shared_experts = FeedForward(
                num_shared_experts * intermediate_dim,
                activation,
                gated,
                use_bias,
                dropout,
                # not the numbers of the routed experts
                kernel_initializer=separate(self.kernel_initializer, 3 * num_experts),
                output_initializer=self.output_initializer and separate(self.output_initializer, 3 * num_experts),
                bias_initializer=self.bias_initializer,
                dtype=self.dtype_policy,
                name="shared_experts",
            )

    def build(self, input_shape):
        self.router.build(input_shape)
        if self.shared_experts is not None:
            self.shared_experts.build(input_shape)
        self.router_bias = None
        if self.bias_update_rate is not None:
            self.router_bias = self.add_weight(
                name="router_bias",
                shape=(self.num_experts,),
                initializer="zeros",
                trainable=False,
                dtype=self.router.compute_dtype,
                autocast=False,
            )
        dim, hidden = input_shape[-1], self.intermediate_dim
        self.gate_kernel, self.gate_bias = self._add_projection("gate", dim, hidden) if self.gated else (None, None)
        self.up_kernel, self.up_bias = self._add_projection("up", dim, hidden)
        self.down_kernel, self.down_bias = self._add_projection("down", hidden, dim)
        if self.capacity_factor is not None:
            self.dropped_share = self.add_weight(
                name="dropped_share", shape=(), initializer="zeros", trainable=False, dtype="float32"
            )

    def _add_projection(self, name, input_dim, output_dim):
        shape = (self.num_experts, input_dim, output_dim)
        initializer = (name == "down" and self.output_initializer) or self.kernel_initializer
        first = ("gate", "up", "down").index(name) * self.num_experts
        kernel = self.add_weight(name=f"{name}_kernel", shape=shape, initializer=_stacked(initializer, first))
        if not self.use_bias:
            return kernel, None
        shape = (self.num_experts, 1, output_dim)
        initializer = separate(self.bias_initializer, first)
        return kernel, self.add_weight(name=f"{name}_bias", shape=shape, initializer=initializer)

    def call(self, inputs, mask=None, training=None):
        tokens = ops.reshape(inputs, (-1, inputs.shape[-1]))
        real = None
        if mask is not None:
            real = ops.reshape(ops.convert_to_tensor(mask, dtype="bool"), (-1, 1))
            tokens = ops.where(real, tokens, ops.cast(0, tokens.dtype))
        logits = self.router(tokens)
        scores = ops.softmax(logits, axis=-1) if self.scoring == "softmax" else ops.sigmoid(logits)
        weights, experts = self._choose(scores)
        # (choice, token, expert), 1 where an assignment is: first choices come before second ones.
        assignments = ops.one_hot(ops.transpose(experts), self.num_experts, dtype="int32")
        if real is not None:
            assignments = assignments * ops.cast(real, "int32")
        has_capacity = training and self.capacity_factor is not None
        place = self._place_within_capacity if has_capacity else self._place_in_blocks
        slots, block_experts, num_blocks, block_size = place(assignments)
        if training:
            self._add_losses(assignments, logits, scores, real)
            if self.bias_update_rate:
                self._update_router_bias(assignments)
            if has_capacity:
                self._count_dropped(assignments, slots < num_blocks * block_size)
        blocks = _gather_blocks(tokens, slots, num_blocks, block_size)
        outputs = self._apply_experts(blocks, block_experts, training)
        outputs = _combine(outputs, slots, weights)
        if self.shared_experts is not None:
            shared = self.shared_experts(tokens, training=training)
            outputs = outputs + (shared if real is None else ops.where(real, shared, ops.cast(0, shared.dtype)))
        return ops.reshape(outputs, ops.shape(inputs))

    def _choose(self, scores):
        """Weights and numbers of each token's experts, `(token, experts_per_token)`, best first."""
        if self.router_bias is None:
            weights, experts = ops.top_k(scores, self.experts_per_token)
        else:
            _, experts = ops.top_k(scores + self.router_bias, self.experts_per_token)
            weights = ops.take_along_axis(scores, experts, axis=-1)
        if self.normalize_weights:
            total = ops.sum(weights, axis=-1, keepdims=True)
            weights = weights / (total if self.scoring == "softmax" else total + 1e-20)
        return (weights if self.weight_scale == 1.0 else self.weight_scale * weights), experts

    def _place_within_capacity(self, assignments):
        """One block per expert, in which assignments stand in their order until it is full.

        Returns:
            The row of each assignment `(choice, token)`, the number of rows for one that has none; the expert of each
            block, here `None`: the experts in their order; number of blocks; rows per block.
        """
        positions, _ = _order_within_experts(assignments)
        capacity = self._capacity(ops.shape(assignments)[1])
        slots = ops.arange(self.num_experts, dtype="int32") * capacity + positions
        kept = assignments * ops.cast(positions < capacity, "int32")
        return _select_slots(slots, kept, self.num_experts * capacity), None, self.num_experts, capacity

    def _capacity(self, num_tokens):
        """Rows of an expert, for a number of tokens that is an integer or a scalar tensor."""
        assignments = self.experts_per_token * num_tokens
        if isinstance(assignments, int):
            return math.ceil(self.capacity_factor * assignments / self.num_experts)
        return ops.cast(ops.ceil(self.capacity_factor * ops.cast(assignments, "float32") / self.num_experts), "int32")

    def _place_in_blocks(self, assignments):
        """As many blocks for each expert as its assignments fill; the last one of each may have free rows.

        With blocks of the mean load (rounded up) there are fewer than `2 * num_experts`, whatever the loads are: at
        most `num_experts` full ones, and fewer than that many begun. Returns what `_place_within_capacity` does.
        """
        positions, loads = _order_within_experts(assignments)
        num_tokens = ops.shape(assignments)[1]
        num_assignments = self.experts_per_token * num_tokens
        block_size = (num_assignments + self.num_experts - 1) // self.num_experts
        num_blocks = 2 * self.num_experts - 1
        if isinstance(num_assignments, int):
            num_blocks = min(num_blocks, num_assignments)  # one token in a decoding step
        blocks_per_expert = (loads + block_size - 1) // block_size
        ends = ops.cumsum(blocks_per_expert)
        slots = (ends - blocks_per_expert) * block_size + positions
        block_experts = ops.sum(ops.expand_dims(ops.arange(num_blocks), 1) >= ends, axis=1)
        block_experts = ops.minimum(block_experts, self.num_experts - 1)
        return _select_slots(slots, assignments, num_blocks * block_size), block_experts, num_blocks, block_size

    def _apply_experts(self, blocks, block_experts, training):
        """The expert of each block on its rows: `(blocks, rows, dim)` to the same shape."""

        def project(x, kernel, bias):
            if block_experts is not None:
                kernel = ops.take(kernel, block_experts, axis=0)
                bias = None if bias is None else ops.take(bias, block_experts, axis=0)
            x = ops.matmul(x, kernel)
            return x if bias is None else x + bias

        hidden = project(blocks, self.up_kernel, self.up_bias)
        if self.gated:
            hidden = hidden * self._activation_function(project(blocks, self.gate_kernel, self.gate_bias))
        else:
            hidden = self._activation_function(hidden)
        return project(self.dropout_layer(hidden, training=training), self.down_kernel, self.down_bias)

    def _add_losses(self, assignments, logits, scores, real):
        dtype = scores.dtype
        counts = ops.cast(ops.sum(assignments, axis=(0, 1)), dtype)
        total = ops.maximum(ops.sum(counts), 1.0)  # experts_per_token for each real token
        real = 1.0 if real is None else ops.cast(real, dtype)
        if self.load_balance_weight:
            if self.scoring == "sigmoid":
                scores = scores / (ops.sum(scores, axis=-1, keepdims=True) + 1e-20)
            summed = ops.sum(counts * ops.sum(scores * real, axis=0)) * self.experts_per_token
            self.add_loss(self.load_balance_weight * self.num_experts * summed / ops.square(total))
        if self.z_loss_weight:
            squares = ops.square(ops.logsumexp(logits, axis=-1, keepdims=True)) * real
            self.add_loss(self.z_loss_weight * self.experts_per_token * ops.sum(squares) / total)

    def _update_router_bias(self, assignments):
        loads = ops.cast(ops.sum(assignments, axis=(0, 1)), self.router_bias.dtype)
        self.router_bias.assign(self.router_bias + self.bias_update_rate * ops.sign(ops.mean(loads) - loads))

    def _count_dropped(self, assignments, placed):
        total = ops.maximum(ops.sum(assignments), 1)
        dropped = ops.sum(assignments) - ops.sum(ops.cast(placed, "int32"))
        self.dropped_share.assign(ops.cast(dropped, "float32") / ops.cast(total, "float32"))

    def compute_output_shape(self, input_shape):
        return input_shape

    def get_config(self):
        return {
            **super().get_config(),
            "num_experts": self.num_experts,
            "intermediate_dim": self.intermediate_dim,
            "experts_per_token": self.experts_per_token,
            "activation": self.activation,
            "gated": self.gated,
            "use_bias": self.use_bias,
            "normalize_weights": self.normalize_weights,
            "capacity_factor": self.capacity_factor,
            "load_balance_weight": self.load_balance_weight,
            "scoring": self.scoring,
            "bias_update_rate": self.bias_update_rate,
            "weight_scale": self.weight_scale,
            "z_loss_weight": self.z_loss_weight,
            "num_shared_experts": self.num_shared_experts,
            "dropout": self.dropout,
            "kernel_initializer": keras.initializers.serialize(self.kernel_initializer),
            "output_initializer": keras.initializers.serialize(self.output_initializer),
            "bias_initializer": keras.initializers.serialize(self.bias_initializer),
        }


def _stacked(initializer, first):
    """One kernel after the other: initializers would take the first of three axes for a convolution's window.

    Args:
        initializer: Of one kernel.
        first: Number of the first kernel among all kernels of the layer, each of which has its own draw.
    """

    def initialize(shape, dtype=None):
        kernels = [separate(initializer, first + index)(shape[1:], dtype=dtype) for index in range(shape[0])]
        return ops.stack(kernels)

    return initialize


def _order_within_experts(assignments):
    """The place of each assignment among those of its expert, and how many each expert has.

    Args:
        assignments: `(choice, token, expert)`, 0 or 1.

    Returns:
        Integers `(choice, token, expert)`, meaningful where there is an assignment, and `(expert,)`.
    """
    flat = ops.reshape(assignments, (-1, assignments.shape[-1]))
    positions = ops.cumsum(flat, axis=0) - flat
    return ops.reshape(positions, ops.shape(assignments)), ops.sum(flat, axis=0)


def _select_slots(slots, assignments, num_slots):
    """The slot of each `(choice, token)` out of those for every expert; `num_slots` where it has no assignment."""
    assigned = ops.sum(assignments, axis=-1)
    return ops.sum(slots * assignments, axis=-1) + (1 - assigned) * num_slots


def _gather_blocks(tokens, slots, num_blocks, block_size):
    """Copies of the tokens in their slots, `(num_blocks, block_size, dim)`; free slots hold some token, unused."""
    num_slots = num_blocks * block_size
    token_indices = ops.broadcast_to(ops.arange(ops.shape(slots)[1], dtype="int32"), ops.shape(slots))
    # One slot more, where what has no slot goes.
    token_of_slot = ops.scatter_update(
        ops.zeros((num_slots + 1,), dtype="int32"), ops.reshape(slots, (-1, 1)), ops.reshape(token_indices, (-1,))
    )
    rows = ops.take(tokens, token_of_slot[:num_slots], axis=0)
    return ops.reshape(rows, (num_blocks, block_size, tokens.shape[-1]))


def _combine(outputs, slots, weights):
    """Sum over the choices of each token, weighted; what has no slot adds nothing."""
    rows = ops.reshape(outputs, (-1, outputs.shape[-1]))
    num_slots = ops.shape(rows)[0]
    total = 0
    for choice in range(weights.shape[-1]):
        slot = slots[choice]
        weight = ops.where(slot < num_slots, weights[:, choice], ops.cast(0, weights.dtype))
        row = ops.take(rows, ops.minimum(slot, num_slots - 1), axis=0)
        total = total + row * ops.cast(ops.expand_dims(weight, -1), rows.dtype)
    return total
