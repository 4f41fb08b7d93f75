"""Multi-head attention with every choice that sequence models make of it as an argument."""

from collections.abc import Collection
from typing import Any

import keras
from keras import ops

from layers.attention.arguments import PROJECTIONS, check_call, check_configuration, checked
from layers.attention.cache import extend_cache
from layers.attention.heads import AttentionHeads
from layers.dropout import Dropout

# Arguments of the constructor that are attributes of the same name.
_KEPT_AS_GIVEN = """
    num_heads head_dim num_key_value_heads value_head_dim output_dim causal window block_size scale logit_soft_cap
    query_key_norm norm_epsilon
""".split()
_INITIALIZERS = ("kernel_initializer", "value_initializer", "output_initializer")


@keras.saving.register_keras_serializable("keras_transformer_zoo")
class MultiHeadAttention(AttentionHeads):
    """Multi-head attention: self or cross, causal or not, multi-head, grouped-query or multi-query.

    `MultiHead(Q, K, V) = Concat(head_1, ..., head_h) W_O` with `head_i = softmax(Q_i K_i^T * scale) V_i`. A query with
    nothing to attend to gives zero before the output projection.

    Args:
        num_heads: Number of query heads.
        head_dim: Width of one query and key head; free of the model width.
        num_key_value_heads: Number of key-value heads, a divisor of `num_heads`. 1 is multi-query attention. Default
            `num_heads`.
        value_head_dim: Width of one value head. Default `head_dim`.
        output_dim: Width of the result. Default the width of `inputs`.
        use_bias: True, False, or the names of the projections that have a bias, out of "query", "key", "value",
            "output".
        position: A `PositionEncoding` that acts on queries and keys (`RotaryEmbedding`, `XPos`), on the scores
            (`RelativePositionBias`, `ALiBi`) or on keys and values (`ShawRelativePositions`); None for none.
        causal: Whether a query sees only keys at its own and earlier positions.
        window: Sliding window `(left, right)`: how many positions before and after its own a query sees. None on a side
            is unlimited; None altogether is no window.
        block_size: Block-local attention: a query sees the keys of its own block of this many positions.
        scale: Factor on the scores. Default `head_dim ** -0.5`.
        logit_soft_cap: If given, scores become `cap * tanh(score / cap)`.
        query_key_norm: Kind of norm on each query and key head before rotation ("rms", "layer"), None for none.
        sinks: Whether each head has a learned score that takes part in the softmax and has no value.
        output_gate: Whether heads are multiplied by `sigmoid(inputs W_gate)` before the output projection.
        dropout: Rate of the dropout on the attention weights.
        kernel_initializer: Initializer of the projections.
        value_initializer, output_initializer: Those of the value and the output projection, where they differ (schemes
            that begin with smaller residual branches).
        path: How the attention is computed: "auto", "plain", "blocked", "banded" or "fused", see
            `layers.attention.attend`.
        norm_epsilon: Epsilon of `query_key_norm`.

    Call arguments:
        inputs: Queries, `(batch, length, width)`.
        memory: What is attended to, `(batch, memory_length, memory_width)`. Default `inputs` (self-attention).
        padding_mask: True where a key is real, `(batch, memory_length)`; with a cache `(batch, capacity)`. A rolling
            cache takes none: give padding positions below zero.
        attention_mask: True where a query may see a key, `(length, memory_length)` or with a leading batch axis, or
            with batch and head axes.
        segment_ids: Integers `(batch, length)` of packed sequences: self-attention stays within a segment.
        prefix_length: Integers `(batch,)`: positions below are visible to all queries of the row (prefix LM).
        positions: Positions of the queries (and of the keys in self-attention), `(length,)` or `(batch, length)`.
            Default `0, 1, 2, ...`, from `cache_index` on with a cache. With a cache they are consecutive in each row
            and go on where the last call ended; entries at positions below zero are padding that nobody sees.
        sequence_length: Number of tokens of the whole text, a scalar or `(batch,)`, for positions that depend on it
            (`RotaryEmbedding` with a scaling such as "dynamic_ntk", without a `sequence_length` of its own). Default
            the largest position plus one; with a cache it must be given.
        cache: Key-value cache of this layer as made by `make_cache`; the new keys and values are written to it.
        cache_index: Number of entries in the cache already, a scalar integer.
        projected_memory: What `project_memory` returned; takes the place of `memory`.
        return_weights: Whether to return the attention weights too.
        training: Whether dropout is active.

    Returns:
        `(batch, length, output_dim)`. With `cache`: a tuple with the written cache next. With `return_weights`: a tuple
        with the weights `(batch, heads, length, memory_length)` last, before dropout. With a cache their last axis
        is that of its slots; with a rolling one (see `is_rolling`) and more than one query, of its slots before this
        call and the new keys after these.

    Raises:
        ValueError: If an argument is out of range or has a wrong shape, call arguments exclude each other, or new keys
            do not fit the cache.

    Example:

    >>> attention = MultiHeadAttention(num_heads=8, head_dim=64, num_key_value_heads=2, causal=True)
    >>> attention(np.ones((2, 10, 512), "float32")).shape
    (2, 10, 512)

    Reference:
        Vaswani et al. 2017, "Attention Is All You Need", section 3.2.2; grouped queries: Ainslie et al. 2023, "GQA",
        section 2.2; multi-query: Shazeer 2019, section 3.
    """

    def __init__(
        self,
        num_heads: int,
        head_dim: int,
        *,
        num_key_value_heads: int | None = None,
        value_head_dim: int | None = None,
        output_dim: int | None = None,
        use_bias: bool | Collection[str] = True,
        position: keras.layers.Layer | None = None,
        causal: bool = False,
        window: tuple[int | None, int | None] | None = None,
        block_size: int | None = None,
        scale: float | None = None,
        logit_soft_cap: float | None = None,
        query_key_norm: str | None = None,
        sinks: bool = False,
        output_gate: bool = False,
        dropout: float = 0.0,
        kernel_initializer: Any = "glorot_uniform",
        value_initializer: Any = None,
        output_initializer: Any = None,
        path: str = "auto",
        norm_epsilon: float = 1e-6,
        **kwargs: Any,
    ):
        super().__init__(**kwargs)
        if isinstance(use_bias, bool):
            use_bias = PROJECTIONS if use_bias else ()
        self.num_heads = num_heads
        self.head_dim = head_dim
        self.num_key_value_heads = num_heads if num_key_value_heads is None else num_key_value_heads
        self.value_head_dim = head_dim if value_head_dim is None else value_head_dim
        self.output_dim = output_dim
        self.use_bias = tuple(use_bias)
        self.position = position
        self.causal = causal
        self.window = None if window is None else tuple(window)
        self.block_size = block_size
        self.scale = scale
        self.logit_soft_cap = logit_soft_cap
        self.query_key_norm = query_key_norm
        self.has_sinks = sinks
        self.has_output_gate = output_gate
        self.dropout_rate = dropout
        self.kernel_initializer = keras.initializers.get(kernel_initializer)
        self.value_initializer = keras.initializers.get(value_initializer)
        self.output_initializer = keras.initializers.get(output_initializer)
        self.attention_path = path
        self.norm_epsilon = norm_epsilon
        check_configuration(self)
        if scale is None:
            self.scale = head_dim**-0.5
        self._make_projections()
        self.weight_dropout = Dropout(dropout, name="dropout", dtype=self.dtype_policy) if dropout else None

    def build(self, inputs_shape: tuple, memory_shape: tuple | None = None) -> None:
        if self.position is not None and not self.position.built:
            self.position.build(None)
        self.sinks = None
        if self.has_sinks:
            self.sinks = self.add_weight(shape=(self.num_heads,), initializer="zeros", name="sinks")
        self._build_projections(inputs_shape, inputs_shape if memory_shape is None else memory_shape)
        self.built = True

    def call(
        self,
        inputs: Any,
        memory: Any = None,
        *,
        padding_mask: Any = None,
        attention_mask: Any = None,
        segment_ids: Any = None,
        prefix_length: Any = None,
        positions: Any = None,
        sequence_length: Any = None,
        cache: dict[str, Any] | None = None,
        cache_index: Any = None,
        projected_memory: dict[str, Any] | None = None,
        return_weights: bool = False,
        training: bool | None = None,
    ) -> Any:
        check_call(inputs, memory, projected_memory, cache, cache_index, segment_ids, self.causal)
        batch, length = inputs.shape[:2]
        memory = checked("memory", memory, (batch, None, None))
        given_positions = checked("positions", positions, (length,), (batch, length), integers=True)
        if cache_index is not None and not isinstance(cache_index, int):
            cache_index = ops.cast(cache_index, "int32")
        positions = given_positions
        if positions is None:
            positions = ops.arange(ops.shape(inputs)[1])
            positions = positions if cache_index is None else positions + cache_index
        if cache is not None and sequence_length is None and self._hooks.depends_on_length:
            raise ValueError(
                f"sequence_length must be given with a cache and position={self.position!r}, which depends on the "
                "length of the whole text: keys in the cache stay as they were encoded. Or make the position for one "
                "sequence_length."
            )
        prepared = self._hooks.prepare(positions, sequence_length)
        query = self._project_query(inputs, prepared)
        key_positions, new_cache = None, None
        if projected_memory is not None:
            key, value = projected_memory["key"], projected_memory["value"]
        elif memory is not None:
            key, value = self._project_key_value(memory, self._hooks.prepare(ops.arange(ops.shape(memory)[1])))
        else:
            key, value = self._project_key_value(inputs, prepared)
            key_positions = positions
        if cache is not None:
            rolling = self.is_rolling(cache["key"].shape[2])
            if rolling and padding_mask is not None:
                raise ValueError(
                    "padding_mask has no meaning with a rolling cache, whose slots change owner: give padding "
                    "positions below zero."
                )
            key, value, key_positions, new_cache = extend_cache(cache, key, value, cache_index, positions, rolling)
            padding_mask = checked("padding_mask", padding_mask, (batch, key.shape[2]))
            if rolling or given_positions is not None:
                # left padding and empty slots of a rolling cache have positions before the start
                started = ops.broadcast_to(key_positions >= 0, (ops.shape(inputs)[0], ops.shape(key)[2]))
                padding_mask = started if padding_mask is None else ops.logical_and(padding_mask, started)
        # positions that count from 0 on both sides need not be given: the kernels know them
        needs_positions = cache is not None or given_positions is not None
        mask = self._mask(
            inputs,
            key,
            padding_mask=padding_mask,
            attention_mask=attention_mask,
            segment_ids=checked("segment_ids", segment_ids, (batch, length)),
            prefix_length=checked("prefix_length", prefix_length, (batch,)),
            query_positions=positions if needs_positions else None,
            key_positions=key_positions if needs_positions else None,
        )
        heads, weights = self._attend(query, key, value, mask, positions, key_positions, return_weights, training)
        output = self._join_heads(heads, inputs)
        results = (output,)
        if cache is not None:
            results += (new_cache,)
        if return_weights:
            results += (weights,)
        return results if len(results) > 1 else output

    def is_rolling(self, capacity: int) -> bool:
        """Whether a cache of `capacity` positions is written round and round: one that just covers the window.

        Args:
            capacity: Number of positions that the cache holds.
        """
        if self.window is None or self.window[0] is None or not isinstance(capacity, int):
            return False
        return capacity == self.window[0] + 1

    def compute_output_spec(self, *args: Any, **kwargs: Any) -> Any:
        # by a symbolic call: how many results there are depends on the arguments
        return keras.Operation.compute_output_spec(self, *args, **kwargs)

    def compute_output_shape(self, inputs_shape: tuple, memory_shape: tuple | None = None) -> tuple:
        return (*inputs_shape[:-1], self.output_dim or inputs_shape[-1])

    def get_config(self) -> dict[str, Any]:
        config = super().get_config()
        position = None
        if self.position is not None:
            position = keras.saving.serialize_keras_object(self.position)
            position.pop("build_config", None)  # it is built with this layer
        config.update(
            **{name: getattr(self, name) for name in _KEPT_AS_GIVEN},
            use_bias=[name for name in PROJECTIONS if name in self.use_bias],
            position=position,
            sinks=self.has_sinks,
            output_gate=self.has_output_gate,
            dropout=self.dropout_rate,
            **{name: keras.initializers.serialize(getattr(self, name)) for name in _INITIALIZERS},
            path=self.attention_path,
        )
        return config

    @classmethod
    def from_config(cls, config: dict[str, Any]) -> "MultiHeadAttention":
        config = dict(config)
        if config.get("position") is not None:
            config["position"] = keras.saving.deserialize_keras_object(config["position"])
        return cls(**config)
