"""Selective state spaces in the place of attention: the mixer of Mamba 2."""

from typing import Any

import keras
import numpy as np
from keras import ops

from layers.causal_convolution import CausalConvolution
from layers.causal_mixer import MixerView, StateMixer
from layers.delta_rule import delta_rule
from layers.fusion import sizes
from layers.norms import RMSNorm
from layers.padding import hide_padding
from layers.roles import WHOLE, Role

# steps of new heads, so that some remember long and others are fast
_FIRST_STEPS = (1e-3, 1e-1)


@keras.saving.register_keras_serializable("keras_transformer_zoo")
class StateSpace(StateMixer):
    """Heads with a state that fades by a step which each token chooses, as in Mamba 2.

    Values `x`, keys `B` and queries `C` pass a causal convolution and a SiLU. For a step
    `t = softplus(step(inputs) + step_bias)`, within `step_limit`, and a rate `a = exp(log_rate)`, the state `S` of a
    head, a matrix `(key_dim, value_dim)`, becomes `exp(-t a) S + t B x^T`. The token reads `S^T C + skip x`. What heads
    read is multiplied with `silu(gate(inputs))`, normed by groups of heads that share keys, and projected.

    Time and memory of a token do not grow with its position. A cache holds the state of each row and the last
    `kernel_size` inputs of the convolution. A state cannot be taken back to an earlier token.

    Args:
        num_heads: Number of heads, each of which has a state.
        key_dim: Width of `B` and `C`, the size of the state (`N` in the paper).
        value_dim: Width of a head (`P` in the paper); None for `key_dim`.
        num_key_heads: Number of groups: heads of a group share `B` and `C`; None for `num_heads`.
        kernel_size: Number of positions that the convolution sees.
        use_bias: Whether the linear maps have biases.
        convolution_bias: Whether the convolution has one.
        step_limit: The least and the greatest step; None for no greatest one.
        epsilon: Of the norm of what heads read.
        kernel_initializer: Initial weights of the linear maps.
        output_initializer: Initial weights of the map `output`; None for `kernel_initializer`.
        bias_initializer: Initial biases of the linear maps.

    Call arguments:
        inputs, padding_mask, lengths, positions, segment_ids, sequence_length, cache, cache_index, view, mask: See
            `layers.ShortConvolution`. Padding changes no state.

    Returns:
        `(batch, length, width)`; with a cache a tuple of this and the written cache.

    Raises:
        ValueError: If an argument is out of range, or arguments exclude each other.

    Example:

    >>> StateSpace(4, key_dim=16, value_dim=8)(keras.ops.ones((2, 5, 32))).shape
    (2, 5, 32)

    Reference:
        Dao and Gu 2024, "Transformers are SSMs: Generalized Models and Efficient Algorithms Through Structured State
        Space Duality", sections 5.2 (dual form), 6 (chunks) and 7 (block).
    """

    def __init__(
        self,
        num_heads: int,
        key_dim: int,
        value_dim: int | None = None,
        num_key_heads: int | None = None,
        *,
        kernel_size: int = 4,
        use_bias: bool = False,
        convolution_bias: bool = True,
        step_limit: tuple[float, float | None] = (0.0, None),
        epsilon: float = 1e-6,
        kernel_initializer: Any = "glorot_uniform",
        output_initializer: Any = None,
        bias_initializer: Any = "zeros",
        **kwargs: Any,
    ) -> None:
        super().__init__(**kwargs)
        self.keep_heads(num_heads, key_dim, value_dim, num_key_heads)
        least, greatest = step_limit
        if not (least >= 0 and (greatest is None or greatest > least)):
            raise ValueError(
                "step_limit must be a number of at least 0 and a greater one, or None for the second, got "
                f"{step_limit!r}."
            )
        self.kernel_size = kernel_size
        self.use_bias = use_bias
        self.convolution_bias = convolution_bias
        self.step_limit = (least, greatest)
        self.epsilon = epsilon
        self.kernel_initializer = keras.initializers.get(kernel_initializer)
        self.output_initializer = keras.initializers.get(output_initializer)
        self.bias_initializer = keras.initializers.get(bias_initializer)
        options = {"dtype": self.dtype_policy}
        self.convolution = CausalConvolution(kernel_size, convolution_bias, name="convolution", **options)
        # its factors stand below: a norm has those of one group
        self.norm = RMSNorm(epsilon, use_scale=False, name="norm", **options)

    @property
    def weight_roles(self) -> dict[str, Role]:
        """The roles of its weights, see `layers.roles`: each device has some of the heads, never part of a head."""
        keys = Role("columns", parts=self.num_key_heads, else_whole=True, where="groups of heads")
        values = Role("columns", parts=self.num_heads, where="heads")
        return {
            **dict.fromkeys(("query", "key"), keys),
            **dict.fromkeys(("value", "gate", "step"), values),
            **dict.fromkeys(("convolution", "norm", "log_rate", "step_bias", "skip", "norm_scale"), WHOLE),
            "output": values._replace(name="rows"),
        }

    def build(self, inputs_shape: tuple[int | None, ...]) -> None:
        keys, values = self.widths
        units = {"gate": values, "value": values, "key": keys, "query": keys}
        units |= {"step": self.num_heads, "output": inputs_shape[-1]}
        self.build_projections(inputs_shape, units, self.use_bias)
        self.convolution.build((*inputs_shape[:-1], 2 * keys + values))
        self.norm.build((None, values // self.num_key_heads))
        heads = np.arange(self.num_heads)
        least, greatest = np.log(_FIRST_STEPS)
        # multiples of the golden ratio fill the range evenly, in an order that has nothing to do with the rates
        steps = np.exp(least + (greatest - least) * (heads * 0.5 * (1 + 5**0.5) % 1))
        for name, values_of_heads in (
            ("log_rate", np.log(1 + heads)),
            ("step_bias", steps + np.log(-np.expm1(-steps))),  # its softplus is the step
            ("skip", np.ones(self.num_heads)),
        ):
            # in exponents: in half precision they would be off by a hundredth
            initializer = keras.initializers.Constant(values_of_heads)
            weight = self.add_weight(shape=(self.num_heads,), initializer=initializer, name=name, autocast=False)
            setattr(self, name, weight)
        self.norm_scale = self.add_weight(shape=(values,), initializer="ones", name="norm_scale", autocast=False)
        self.built = True

    def mix(self, inputs: Any, view: MixerView, cache: dict[str, Any] | None) -> Any:
        batch, length = sizes(inputs)[:2]
        heads, group = self.num_key_heads, self.num_heads // self.num_key_heads
        projections = (self.value_projection, self.key_projection, self.query_projection)
        mixed, written, state = self.convolve(inputs, projections, view, cache)
        keys, values = self.widths
        value, key, query = ops.split(ops.cast(ops.silu(mixed), "float32"), [values, values + keys], axis=-1)
        value = ops.reshape(value, (batch, length, heads, group, self.value_dim))
        key, query = (ops.reshape(x, (batch, length, heads, self.key_dim)) for x in (key, query))
        log_rate, step_bias, skip, norm_scale = (
            ops.cast(weight, "float32") for weight in (self.log_rate, self.step_bias, self.skip, self.norm_scale)
        )
        step = ops.softplus(ops.cast(self.step_projection(inputs), "float32") + step_bias)
        step = ops.clip(step, *(np.inf if limit is None else limit for limit in self.step_limit))
        step = hide_padding(step, view.token_mask)  # of length 0 it changes no state
        log_decay, step = (ops.reshape(x, (batch, length, heads, group)) for x in (-ops.exp(log_rate) * step, step))
        read, state = delta_rule(
            query, key, value * step[..., None], log_decay, state=state, segment_ids=view.segment_ids
        )  # (batch, length, key_heads, group, value_dim)
        read = read + value * ops.reshape(skip, (heads, group, 1))
        gate = ops.cast(self.gate_projection(inputs), "float32")
        by_head = (batch, length, heads, values // heads)
        gated = ops.reshape(read, by_head) * ops.reshape(ops.silu(gate), by_head)
        normed = ops.cast(ops.reshape(self.norm(gated), (batch, length, values)), "float32") * norm_scale
        output = self.output_projection(ops.cast(normed, self.compute_dtype))
        if cache is None:
            return output
        return output, {**written, "state": ops.reshape(state, sizes(cache["state"]))}

    @property
    def kept_dim(self) -> int:
        """Numbers of a token between its linear maps that a backward pass reads."""
        keys, values = self.widths
        # before and behind the convolution; the gate, what is written, read, gated and normed; the keys of states
        return 2 * (2 * keys + values) + 5 * values + 2 * self.num_heads * self.key_dim

    @property
    def state_products(self) -> int:
        """Products of a token with its states: it writes, and reads."""
        return 2 * self.num_heads * self.key_dim * self.value_dim
