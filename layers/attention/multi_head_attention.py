"""Multi-head attention with every choice that sequence models make of it as an argument."""

from collections.abc import Collection
from typing import Any

import keras
from keras import ops

from layers.attention.cache import rolling_positions, write_cache, write_rolling_cache
from layers.attention.kernels import attend
from layers.attention.masks import AttentionMask
from layers.dropout import Dropout
from layers.norms import make_norm
from layers.positions.rotary_scaling import LENGTH_DEPENDENT

PROJECTIONS = ("query", "key", "value", "output")


@keras.saving.register_keras_serializable("keras_transformer_zoo")
class MultiHeadAttention(keras.layers.Layer):
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
        position: Position object that acts on queries and keys (`RotaryEmbedding`), on the scores
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
        path: str = "auto",
        norm_epsilon: float = 1e-6,
        **kwargs: Any,
    ):
        super().__init__(**kwargs)
        num_key_value_heads = num_heads if num_key_value_heads is None else num_key_value_heads
        value_head_dim = head_dim if value_head_dim is None else value_head_dim
        sizes = {
            "num_heads": num_heads,
            "head_dim": head_dim,
            "num_key_value_heads": num_key_value_heads,
            "value_head_dim": value_head_dim,
        }
        for argument, value in sizes.items():
            if not isinstance(value, int) or value < 1:
                raise ValueError(f"{argument} must be an integer of at least 1, got {value!r}.")
        if num_heads % num_key_value_heads:
            raise ValueError(
                f"num_key_value_heads must divide num_heads={num_heads}, got {num_key_value_heads}: each key-value "
                "head serves the same number of query heads."
            )
        if isinstance(use_bias, bool):
            use_bias = PROJECTIONS if use_bias else ()
        unknown = set(use_bias) - set(PROJECTIONS)
        if unknown:
            raise ValueError(f"use_bias names {sorted(unknown)}, which are not among the projections {PROJECTIONS}.")
        if position is not None and getattr(position, "acts_on", "embedding") == "embedding":
            raise ValueError(
                f"position={position!r} is not added inside attention. Allowed: a layer that acts on queries and keys, "
                "on scores, or on keys and values; one that acts on the embedding is added to the inputs of the model."
            )
        for size, expected in (("num_heads", num_heads), ("head_dim", head_dim), ("value_dim", value_head_dim)):
            actual = getattr(position, size, expected)
            if actual != expected:
                raise ValueError(f"position={position!r} must have {size}={expected}, it has {actual}.")
        if query_key_norm == "batch":
            raise ValueError("query_key_norm='batch' would count padding; allowed: a norm over the width of a head.")
        if output_dim is not None and (not isinstance(output_dim, int) or output_dim < 1):
            raise ValueError(f"output_dim must be an integer of at least 1 or None, got {output_dim!r}.")
        if not 0 <= dropout < 1:
            raise ValueError(f"dropout must be at least 0 and below 1, got {dropout!r}.")
        if logit_soft_cap is not None and not logit_soft_cap > 0:
            raise ValueError(f"logit_soft_cap must be positive or None, got {logit_soft_cap!r}.")
        AttentionMask(causal=causal, window=window, block_size=block_size)  # raises where they are out of range
        self.num_heads = num_heads
        self.head_dim = head_dim
        self.num_key_value_heads = num_key_value_heads
        self.value_head_dim = value_head_dim
        self.output_dim = output_dim
        self.use_bias = tuple(name for name in PROJECTIONS if name in use_bias)
        self.position = position
        self.causal = causal
        self.window = None if window is None else tuple(window)
        self.block_size = block_size
        self.scale = head_dim**-0.5 if scale is None else scale
        self.logit_soft_cap = logit_soft_cap
        self.query_key_norm = query_key_norm
        self.has_sinks = sinks
        self.has_output_gate = output_gate
        self.dropout_rate = dropout
        self.kernel_initializer = keras.initializers.get(kernel_initializer)
        self.attention_path = path
        self.norm_epsilon = norm_epsilon
        self.query_projection = self._dense("query", num_heads * head_dim)
        self.key_projection = self._dense("key", num_key_value_heads * head_dim)
        self.value_projection = self._dense("value", num_key_value_heads * value_head_dim)
        self.gate_projection = self._dense("gate", num_heads * value_head_dim) if output_gate else None
        self.query_norm = self.key_norm = None
        if query_key_norm is not None:
            self.query_norm = make_norm(query_key_norm, norm_epsilon, name="query_norm", dtype=self.dtype_policy)
            self.key_norm = make_norm(query_key_norm, norm_epsilon, name="key_norm", dtype=self.dtype_policy)
        self.weight_dropout = Dropout(dropout, name="dropout", dtype=self.dtype_policy) if dropout else None

    def _dense(self, name: str, units: int) -> keras.layers.Dense:
        # each projection draws its own initial weights, hence a fresh initializer
        initializer = self.kernel_initializer.clone()
        return keras.layers.Dense(
            units, use_bias=name in self.use_bias, kernel_initializer=initializer, dtype=self.dtype_policy, name=name
        )

    def build(self, inputs_shape: tuple, memory_shape: tuple | None = None) -> None:
        memory_shape = inputs_shape if memory_shape is None else memory_shape
        self.query_projection.build(inputs_shape)
        self.key_projection.build(memory_shape)
        self.value_projection.build(memory_shape)
        if self.gate_projection is not None:
            self.gate_projection.build(inputs_shape)
        if self.query_norm is not None:
            self.query_norm.build((None, None, None, self.head_dim))
            self.key_norm.build((None, None, None, self.head_dim))
        if self.position is not None and not self.position.built:
            self.position.build(None)
        self.sinks = None
        if self.has_sinks:
            self.sinks = self.add_weight(shape=(self.num_heads,), initializer="zeros", name="sinks")
        self.output_projection = self._dense("output", self.output_dim or inputs_shape[-1])
        self.output_projection.build((None, None, self.num_heads * self.value_head_dim))
        self.built = True

    def project_memory(self, memory: Any) -> dict[str, Any]:
        """Returns keys and values of `memory`, computed once and given to many calls as `projected_memory`.

        Args:
            memory: `(batch, memory_length, memory_width)`.

        Returns:
            `{"key": (batch, key_value_heads, memory_length, head_dim), "value": ...}`.
        """
        key, value = self._project_key_value(memory, self._rotation(ops.arange(ops.shape(memory)[1])))
        return {"key": key, "value": value}

    def _split(self, x: Any, heads: int, width: int) -> Any:
        return ops.reshape(x, (ops.shape(x)[0], ops.shape(x)[1], heads, width))

    def _rotation(self, positions: Any, sequence_length: Any = None) -> tuple[Any, Any] | None:
        """Cosines and sines of rotary positions, computed once for queries and keys; None for other positions."""
        return self.position.cos_sin(positions, sequence_length) if self._acts_on("query_key") else None

    def _project_query(self, inputs: Any, rotation: tuple[Any, Any] | None) -> Any:
        query = self._split(self.query_projection(inputs), self.num_heads, self.head_dim)
        if self.query_norm is not None:
            query = self.query_norm(query)
        if rotation is not None:
            query = self.position.rotate(query, *rotation)
        return ops.transpose(query, (0, 2, 1, 3))

    def _project_key_value(self, memory: Any, rotation: tuple[Any, Any] | None) -> tuple[Any, Any]:
        key = self._split(self.key_projection(memory), self.num_key_value_heads, self.head_dim)
        value = self._split(self.value_projection(memory), self.num_key_value_heads, self.value_head_dim)
        if self.key_norm is not None:
            key = self.key_norm(key)
        if rotation is not None:
            key = self.position.rotate(key, *rotation)
        return ops.transpose(key, (0, 2, 1, 3)), ops.transpose(value, (0, 2, 1, 3))

    def _acts_on(self, where: str) -> bool:
        return self.position is not None and self.position.acts_on == where

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
        cache: dict[str, Any] | None = None,
        cache_index: Any = None,
        projected_memory: dict[str, Any] | None = None,
        return_weights: bool = False,
        training: bool | None = None,
    ) -> Any:
        is_cross = memory is not None or projected_memory is not None
        if is_cross and (cache is not None or segment_ids is not None):
            raise ValueError(
                "cache and segment_ids belong to self-attention and exclude memory and projected_memory. For "
                "cross-attention, compute projected_memory once with project_memory()."
            )
        if memory is not None and projected_memory is not None:
            raise ValueError("memory and projected_memory exclude each other.")
        if (cache is None) != (cache_index is None):
            raise ValueError("cache and cache_index come together.")
        if cache is not None and segment_ids is not None:
            raise ValueError("segment_ids exclude a cache: the segments of its entries are not kept.")
        if len(inputs.shape) != 3:
            raise ValueError(f"inputs must have shape (batch, length, width), got {tuple(inputs.shape)}.")
        batch, length = inputs.shape[:2]
        memory = _checked("memory", memory, (batch, None, None))
        positions = _checked("positions", positions, (length,), (batch, length), integers=True)
        segment_ids = _checked("segment_ids", segment_ids, (batch, length))
        prefix_length = _checked("prefix_length", prefix_length, (batch,))
        length = ops.shape(inputs)[1]
        if cache_index is not None and not isinstance(cache_index, int):
            cache_index = ops.cast(cache_index, "int32")
        given_positions = positions
        if positions is None:
            positions = ops.arange(length)
            if cache_index is not None:
                positions = positions + cache_index
        # cached keys stay as they were rotated: scalings that depend on the length take that of the whole cache
        rotation = self._rotation(positions, None if cache is None else ops.shape(cache["key"])[2])
        query = self._project_query(inputs, rotation)
        key_positions = None if is_cross else positions
        if projected_memory is not None:
            key, value = projected_memory["key"], projected_memory["value"]
        elif memory is not None:
            key, value = self._project_key_value(memory, self._rotation(ops.arange(ops.shape(memory)[1])))
        else:
            key, value = self._project_key_value(inputs, rotation)
        new_cache = None
        is_rolling = cache is not None and self.is_rolling(cache["key"].shape[2])
        if is_rolling and padding_mask is not None:
            raise ValueError(
                "padding_mask has no meaning with a rolling cache, whose slots change owner: give padding positions "
                "below zero."
            )
        if cache is not None:
            key, value, key_positions, new_cache = self._extend(key, value, cache, cache_index, positions)
        key_length = key.shape[2]
        padding_mask = _checked("padding_mask", padding_mask, (batch, key_length))
        pair = (inputs.shape[1], key_length)
        attention_mask = _checked(
            "attention_mask", attention_mask, pair, (batch, *pair), (batch, self.num_heads, *pair), broadcast=True
        )
        if cache is not None:
            if given_positions is not None or is_rolling:
                # left padding and empty slots of a rolling cache have positions before the start
                started = ops.broadcast_to(key_positions >= 0, (ops.shape(inputs)[0], ops.shape(key)[2]))
                padding_mask = started if padding_mask is None else ops.logical_and(padding_mask, started)
        # positions that count from 0 on both sides need not be given: the kernels know them
        needs_positions = cache is not None or given_positions is not None
        mask = AttentionMask(
            causal=self.causal,
            window=self.window,
            block_size=self.block_size,
            prefix_length=prefix_length,
            query_positions=positions if needs_positions else None,
            key_positions=key_positions if needs_positions else None,
            key_padding_mask=padding_mask,
            query_segment_ids=segment_ids,
            key_segment_ids=segment_ids,
            allowed=attention_mask,
        )
        output, weights = self._attend(query, key, value, mask, positions, key_positions, return_weights, training)
        output = ops.transpose(output, (0, 2, 1, 3))
        output = ops.reshape(output, (ops.shape(output)[0], length, self.num_heads * self.value_head_dim))
        if self.gate_projection is not None:
            output = output * ops.sigmoid(self.gate_projection(inputs))
        output = self.output_projection(output)
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
        # a rotary scaling that depends on the length takes it from the capacity of the cache
        scaling = getattr(self.position, "scaling", None)
        if scaling is not None and scaling["kind"] in LENGTH_DEPENDENT:
            return False
        return capacity == self.window[0] + 1

    def _extend(self, key: Any, value: Any, cache: dict, index: Any, positions: Any) -> tuple[Any, Any, Any, dict]:
        """Writes new keys and values to the cache; returns all that queries may see, with positions."""
        if not self.causal:
            raise ValueError(
                "cache needs causal=True: a query that sees later positions cannot be computed before them."
            )
        capacity, new = ops.shape(cache["key"])[2], ops.shape(key)[2]
        offset = ops.expand_dims(positions[..., 0], -1) - index
        if not self.is_rolling(capacity):
            new_cache = write_cache(cache, key, value, index)
            return new_cache["key"], new_cache["value"], ops.arange(capacity) + offset, new_cache
        new_cache = write_rolling_cache(cache, key, value, index)
        if key.shape[2] == 1:
            entries = rolling_positions(capacity, index + 1)
            key, value = new_cache["key"], new_cache["value"]
        else:
            # the first of the new queries still see entries that the last new keys overwrite
            entries = ops.concatenate([rolling_positions(capacity, index), ops.arange(new) + index])
            key = ops.concatenate([cache["key"], ops.cast(key, cache["key"].dtype)], axis=2)
            value = ops.concatenate([cache["value"], ops.cast(value, cache["value"].dtype)], axis=2)
        # an empty slot is moved out of every window
        entries = ops.where(entries < 0, -(2**30), entries)
        return key, value, entries + offset, new_cache

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
        bias = None
        if self._acts_on("scores"):
            bias = self.position
        elif self._acts_on("keys_and_values"):
            bias = self.scale * self.position.key_bias(query, positions, key_positions)
        result = attend(
            query,
            key,
            value,
            mask,
            scale=self.scale,
            bias=bias,
            soft_cap=self.logit_soft_cap,
            sinks=self.sinks,
            dropout=dropout,
            path=self.attention_path,
            return_weights=return_weights or self._acts_on("keys_and_values"),
        )
        if not (return_weights or self._acts_on("keys_and_values")):
            return result, None
        output, weights = result
        if self._acts_on("keys_and_values"):
            # the vectors of the values are weighted as the values are, dropout included
            output = output + self.position.value_context(dropped[-1] if dropped else weights, positions, key_positions)
        return output, weights

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
            num_heads=self.num_heads,
            head_dim=self.head_dim,
            num_key_value_heads=self.num_key_value_heads,
            value_head_dim=self.value_head_dim,
            output_dim=self.output_dim,
            use_bias=list(self.use_bias),
            position=position,
            causal=self.causal,
            window=self.window,
            block_size=self.block_size,
            scale=self.scale,
            logit_soft_cap=self.logit_soft_cap,
            query_key_norm=self.query_key_norm,
            sinks=self.has_sinks,
            output_gate=self.has_output_gate,
            dropout=self.dropout_rate,
            kernel_initializer=keras.initializers.serialize(self.kernel_initializer),
            path=self.attention_path,
            norm_epsilon=self.norm_epsilon,
        )
        return config

    @classmethod
    def from_config(cls, config: dict[str, Any]) -> "MultiHeadAttention":
        config = dict(config)
        if config.get("position") is not None:
            config["position"] = keras.saving.deserialize_keras_object(config["position"])
        return cls(**config)


def _checked(name: str, x: Any, *shapes: tuple, broadcast: bool = False, integers: bool = False) -> Any:
    """Returns `x` as a tensor of one of `shapes`, whose sizes are None where they are not known."""
    if x is None:
        return None
    x = ops.convert_to_tensor(x)
    if integers:
        dtype = keras.backend.standardize_dtype(x.dtype)
        if "int" not in dtype:
            raise ValueError(f"{name} must be integers, got type {dtype}.")
        x = ops.cast(x, "int32")
    for shape in shapes:
        if len(shape) == len(x.shape) and all(
            None in (size, expected) or size == expected or (broadcast and size == 1)
            for size, expected in zip(x.shape, shape, strict=True)
        ):
            return x
    allowed = " or ".join(str(shape) for shape in shapes)
    raise ValueError(f"{name} must have shape {allowed}, got {tuple(x.shape)}.")
