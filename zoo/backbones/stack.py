"""A stack of blocks with what comes before and after it: positions, embedding norm and dropout, final norm."""

from collections.abc import Callable
from typing import Any

import keras
from keras import ops

from layers.attention import AttentionMask, Latents, MultiHeadAttention, path_up_to
from layers.attention.checks import PROJECTIONS
from layers.block import TransformerBlock, normalize
from layers.capture import is_captured, is_capturing, point
from layers.dropout import Dropout
from layers.feed_forward import FeedForward
from layers.keras_internals import with_cast_weights
from layers.mixture_of_experts import MixtureOfExperts
from layers.norm_makers import make_norm
from layers.positions import PositionEncoding, make_position
from layers.positions.base import positions_from
from layers.view import View
from zoo.backbones.left_aligned import LeftAligned
from zoo.backbones.lengths import positions_of_packed, text_lengths
from zoo.backbones.traced_once import TracedOnce
from zoo.config import PositionConfig, TransformerConfig
from zoo.config.checks import arguments_of
from zoo.config.mixer import MIXERS
from zoo.config.transformer import InitialGains


class TransformerStack(keras.layers.Layer):
    """The encoder or the decoder of a Transformer: embedded tokens in, hidden states out.

    Args:
        config: The configuration.
        num_layers: Number of layers. Layers of a group share one block.
        causal: Whether a position sees only itself and earlier ones.
        cross_attention: Whether the blocks attend to a memory.
        widen: Maps embeddings to `hidden_dim` after positions, norm and dropout (ALBERT); None if embeddings have this
            width.

    Call arguments:
        inputs: Token embeddings `(batch, length, embedding_dim)`.
        positions: `(length,)` or `(batch, length)`. Default `0, 1, 2, ...`, in each packed sequence anew.
        padding_mask: True where a token is real, `(batch, length)`, or `(batch, capacity)` with caches.
        sequence_ids: Integers `(batch, length)` of packed sequences: a token sees its own sequence only.
        global_mask: True where a token is global, `(batch, length)`, with `attention.global_tokens`. Default none.
        sequence_length: Number of tokens of each text, for positions that depend on it: a scalar, `(batch,)` or
            `(batch, length)`. Default the number of real tokens of each row or packed sequence. No default with caches.
        memory: `(batch, memory_length, hidden_dim)`.
        memory_padding_mask: `(batch, memory_length)`.
        memory_sequence_ids: Integers `(batch, memory_length)` of packed pairs: a token sees the memory of its own pair.
        caches: One key-value cache per layer, or that of its mixer.
        cache_index: Number of entries already in the caches, a scalar integer or one per row `(batch,)`.
        projected_memory: The result of `project_memory`, in place of `memory`.
        training: Whether dropout is active.

    Returns:
        Hidden states `(batch, length, hidden_dim)`. With `caches` a tuple of these and the written caches. See
        `layers.capture.Capture` for intermediate results.
    """

    def __init__(
        self,
        config: TransformerConfig,
        num_layers: int,
        causal: bool,
        cross_attention: bool = False,
        widen: Callable[[Any], Any] | None = None,
        **kwargs: Any,
    ) -> None:
        super().__init__(**kwargs)
        # Keras would round the states in caches; inputs are cast by `call`
        self.autocast = False
        self.config = config
        self.num_layers = num_layers
        self.causal = causal
        self.has_cross_attention = cross_attention
        self._widen = widen
        self._call_once = TracedOnce()
        # position encodings of the embeddings, and those that all blocks share; others are in the blocks' attention
        self.position: PositionEncoding | None = self._shared_position(config.position)
        self.attention_position: PositionEncoding | None = self._shared_position(config.attention_position)
        norm = config.norm
        self.embedding_norm: keras.layers.Layer | None = self._make_norm("embedding_norm") if norm.embedding else None
        self.embedding_dropout: Dropout | None = None
        rate = config.dropout if config.embedding.dropout is None else config.embedding.dropout
        if rate:
            self.embedding_dropout = Dropout(rate, name="embedding_dropout", dtype=self.dtype_policy)
        self.block_of_layer: tuple[int, ...] = tuple(
            config.block_of_layer(index, num_layers) for index in range(num_layers)
        )
        self.blocks: list[TransformerBlock] = [self._make_block(index) for index in range(max(self.block_of_layer) + 1)]
        has_final_norm = norm.placement != "post" if norm.final is None else norm.final
        self.final_norm: keras.layers.Layer | None = self._make_norm("final_norm") if has_final_norm else None

    def layers_in_order(self) -> list[TransformerBlock]:
        """The block of each layer; layers of a group share one."""
        return [self.blocks[number] for number in self.block_of_layer]

    @property
    def attentions(self) -> dict[int, MultiHeadAttention]:
        """The self-attention of each block that has it, and no mixer in its place, by the number of the block."""
        return {index: block.attention for index, block in enumerate(self.blocks) if not self.config.has_mixer(index)}

    @property
    def position_by_length(self) -> PositionEncoding | None:
        """The position encoding that depends on the length of the text; None if there is none."""
        positions = (attention.position for attention in self.attentions.values())
        return next((position for position in positions if position is not None and position.depends_on_length), None)

    def _make_norm(self, name: str) -> keras.layers.Layer:
        norm = self.config.norm
        return make_norm(norm.kind, norm.epsilon, **norm.layer_options(), name=name, dtype=self.dtype_policy)

    def _weighting(self) -> Any:
        """The function, or a new instance of the class, that is registered with Keras; None for the softmax."""
        name = self.config.attention.weighting
        found = name and keras.saving.get_registered_object(name)
        return found(dtype=self.dtype_policy) if isinstance(found, type) else found

    def _query_key_norm(self, name: str) -> keras.layers.Layer | None:
        kind, norm = self.config.attention.query_key_norm, self.config.norm
        if kind is None:
            return None
        options = norm.layer_options() if kind == norm.kind else {}
        if self.config.attention.query_key_norm_scope == "per_head":
            options["weight_axes"] = 2  # heads and head_dim
        return make_norm(kind, norm.epsilon, **options, name=name, dtype=self.dtype_policy)

    def _shared_position(self, position: PositionConfig | None) -> PositionEncoding | None:
        if position is None or not (position.is_shared() or position.acts_on_embeddings()):
            return None
        return self._make_position(position)

    def _make_position(self, position: PositionConfig, has_window: bool = False) -> PositionEncoding:
        config = self.config
        sizes = {
            "num_heads": config.attention.num_heads,
            "head_dim": config.head_dim,
            "dim": config.embedding_dim,
            "hidden_dim": config.hidden_dim,
            "max_length": config.max_length,
            "sequence_length": config.max_length,
            "bidirectional": not self.causal,
        }
        if config.initializer_range is not None:
            sizes["embeddings_initializer"] = self._initializer()
        options = {"name": position.kind, "dtype": self.dtype_policy}
        return make_position(position.kind, sizes, **position.layer_options(has_window), **options)

    def _block_position(self, index: int) -> PositionEncoding | None:
        position = self.config.position_in_attention
        if not position.acts_in_layer(index):
            return None
        if position.is_shared():
            return self.position if self.attention_position is None else self.attention_position
        return self._make_position(position, self.config.attention.has_window(index))

    def _initializer(self, default: str | None = None, gain: float = 1.0) -> Any:
        """Initial weights as configured; `gain` multiplies their deviation."""
        deviation = self.config.initializer_range
        if deviation is not None:
            return keras.initializers.TruncatedNormal(stddev=gain * deviation)
        if default is not None:
            return default
        return keras.initializers.VarianceScaling(gain**2, mode="fan_avg", distribution="uniform")  # Glorot

    def _make_block(self, index: int) -> TransformerBlock:
        config, attention = self.config, self.config.attention
        stack = "decoder" if self.causal else "encoder"
        gains = config.initial_gains(stack)
        scale = attention.scale
        if attention.scale_by_layer:
            scale = (config.head_dim**-0.5 if scale is None else scale) / (index + 1)

        def make_latents() -> Latents | None:
            if attention.latent_dim is None:
                return None
            return Latents(
                attention.latent_dim,
                attention.shared_key_dim,
                attention.query_latent_dim,
                use_bias=attention.has_bias("latent"),
                kernel_initializer=self._initializer(),
                name="latents",
                dtype=self.dtype_policy,
            )

        def make_attention(name: str, **options: Any) -> MultiHeadAttention:
            arguments = {
                **arguments_of(MultiHeadAttention, attention),
                "head_dim": config.head_dim,
                "use_bias": [part for part in PROJECTIONS if attention.has_bias(part)],
                "scale": scale,
                "weighting": self._weighting(),
                "window": None,
                **options,
            }
            return MultiHeadAttention(
                query_norm=self._query_key_norm("query_norm"),
                key_norm=self._query_key_norm("key_norm"),
                norm_scope="width" if attention.query_key_norm_scope == "width" else "head",
                kernel_initializer=self._initializer(),
                value_initializer=self._initializer(gain=gains.value),
                output_initializer=self._initializer(gain=gains.output),
                bias_initializer=config.bias_initializer,
                name=name,
                dtype=self.dtype_policy,
                **arguments,
            )

        def make_mixer() -> keras.layers.Layer:
            kind = MIXERS[config.mixer.kind]
            return kind(
                **arguments_of(kind, config.mixer),
                kernel_initializer=self._initializer(),
                output_initializer=self._initializer(gain=gains.output),
                bias_initializer=config.bias_initializer,
                name="mixer",
                dtype=self.dtype_policy,
            )

        def make_self_attention() -> MultiHeadAttention:
            window = attention.window if attention.has_window(index) else None
            return make_attention(
                "attention",
                causal=self.causal,
                position=self._block_position(index),
                window=window,
                global_projections=attention.global_tokens is not None,
                path=path_up_to(AttentionMask(causal=self.causal, window=window), config.max_length),
                latents=make_latents(),
            )

        return TransformerBlock(
            attention=make_mixer() if config.has_mixer(index) else make_self_attention(),
            cross_attention=make_attention("cross_attention") if self.has_cross_attention else None,
            feed_forward=self._make_feed_forward(index, gains),
            norm=self._make_norm("norm"),
            placement=config.norm.placement,
            attention_norm=config.norm.first_attention or index > 0,
            shared_norm=config.norm.shared,
            dropout=config.dropout,
            residual_scale=config.residual_factor(stack),
            branch_scale=config.branch_scale,
            layer_scale=config.layer_scale,
            drop_path=config.drop_path * (index / (self.num_layers - 1) if self.num_layers > 1 else 1),
            remat=config.remat,
            name=f"block_{index}",
            dtype=self.dtype_policy,
        )

    def _make_feed_forward(self, index: int, gains: InitialGains) -> keras.layers.Layer | None:
        config = self.config.feed_forward
        if not config.has_network(index):
            return None
        kind = MixtureOfExperts if config.has_experts(index) else FeedForward
        arguments = arguments_of(kind, config)
        if kind is FeedForward:
            arguments["intermediate_dim"] = config.dense_intermediate_dim or config.intermediate_dim
        return kind(
            **arguments,
            kernel_initializer=self._initializer(gain=gains.feed_forward),
            output_initializer=self._initializer(gain=gains.output),
            bias_initializer=self.config.bias_initializer,
            name="feed_forward",
            dtype=self.dtype_policy,
        )

    def build(self, inputs_shape: tuple[int | None, ...]) -> None:
        shape = (None, None, self.config.hidden_dim)
        for position in (self.position, self.attention_position):
            if position is not None:
                position.build((None,))
        if self.embedding_norm is not None:
            self.embedding_norm.build((None, None, self.config.embedding_dim))
        if self.final_norm is not None:
            self.final_norm.build(shape)
        for block in self.blocks:
            block.build(shape, shape)
        # a list would be tracked, with the layers that are part of an outlook
        self._outlook_of_block = [block.outlook() for block in self.blocks].__getitem__
        self.built = True

    @property
    def output_shape(self) -> tuple[int | None, ...]:
        """The shape of the hidden states, for `summary()`."""
        return (None, None, self.config.hidden_dim)

    @with_cast_weights
    def call(
        self,
        inputs: Any,
        *,
        positions: Any = None,
        padding_mask: Any = None,
        sequence_ids: Any = None,
        global_mask: Any = None,
        sequence_length: Any = None,
        memory: Any = None,
        memory_padding_mask: Any = None,
        memory_sequence_ids: Any = None,
        caches: list[dict[str, Any]] | None = None,
        cache_index: Any = None,
        projected_memory: list[dict[str, Any]] | None = None,
        training: bool | None = None,
    ) -> Any:
        inputs = ops.cast(inputs, self.compute_dtype)
        memory = None if memory is None else ops.cast(memory, self.compute_dtype)
        x = point(f"{self.name}.embeddings", inputs)
        if self.position is not None:
            places = positions_from(cache_index, ops.shape(x)[1]) if positions is None else positions
            skips_padding = self.config.position.skips_padding
            if positions is None and sequence_ids is not None:
                places = positions_of_packed(sequence_ids)
            elif skips_padding and positions is None and padding_mask is not None and caches is None:
                places = ops.maximum(ops.cumsum(ops.cast(padding_mask, "int32"), axis=1) - 1, 0)
            if caches is not None:
                # rows that have ended are fed on while others have not, and proposals of a draft may go on behind the
                # last position; a table has no place for them, nor for padding, below 0
                places = ops.clip(places, 0, self.config.max_length - 1)
            x = self.position.on_embeddings(x, places)
        # with caches, padding_mask is about slots; the norms see only the new positions, all real
        token_mask = padding_mask if caches is None else None
        if self.embedding_norm is not None:
            x = normalize(self.embedding_norm, x, token_mask, training)
        if self.embedding_dropout is not None:
            x = self.embedding_dropout(x, training=training)
        if self._widen is not None:
            x = self._widen(x)  # (batch, length, hidden_dim)
        if self.position_by_length is not None and sequence_length is None and caches is None:
            sequence_length = text_lengths(ops.shape(inputs)[1], padding_mask, sequence_ids)
        x = point(f"{self.name}.hidden", x)
        # weights are of each layer, and a mixer has none
        has_weights = self.config.mixer is None
        return_weights = has_weights and any(
            is_captured(f"{self.name}.{kind}") for kind in ("attention", "cross_attention")
        )
        rows = memory_rows = None
        if caches is None and not is_capturing():
            # given positions need not ascend, as they must where the causal order is by place
            moves = padding_mask is not None and sequence_ids is None and (positions is None or not self.causal)
            if moves and self._takes_lengths("attention", training):
                rows = LeftAligned(padding_mask)
                x, padding_mask = rows.align(x), rows.padding_mask
                positions = rows.positions(positions)
                if sequence_length is not None and len(ops.shape(sequence_length)) == 2:
                    sequence_length = rows.align(sequence_length)
            if memory is not None and memory_padding_mask is not None and memory_sequence_ids is None:
                if self._takes_lengths("cross_attention", training):
                    memory_rows = LeftAligned(memory_padding_mask)
                    memory, memory_padding_mask = memory_rows.align(memory), None
        facts = {
            "padding_mask": padding_mask,
            "lengths": None if rows is None else rows.lengths,
            "segment_ids": sequence_ids,
            "global_mask": global_mask,
            "positions": positions,
            "sequence_length": sequence_length,
            "cache_index": cache_index,
            "memory_padding_mask": memory_padding_mask,
            "memory_lengths": None if memory_rows is None else memory_rows.lengths,
            "memory_segment_ids": memory_sequence_ids,
        }
        views: dict[Any, View] = {}
        new_caches = []
        for index, block in enumerate(self.layers_in_order()):
            own = {
                "cache": None if caches is None else caches[index],
                "projected_memory": None if projected_memory is None else projected_memory[index],
            }
            outlook = self._outlook_of_block(self.block_of_layer[index])
            if outlook not in views:
                views[outlook] = block.look(x, memory, **facts, **own)
            result = self._call_once(
                block, x, memory, view=views[outlook], return_weights=return_weights, training=training, **own
            )
            x, *rest = result if isinstance(result, tuple) else (result,)
            if caches is not None:
                new_caches.append(rest[0])
            x = point(f"{self.name}.hidden", x)
            for kind, weights in rest[-1].items() if return_weights else ():
                point(f"{self.name}.{kind}", weights, may_change=False)
        if rows is not None:
            x = rows.restore(x)
        x = self.finish(x, token_mask, training)
        return x if caches is None else (x, new_caches)

    def _takes_lengths(self, kind: str, training: bool | None) -> bool:
        """Whether attention of all blocks, or their cross-attention, is by a kernel that takes lengths."""
        layers = self.attentions.values() if kind == "attention" else [block.cross_attention for block in self.blocks]
        return bool(layers) and all(layer.takes_lengths(training) for layer in layers)

    def finish(self, hidden: Any, padding_mask: Any = None, training: bool | None = None) -> Any:
        """Returns the hidden states after the last layer as a call returns them: normed if there is a final norm.

        Args:
            hidden: `(batch, length, hidden_dim)`.
            padding_mask: True where a token is real, `(batch, length)`; None where all are.
            training: Whether the statistics of the batch are used.
        """
        return hidden if self.final_norm is None else normalize(self.final_norm, hidden, padding_mask, training)

    def make_caches(self, batch_size: Any, capacity: int) -> list[dict[str, Any]]:
        """Returns empty caches, one per layer.

        A layer with a window, or with a convolution, holds no more than it sees.

        Args:
            batch_size: Rows.
            capacity: Number of positions.
        """
        return [block.attention.make_cache(batch_size, capacity) for block in self.layers_in_order()]

    def project_memory(self, memory: Any) -> list[dict[str, Any]]:
        """Returns the keys and values of the memory for the cross-attention of each layer.

        Args:
            memory: `(batch, memory_length, hidden_dim)`.
        """
        projected = [block.cross_attention.project_memory(memory) for block in self.blocks]
        return [projected[number] for number in self.block_of_layer]
