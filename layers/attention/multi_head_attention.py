"""Multi-head attention. Every variant that sequence models use is an argument."""

from collections.abc import Callable, Collection
from typing import Any, Self

import keras
from keras import ops

from layers.attention.cache import CacheLayout, layout_for
from layers.attention.checks import GLOBAL_PROJECTIONS, PROJECTIONS, check_configuration
from layers.attention.heads import Heads
from layers.attention.keras_names import OPTIONS, to_own_names
from layers.attention.kernels import Projected, attend, attend_with_global, choose_path
from layers.attention.latents import LatentHeads, Latents
from layers.attention.masks import AttentionMask
from layers.attention.view import AttentionView, view_of_call
from layers.attention.weighting import AttentionWeighting, FunctionWeighting, check_weighting
from layers.constructor_arguments import ConfigFromArguments
from layers.dense import Dense
from layers.devices import has_cudnn
from layers.dropout import Dropout, WeightDropout
from layers.errors import refuse_names
from layers.fusion import sizes
from layers.initializers import separate
from layers.keras_internals import stateless_scope
from layers.positions.base import NO_POSITION, PositionEncoding, PositionHooks, Projections
from layers.roles import WHOLE, Role
from layers.view import refuse_with_view


@keras.saving.register_keras_serializable("keras_transformer_zoo")
class MultiHeadAttention(ConfigFromArguments, keras.layers.Layer):
    """Multi-head attention: self or cross, causal or not, multi-head, grouped-query or multi-query.

    `MultiHead(Q, K, V) = Concat(head_1, ..., head_h) W_O` with `head_i = softmax(Q_i K_i^T * scale) V_i`. For a query
    that sees no key, all heads are zero before the output projection.

    Keras's masks (`Embedding(mask_zero=True)`, `Masking`) are used too: masked keys are not seen, heads of masked
    queries are zero before the output projection, and the output carries the mask of `inputs`.

    Args:
        num_heads: Number of query heads.
        head_dim: Width of one query and key head; independent of the model width.
        num_key_value_heads: Number of key-value heads, a divisor of `num_heads` (default); 1 is multi-query attention.
        value_head_dim: Width of one value head. Default `head_dim`.
        output_dim: Width of the result. Default the width of `inputs`.
        use_bias: True, False, or the names of the projections with a bias: "query", "key", "value", "output".
        position: A `PositionEncoding` that acts on queries and keys (`RotaryEmbedding`, `XPos`), on the scores
            (`RelativePositionBias`, `ALiBi`, `DisentangledPositions`) or on keys and values (`ShawRelativePositions`);
            None for none.
        causal: Whether a query sees only keys at its own and earlier positions.
        window: Sliding window `(left, right)`: how many positions before and after its own a query sees. None in the
            pair means no limit on that side. An integer n stands for `(n, n)`. Default None: no window.
        block_size: Number of positions in a block: a query sees the keys of its own block only. None for no blocks.
        scale: Factor on the scores. Default `head_dim ** -0.5`.
        logit_soft_cap: If given, scores become `cap * tanh(score / cap)`.
        query_norm, key_norm: Norms of queries and keys, layers such as `RMSNorm`, before the position encoding; None
            for none.
        norm_scope: What these norms normalise: "head" for each head separately, "width" for all heads together.
        projection_limit: If given, queries, keys and values are clipped to `[-projection_limit, projection_limit]`,
            after their norms and before the position encoding (MPT, OLMo). None for no limit.
        weighting: Computes the attention weights in place of the softmax: an `AttentionWeighting`, or a function
            `(scores, visible) -> weights`. The weights of a query must depend on its visible keys alone. None for the
            softmax.
        sinks: Whether each head has a learned score without a value in the softmax (an attention sink).
        global_projections: Whether there are further projections of queries, keys and values for global tokens, which
            see all tokens and are seen by all in spite of the `window` (Longformer), see `global_mask`.
        latents: `Latents` from which queries, keys and values are projected; None to project them from the inputs.
        output_gate: Whether heads are multiplied by `sigmoid(inputs W_gate)` before the output projection.
        dropout: Rate of the dropout on the attention weights.
        kernel_initializer: Initializer of the projections.
        value_initializer, output_initializer: Initializers of the value and the output projection. Default
            `kernel_initializer`.
        bias_initializer: Initializer of the biases of the projections.
        path: How attention is computed: "auto", "plain", "blocked", "banded" or "fused", see `layers.attention.attend`.
            "auto" is the most suitable path. Calls that do not support the path, such as those with a cache, also use
            the most suitable one.
        cache_layout: The layout of the caches of `make_cache`. Default a `RollingCache` if the window has a limit on
            the left, else a `WholeCache`.

    Call arguments:
        inputs: Queries, `(batch, length, width)`.
        memory: What is attended to, `(batch, memory_length, memory_width)`. Default `inputs` (self-attention).
        padding_mask: True where a key is real, `(batch, memory_length)`; with a cache `(batch, capacity)`, one per
            slot. Integers are true where not zero. A rolling cache takes no mask: give padding positions below zero.
        lengths: Integers `(batch,)`: number of real keys in each row, which stand first. It says what a `padding_mask`
            with padding on the right says, and kernels that take lengths then need no mask. Results at padding have no
            meaning with it. `positions`, if given, must ascend over the real keys.
        attention_mask: True where a query may see a key, `(length, memory_length)`, `(batch, length, memory_length)` or
            `(batch, heads, length, memory_length)`. Integers are true where not zero.
        segment_ids: Integers `(batch, length)` of packed sequences: attention stays within a segment.
        memory_segment_ids: Integers `(batch, memory_length)`: segments of the memory in cross-attention.
        prefix_length: Integers `(batch,)`: keys at lower positions are visible to all queries of the row (prefix LM).
        global_mask: True where a token is global, `(batch, length)`. Integers are true where not zero. Default none.
        positions: Positions of the queries, and of the keys in self-attention, `(length,)` or `(batch, length)`.
            Default `0, 1, 2, ...`; with a cache they start at `cache_index`. Given with a cache, they must be
            consecutive in each row and continue where the last call ended. No query sees entries at positions below
            zero, which are padding. With an index per row, padding on the right is not kept: the next index of a row is
            the number of its real entries.
        sequence_length: Number of tokens of the whole text, for positions that depend on it (see `RotaryEmbedding`): a
            scalar, `(batch,)` or, for packed sequences, `(batch, length)`. Default the largest position plus one. It
            must be given with a cache or `segment_ids`.
        cache: Key-value cache of this layer, from `make_cache`. New keys and values are written to it.
        cache_index: Number of entries already in the cache, a scalar integer or one per row `(batch,)`.
        projected_memory: The result of `project_memory`, in place of `memory`.
        return_weights: Whether to return the attention weights too.
        view: The result of `look`, made once for several layers, in place of all arguments but `inputs`, `memory`,
            `cache`, `projected_memory`, `return_weights` and `training`.
        mask, inputs_mask, memory_mask: Keras's masks of `inputs` (the first two) and `memory`, filled in by Keras.
        training: Whether dropout is active.

    Names of `keras.layers.MultiHeadAttention` that mean the same are taken too: `query` (inputs), `value` and `key`
    (memory, one tensor), `use_causal_mask` (as `causal` of the layer) and `return_attention_scores` (return_weights).

    Returns:
        The output `(batch, length, output_dim)`. With `cache` or `return_weights` a tuple: the output, then the written
        cache if there is one, then the weights before dropout `(batch, heads, length, memory_length)` if asked for.
        With a cache, the last axis of the weights is that of its slots; with a rolling cache and several queries, that
        of the old slots followed by the new keys.

    Raises:
        ValueError: If an argument is out of range or has a wrong shape, if call arguments exclude each other, or if new
            keys do not fit the cache.

    Example:

    >>> attention = MultiHeadAttention(num_heads=8, head_dim=64, num_key_value_heads=2, causal=True)
    >>> attention(np.ones((2, 10, 512), "float32")).shape
    (2, 10, 512)

    Reference:
        Vaswani et al. 2017, "Attention Is All You Need", section 3.2.2; grouped-query: Ainslie et al. 2023, "GQA",
        section 2.2; multi-query: Shazeer 2019, "Fast Transformer Decoding", section 3; global tokens: Beltagy et al.
        2020, "Longformer", section 3.1.
    """

    argument_attributes = {
        "sinks": "has_sinks",
        "global_projections": "has_global_projections",
        "output_gate": "has_output_gate",
        "dropout": "dropout_rate",
        "path": "preferred_path",
    }

    def __new__(cls, *args: Any, **kwargs: Any) -> Self:
        # before Python asks for the arguments in their place
        refuse_names("MultiHeadAttention()", kwargs, OPTIONS)
        return super().__new__(cls, *args, **kwargs)

    def __init__(
        self,
        num_heads: int,
        head_dim: int,
        *,
        num_key_value_heads: int | None = None,
        value_head_dim: int | None = None,
        output_dim: int | None = None,
        use_bias: bool | Collection[str] = True,
        position: PositionEncoding | None = None,
        causal: bool = False,
        window: int | tuple[int | None, int | None] | None = None,
        block_size: int | None = None,
        scale: float | None = None,
        logit_soft_cap: float | None = None,
        query_norm: keras.layers.Layer | None = None,
        key_norm: keras.layers.Layer | None = None,
        norm_scope: str = "head",
        projection_limit: float | None = None,
        weighting: AttentionWeighting | Callable[[Any, Any], Any] | None = None,
        sinks: bool = False,
        latents: Latents | None = None,
        output_gate: bool = False,
        global_projections: bool = False,
        dropout: float = 0.0,
        kernel_initializer: Any = "glorot_uniform",
        value_initializer: Any = None,
        output_initializer: Any = None,
        bias_initializer: Any = "zeros",
        path: str = "auto",
        cache_layout: CacheLayout | None = None,
        **kwargs: Any,
    ) -> None:
        super().__init__(**kwargs)
        self.supports_masking = True
        if isinstance(use_bias, bool):
            use_bias = PROJECTIONS if use_bias else ()
        if weighting is not None and not isinstance(weighting, AttentionWeighting):
            weighting = FunctionWeighting(weighting, dtype=self.dtype_policy)
        self.num_heads = num_heads
        self.head_dim = head_dim
        self.num_key_value_heads = num_heads if num_key_value_heads is None else num_key_value_heads
        self.value_head_dim = head_dim if value_head_dim is None else value_head_dim
        self.output_dim = output_dim
        self.use_bias = sorted(use_bias, key=(*PROJECTIONS, *use_bias).index)  # unknown ones last
        self.position = position
        self.causal = causal
        self.window = AttentionMask(causal=causal, window=window, block_size=block_size).window
        self.block_size = block_size
        self.scale = scale
        self.logit_soft_cap = logit_soft_cap
        self.query_norm = query_norm
        self.key_norm = key_norm
        self.norm_scope = norm_scope
        self.projection_limit = projection_limit
        self.weighting = weighting
        self.has_sinks = sinks
        self.latents = latents
        self.has_output_gate = output_gate
        self.has_global_projections = global_projections
        self.dropout_rate = dropout
        self.kernel_initializer = keras.initializers.get(kernel_initializer)
        self.value_initializer = keras.initializers.get(value_initializer)
        self.output_initializer = keras.initializers.get(output_initializer)
        self.bias_initializer = keras.initializers.get(bias_initializer)
        self.preferred_path = path
        self.cache_layout = layout_for(self.window) if cache_layout is None else cache_layout
        check_configuration(self)
        if scale is None:
            self.scale = head_dim**-0.5
        self._heads = (Heads if latents is None else LatentHeads)(self)
        self.query_projection, self.key_projection, self.value_projection = (
            self._dense(name, units) for name, units in self._heads.widths().items()
        )
        self.gate_projection = self._dense("gate", self.num_heads * self.value_head_dim) if output_gate else None
        self.query_global_projection = self.key_global_projection = self.value_global_projection = None
        if global_projections:
            self.query_global_projection, self.key_global_projection, self.value_global_projection = (
                self._dense(f"{name}_global", units) for name, units in self._heads.widths().items()
            )
        self.weight_dropout = Dropout(dropout, name="dropout", dtype=self.dtype_policy) if dropout else None

    def _dense(self, name: str, units: int) -> Dense:
        own = {"value": self.value_initializer, "output": self.output_initializer}
        initializer = own.get(name.removesuffix("_global"))
        index = (*PROJECTIONS, "gate", *GLOBAL_PROJECTIONS).index(name)
        return Dense(
            units,
            use_bias=name.removesuffix("_global") in self.use_bias,
            kernel_initializer=separate(initializer or self.kernel_initializer, index),
            bias_initializer=separate(self.bias_initializer, index),
            dtype=self.dtype_policy,
            name=name,
        )

    @property
    def weight_roles(self) -> dict[str, Role]:
        """The roles of its weights, see `layers.roles`: each device has some of the heads, never part of a head.

        With fewer key-value heads than devices, each device has all key-value heads.
        """
        heads = Role("columns", parts=self.num_heads, where="heads")
        memory = heads
        if self.latents is None and self.num_key_value_heads < self.num_heads:
            memory = Role("columns", parts=self.num_key_value_heads, else_whole=True, where="key-value heads")
        return {
            **{"query": heads, "key": memory, "value": memory, "gate": heads},
            **{"query_global": heads, "key_global": memory, "value_global": memory},
            **{"output": heads._replace(name="rows"), "sinks": WHOLE},
        }

    def build(self, inputs_shape: tuple[int | None, ...], memory_shape: tuple[int | None, ...] | None = None) -> None:
        self._build_memory(inputs_shape if memory_shape is None else memory_shape)
        self._heads.build_queries(inputs_shape)
        for further in (self.gate_projection, *self._global_projections()):
            if further is not None:
                further.build(inputs_shape)
        if self.query_norm is not None and not self.query_norm.built:
            self.query_norm.build(self._norm_shape(self.num_heads))
        self.sinks = None
        if self.has_sinks:
            self.sinks = self.add_weight(shape=(self.num_heads,), initializer="zeros", name="sinks")
        if self.weighting is not None and not self.weighting.built:
            self.weighting.build((None, self.num_heads, None, self.head_dim))
            if stateless_scope() is None:  # else its weights have no values
                check_weighting(self.weighting, self.num_heads, self.cache_layout.slots_in_order)
        self.output_projection = self._dense("output", self.output_dim or inputs_shape[-1])
        self.output_projection.build((None, None, self.num_heads * self.value_head_dim))
        self.built = True

    def _global_projections(self) -> tuple[Dense | None, ...]:
        return self.query_global_projection, self.key_global_projection, self.value_global_projection

    def _build_memory(self, memory_shape: tuple[int | None, ...]) -> None:
        """Builds the key and value projections, unless `project_memory` has built them."""
        self._heads.build_memory(memory_shape)
        if self.key_norm is not None and not self.key_norm.built:
            self.key_norm.build(self._norm_shape(self.num_key_value_heads))
        if self.position is not None and not self.position.built:
            self.position.build(None)

    def _norm_shape(self, heads: int) -> tuple[int | None, ...]:
        return (None, None, heads * self.head_dim) if self.norm_scope == "width" else (None, None, heads, self.head_dim)

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        return super().__call__(*args, **to_own_names(self.causal, args, kwargs))

    def call(
        self,
        inputs: Any,
        memory: Any = None,
        *,
        padding_mask: Any = None,
        lengths: Any = None,
        attention_mask: Any = None,
        segment_ids: Any = None,
        memory_segment_ids: Any = None,
        prefix_length: Any = None,
        global_mask: Any = None,
        positions: Any = None,
        sequence_length: Any = None,
        cache: dict[str, Any] | None = None,
        cache_index: Any = None,
        projected_memory: dict[str, Any] | None = None,
        return_weights: bool = False,
        view: AttentionView | None = None,
        mask: Any = None,
        inputs_mask: Any = None,
        memory_mask: Any = None,
        training: bool | None = None,
    ) -> Any:
        facts = {
            "padding_mask": padding_mask,
            "lengths": lengths,
            "attention_mask": attention_mask,
            "segment_ids": segment_ids,
            "memory_segment_ids": memory_segment_ids,
            "prefix_length": prefix_length,
            "global_mask": global_mask,
            "positions": positions,
            "sequence_length": sequence_length,
            "cache_index": cache_index,
        }
        if view is None:
            view = self.look(
                inputs,
                memory,
                **facts,
                cache=cache,
                projected_memory=projected_memory,
                inputs_mask=mask if inputs_mask is None else inputs_mask,
                memory_mask=memory_mask,
            )
        else:
            refuse_with_view(facts)
        query = self._heads.queries(inputs, view.prepared)  # (batch, heads, length, head_dim)
        if memory is None and projected_memory is None:
            project = self._heads.keys_and_values if cache is None else self._heads.to_cache
            key, value = project(inputs, view.prepared)  # (batch, key_value_heads, length, ...)
        else:
            memory = projected_memory or self.project_memory(memory)
            key, value = memory["key"], memory["value"]  # (batch, key_value_heads, memory_length, ...)
        if cache is not None:
            key, value, cache = self.cache_layout.extend(cache, key, value, view.plan)
        key, value = ops.cast(key, query.dtype), ops.cast(value, query.dtype)
        query, key = self.position_hooks().on_pairs(query, key, view.query_positions, view.key_positions)
        if cache is not None:
            query, key, value = self._heads.of_cache(query, key, value)
        if view.is_global is None:
            heads, weights = self._attend(query, key, value, view, return_weights, training)
        else:
            local = Projected(query, key, value)
            heads, weights = self._attend_with_global(inputs, local, view, return_weights, training)
        # (batch, heads, length, value_head_dim), (batch, heads, length, key_length)
        if cache is not None:
            heads = self._heads.results_of_cache(heads)
        if view.real_queries is not None:
            heads, weights = (_of_real_queries(x, view.real_queries) for x in (heads, weights))
        output = self._join_heads(heads, inputs)  # (batch, length, output_dim)
        results = (output, *(() if cache is None else (cache,)), *((weights,) if return_weights else ()))
        return results if len(results) > 1 else output

    look = view_of_call

    # methods: Keras names stored weights by the first attribute or property that leads to them
    def outlook(self) -> tuple[Any, ...]:
        """What a view depends on besides the call arguments: layers with equal ones share their views."""
        position = self.position
        if position is not None and not position.weights:
            config = {name: value for name, value in position.get_config().items() if name != "name"}
            position = (type(position), repr(config))
        layout = (type(self.cache_layout), repr(self.cache_layout.get_config()), *self._heads.cached_sizes().values())
        return (self.causal, self.window, self.block_size, self.num_heads, self.head_dim, layout, position)

    def position_hooks(self) -> PositionHooks:
        """The hooks of the position encoding, which do nothing without one."""
        return NO_POSITION if self.position is None else self.position

    def _attend(
        self,
        query: Any,
        key: Any,
        value: Any,
        view: AttentionView,
        return_weights: bool,
        training: bool | None,
    ) -> tuple[Any, Any]:
        """Heads `(batch, heads, length, value_head_dim)`, and the weights before dropout, or None."""
        return_weights = return_weights or self.position_hooks().needs_weights
        places = view.query_positions, view.key_positions
        dropout = WeightDropout(self.weight_dropout) if self.weight_dropout is not None and training else None
        result = attend(
            query,
            key,
            value,
            view.mask,
            scale=self.scale,
            bias=self.position_hooks().score_bias(
                query, key, *places, self.scale, Projections(self._queries_of, self._keys_of)
            ),
            soft_cap=self.logit_soft_cap,
            sinks=self.sinks,
            dropout=dropout,
            weighting=self.weighting,
            preferred_path=self.preferred_path,
            return_weights=return_weights,
        )
        heads, weights = result if return_weights else (result, None)
        # what the encoding adds to the values gets the same weights as the values, dropout included
        used = weights if dropout is None or dropout.last is None else dropout.last
        return self.position_hooks().on_output(heads, used, *places), weights

    def _attend_with_global(
        self, inputs: Any, local: Projected, view: AttentionView, return_weights: bool, training: bool | None
    ) -> tuple[Any, Any]:
        """As `_attend`, with global tokens."""
        dropout = WeightDropout(self.weight_dropout) if self.weight_dropout is not None and training else None
        projected = self._heads.projected(inputs, *self._global_projections())
        result = attend_with_global(
            local,
            Projected(*(ops.cast(x, local.query.dtype) for x in projected)),
            view.is_global,
            view.mask,
            scale=self.scale,
            dropout=dropout,
            preferred_path=self.preferred_path,
            return_weights=return_weights,
        )
        return result if return_weights else (result, None)

    def _queries_of(self, vectors: Any) -> Any:
        """Vectors `(count, width)` as queries `(heads, count, head_dim)`, without norm and position."""
        projected = self.query_projection(vectors)
        heads = self._heads.split(projected, vectors.shape[:1], self.num_heads, self.head_dim)
        return ops.transpose(heads, (1, 0, 2))

    def _keys_of(self, vectors: Any) -> Any:
        """Vectors `(count, width)` as keys `(key_value_heads, count, head_dim)`, without norm and position."""
        projected = self.key_projection(vectors)
        heads = self._heads.split(projected, vectors.shape[:1], self.num_key_value_heads, self.head_dim)
        return ops.transpose(heads, (1, 0, 2))

    def _join_heads(self, heads: Any, inputs: Any) -> Any:
        """Heads side by side, gated and projected: `(batch, length, output_dim)`."""
        output = ops.transpose(heads, (0, 2, 1, 3))
        output = ops.reshape(output, (*sizes(output)[:2], self.num_heads * self.value_head_dim))
        if self.gate_projection is not None:
            output = output * ops.sigmoid(self.gate_projection(inputs))
        return self.output_projection(output)

    def takes_lengths(self, training: bool | None = None) -> bool:
        """Returns whether a kernel of the backend takes the lengths of rows, in the place of their padding mask.

        Args:
            training: Whether weights are dropped, if the layer drops any.
        """
        hooks = self.position_hooks()
        changes_scores = type(hooks).score_bias is not PositionHooks.score_bias
        if not has_cudnn() or self.window is not None or self.block_size is not None or changes_scores:
            return False
        query, key = (
            keras.KerasTensor((1, heads, 2, self.head_dim), self.compute_dtype)
            for heads in (self.num_heads, self.num_key_value_heads)
        )
        value = keras.KerasTensor((*key.shape[:-1], self.value_head_dim), self.compute_dtype)
        options = {"soft_cap": self.logit_soft_cap, "sinks": self.sinks, "weighting": self.weighting}
        if training and self.weight_dropout is not None:
            options["dropout"] = WeightDropout(self.weight_dropout)
        mask = AttentionMask(causal=self.causal, key_lengths=ops.ones((1,), "int32"))
        chosen = choose_path(query, key, value, mask, **options, return_weights=hooks.needs_weights)
        return chosen.path == "fused"

    def project_memory(self, memory: Any) -> dict[str, Any]:
        """Returns the keys and values of `memory`, for many calls with `projected_memory`.

        Args:
            memory: `(batch, memory_length, memory_width)`.

        Returns:
            `{"key": (batch, key_value_heads, memory_length, head_dim), "value": ...}`.
        """
        if not self.built:
            with keras.name_scope(self.name, caller=self):
                self._build_memory(memory.shape)
        prepared = self.position_hooks().prepare(ops.arange(sizes(memory)[1]))
        return dict(zip(("key", "value"), self._heads.keys_and_values(memory, prepared), strict=True))

    def make_cache(self, batch_size: Any, capacity: Any) -> dict[str, Any]:
        """Returns an empty key-value cache for causal self-attention, a dictionary of tensors in the compute dtype.

        Args:
            batch_size: Number of rows, an integer or an integer tensor.
            capacity: Largest number of positions that will be decoded, an integer or an integer tensor.
        """
        return self.cache_layout.make(
            batch_size,
            capacity,
            **self._heads.cached_sizes(),
            dtype=self.compute_dtype,
        )

    def compute_output_spec(self, *args: Any, **kwargs: Any) -> Any:
        # the number of results depends on the arguments, so the specification comes from a symbolic call
        return keras.Operation.compute_output_spec(self, *args, **kwargs)

    def compute_output_shape(
        self, inputs_shape: tuple[int | None, ...], memory_shape: tuple[int | None, ...] | None = None
    ) -> tuple[int | None, ...]:
        return (*inputs_shape[:-1], self.output_dim or inputs_shape[-1])


def _of_real_queries(x: Any, mask: Any) -> Any:
    """`x` `(batch, heads, length, ...)` with zeros where the mask of the queries `(batch, length)` is false."""
    return None if x is None else ops.where(ops.cast(mask, "bool")[:, None, :, None], x, ops.cast(0, x.dtype))
