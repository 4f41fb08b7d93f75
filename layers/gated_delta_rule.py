"""Heads with a state that each token corrects, in the place of attention: gated delta networks."""

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


@keras.saving.register_keras_serializable("keras_transformer_zoo")
class GatedDeltaRule(StateMixer):
    """Heads that keep a matrix, from which a token reads what it would write, and writes the difference.

    Queries, keys and values pass a causal convolution and a SiLU; queries and keys then have length 1. A head reads and
    writes by `layers.delta_rule.delta_rule`, with a decay `exp(-exp(log_rate) softplus(decay(x) + decay_bias))` and a
    strength `sigmoid(strength(x))`. What it reads is normed, multiplied with `silu(gate(x))` and projected.

    Time and memory of a token do not grow with its position. A cache holds the state of each row and the last
    `kernel_size` inputs of the convolution. A state cannot be taken back to an earlier token.

    Args:
        num_heads: Number of heads of values, each of which has a state.
        key_dim: Width of a query and a key.
        value_dim: Width of a value; None for `key_dim`.
        num_key_heads: Number of heads of queries and keys, each shared by as many heads of values; None for
            `num_heads`.
        kernel_size: Number of positions that the convolution sees.
        epsilon: Of the norm of what heads read.
        kernel_initializer: Initial weights of the linear maps.
        output_initializer: Initial weights of the map `output`; None for `kernel_initializer`.
        bias_initializer: Initial `decay_bias`.

    Call arguments:
        inputs, padding_mask, lengths, positions, segment_ids, sequence_length, cache, cache_index, view, mask: See
            `layers.ShortConvolution`. Padding changes no state.

    Returns:
        `(batch, length, width)`; with a cache a tuple of this and the written cache.

    Raises:
        ValueError: If an argument is out of range, or arguments exclude each other.

    Example:

    >>> GatedDeltaRule(4, key_dim=16)(keras.ops.ones((2, 5, 32))).shape
    (2, 5, 32)

    Reference:
        Yang et al. 2025, "Gated Delta Networks: Improving Mamba2 with Delta Rule", section 3.4 and figure 1.
    """

    def __init__(
        self,
        num_heads: int,
        key_dim: int,
        value_dim: int | None = None,
        num_key_heads: int | None = None,
        *,
        kernel_size: int = 4,
        epsilon: float = 1e-6,
        kernel_initializer: Any = "glorot_uniform",
        output_initializer: Any = None,
        bias_initializer: Any = "zeros",
        **kwargs: Any,
    ) -> None:
        super().__init__(**kwargs)
        self.keep_heads(num_heads, key_dim, value_dim, num_key_heads)
        self.kernel_size = kernel_size
        self.epsilon = epsilon
        self.kernel_initializer = keras.initializers.get(kernel_initializer)
        self.output_initializer = keras.initializers.get(output_initializer)
        self.bias_initializer = keras.initializers.get(bias_initializer)
        self.convolution = CausalConvolution(kernel_size, dtype=self.dtype_policy, name="convolution")
        self.norm = RMSNorm(epsilon, dtype=self.dtype_policy, name="norm")

    @property
    def weight_roles(self) -> dict[str, Role]:
        """The roles of its weights, see `layers.roles`: each device has some of the heads, never part of a head."""
        keys = Role("columns", parts=self.num_key_heads, where="key heads")
        values = Role("columns", parts=self.num_heads, where="heads")
        return {
            **dict.fromkeys(("query", "key"), keys),
            **dict.fromkeys(("value", "gate", "strength", "decay"), values),
            **dict.fromkeys(("convolution", "norm", "log_rate", "decay_bias"), WHOLE),
            "output": values._replace(name="rows"),
        }

    def build(self, inputs_shape: tuple[int | None, ...]) -> None:
        keys, values = self.widths
        units = {
            **{"query": keys, "key": keys, "value": values, "gate": values},
            **{"strength": self.num_heads, "decay": self.num_heads, "output": inputs_shape[-1]},
        }
        self.build_projections(inputs_shape, units)
        self.convolution.build((*inputs_shape[:-1], 2 * keys + values))
        self.norm.build((None, self.value_dim))
        # rates from near 0 up to 16, so that heads forget at different speeds
        rates = np.linspace(16 / self.num_heads, 16, self.num_heads)
        for name, initializer in (
            ("log_rate", keras.initializers.Constant(np.log(rates))),
            ("decay_bias", self.bias_initializer),
        ):
            # an exponent: in half precision it would be off by a hundredth
            weight = self.add_weight(shape=(self.num_heads,), initializer=initializer, name=name, autocast=False)
            setattr(self, name, weight)
        self.built = True

    def mix(self, inputs: Any, view: MixerView, cache: dict[str, Any] | None) -> Any:
        batch, length = sizes(inputs)[:2]
        heads, group = self.num_key_heads, self.num_heads // self.num_key_heads
        projections = (self.query_projection, self.key_projection, self.value_projection)
        mixed, written, state = self.convolve(inputs, projections, view, cache)
        keys, _ = self.widths
        query, key, value = ops.split(ops.silu(mixed), [keys, 2 * keys], axis=-1)
        query, key = (_unit(ops.reshape(x, (batch, length, heads, self.key_dim))) for x in (query, key))
        value = ops.reshape(value, (batch, length, heads, group, self.value_dim))
        strength = ops.sigmoid(ops.cast(self.strength_projection(inputs), "float32"))
        step = ops.cast(self.decay_projection(inputs), "float32") + ops.cast(self.decay_bias, "float32")
        log_decay = -ops.exp(ops.cast(self.log_rate, "float32")) * ops.softplus(step)
        log_decay, strength = (
            ops.reshape(hide_padding(x, view.token_mask), (batch, length, heads, group)) for x in (log_decay, strength)
        )
        read, state = delta_rule(
            query * self.key_dim**-0.5, key, value, log_decay, strength, state, view.segment_ids
        )  # (batch, length, key_heads, group, value_dim)
        normed = self.norm(ops.reshape(read, (batch, length, self.num_heads, self.value_dim)))
        gate = ops.reshape(ops.cast(self.gate_projection(inputs), "float32"), (batch, length, *normed.shape[2:]))
        gated = ops.cast(ops.cast(normed, "float32") * ops.silu(gate), self.compute_dtype)
        output = self.output_projection(ops.reshape(gated, (batch, length, self.num_heads * self.value_dim)))
        if cache is None:
            return output
        return output, {**written, "state": ops.reshape(state, sizes(cache["state"]))}

    @property
    def kept_dim(self) -> int:
        """Numbers of a token between its linear maps that a backward pass reads."""
        keys, values = self.widths
        # before and behind the convolution; the gates, what is read and normed; of chunks: what is written, corrected
        # and left, and a score with each token of a chunk
        return 2 * (2 * keys + values) + 3 * values + 2 * values + 3 * self.num_heads * self.key_dim

    @property
    def state_products(self) -> int:
        """Products of a token with its states: it reads what it corrects, writes, and reads."""
        return 3 * self.num_heads * self.key_dim * self.value_dim


def _unit(x: Any) -> Any:
    """Vectors of length 1 along the last axis, in float32."""
    x = ops.cast(x, "float32")
    return x * ops.rsqrt(ops.sum(ops.square(x), axis=-1, keepdims=True) + 1e-6)
