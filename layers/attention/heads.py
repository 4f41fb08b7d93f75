"""What the heads of a multi-head attention do: projections, attention, and the projection of what comes out."""

from typing import Any

import keras
from keras import ops

from layers.attention.arguments import checked
from layers.attention.kernels import attend
from layers.attention.masks import AttentionMask
from layers.initializers import separate
from layers.norms import make_norm
from layers.positions.base import NO_POSITION, PositionHooks


class AttentionHeads(keras.layers.Layer):
    """The steps of a multi-head attention, from inputs to queries, keys and values, to heads, to the output.

    `MultiHeadAttention`, which is this plus the call itself and its cache, sets the attributes that the steps work with
    (`num_heads`, `head_dim`, ...).
    """

    def _make_projections(self) -> None:
        self.query_projection = self._dense("query", self.num_heads * self.head_dim)
        self.key_projection = self._dense("key", self.num_key_value_heads * self.head_dim)
        self.value_projection = self._dense("value", self.num_key_value_heads * self.value_head_dim)
        self.gate_projection = None
        if self.has_output_gate:
            self.gate_projection = self._dense("gate", self.num_heads * self.value_head_dim)
        self.query_norm = self.key_norm = None
        if self.query_key_norm is not None:
            options = {"epsilon": self.norm_epsilon, "dtype": self.dtype_policy}
            self.query_norm = make_norm(self.query_key_norm, name="query_norm", **options)
            self.key_norm = make_norm(self.query_key_norm, name="key_norm", **options)

    def _dense(self, name: str, units: int) -> keras.layers.Dense:
        initializer = {"value": self.value_initializer, "output": self.output_initializer}.get(name)
        index = ("query", "key", "value", "output", "gate").index(name)
        initializer = separate(initializer or self.kernel_initializer, index)
        return keras.layers.Dense(
            units, use_bias=name in self.use_bias, kernel_initializer=initializer, dtype=self.dtype_policy, name=name
        )

    def _build_projections(self, inputs_shape: tuple, memory_shape: tuple) -> None:
        self.query_projection.build(inputs_shape)
        self.key_projection.build(memory_shape)
        self.value_projection.build(memory_shape)
        if self.gate_projection is not None:
            self.gate_projection.build(inputs_shape)
        if self.query_norm is not None:
            self.query_norm.build((None, None, None, self.head_dim))
            self.key_norm.build((None, None, None, self.head_dim))
        self.output_projection = self._dense("output", self.output_dim or inputs_shape[-1])
        self.output_projection.build((None, None, self.num_heads * self.value_head_dim))

    def project_memory(self, memory: Any) -> dict[str, Any]:
        """Returns keys and values of `memory`, computed once and given to many calls as `projected_memory`.

        Args:
            memory: `(batch, memory_length, memory_width)`.

        Returns:
            `{"key": (batch, key_value_heads, memory_length, head_dim), "value": ...}`.
        """
        key, value = self._project_key_value(memory, self._hooks.prepare(ops.arange(ops.shape(memory)[1])))
        return {"key": key, "value": value}

    @property
    def _hooks(self) -> PositionHooks:
        return NO_POSITION if self.position is None else self.position

    def _project_query(self, inputs: Any, prepared: Any) -> Any:
        query = _split_heads(self.query_projection(inputs), self.num_heads, self.head_dim)
        if self.query_norm is not None:
            query = self.query_norm(query)
        return ops.transpose(self._hooks.on_queries(query, prepared), (0, 2, 1, 3))

    def _project_key_value(self, memory: Any, prepared: Any) -> tuple[Any, Any]:
        key = _split_heads(self.key_projection(memory), self.num_key_value_heads, self.head_dim)
        value = _split_heads(self.value_projection(memory), self.num_key_value_heads, self.value_head_dim)
        if self.key_norm is not None:
            key = self.key_norm(key)
        key = self._hooks.on_keys(key, prepared)
        return ops.transpose(key, (0, 2, 1, 3)), ops.transpose(value, (0, 2, 1, 3))

    def _mask(self, inputs: Any, key: Any, *, padding_mask: Any, attention_mask: Any, segment_ids: Any, **others: Any):
        """The mask of a call; `others` are arguments of `AttentionMask`."""
        batch, pair = inputs.shape[0], (inputs.shape[1], key.shape[2])
        return AttentionMask(
            causal=self.causal,
            window=self.window,
            block_size=self.block_size,
            key_padding_mask=checked("padding_mask", padding_mask, (batch, key.shape[2])),
            query_segment_ids=segment_ids,
            key_segment_ids=segment_ids,
            allowed=checked(
                "attention_mask", attention_mask, pair, (batch, *pair), (batch, self.num_heads, *pair), broadcast=True
            ),
            **others,
        )

    def _attend(
        self,
        query: Any,
        key: Any,
        value: Any,
        mask: AttentionMask,
        positions: Any,
        key_positions: Any,
        return_weights: bool,
        training: bool | None,
    ) -> tuple[Any, Any]:
        key = ops.cast(key, query.dtype)
        value = ops.cast(value, query.dtype)
        dropout, dropped = None, []
        if self.weight_dropout is not None and training:

            def dropout(weights: Any) -> Any:
                dropped.append(self.weight_dropout(weights, training=True))
                return dropped[-1]

        if key_positions is None:
            key_positions = ops.arange(ops.shape(key)[2])
        hooks = self._hooks
        result = attend(
            query,
            key,
            value,
            mask,
            scale=self.scale,
            bias=hooks.score_bias(query, positions, key_positions, self.scale),
            soft_cap=self.logit_soft_cap,
            sinks=self.sinks,
            dropout=dropout,
            path=self.attention_path,
            return_weights=return_weights or hooks.needs_weights,
        )
        output, weights = result if return_weights or hooks.needs_weights else (result, None)
        output = hooks.on_output(output, dropped[-1] if dropped else weights, positions, key_positions)
        return output, weights

    def _join_heads(self, heads: Any, inputs: Any) -> Any:
        """From what the heads give, `(batch, heads, length, value_head_dim)`, to the output of the layer."""
        output = ops.transpose(heads, (0, 2, 1, 3))
        output = ops.reshape(output, (*ops.shape(output)[:2], self.num_heads * self.value_head_dim))
        if self.gate_projection is not None:
            output = output * ops.sigmoid(self.gate_projection(inputs))
        return self.output_projection(output)


def _split_heads(x, heads, width):
    return ops.reshape(x, (*ops.shape(x)[:2], heads, width))
