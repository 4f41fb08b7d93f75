"""The one Transformer block: attention, cross-attention, feed-forward, their residuals and norms."""

from collections.abc import Callable
from typing import Any

import keras
from keras import ops

from layers.attention.cache import positions_from
from layers.attention.multi_head_attention import MultiHeadAttention
from layers.dropout import Dropout
from layers.mixture_of_experts import MixtureOfExperts
from layers.norms import MaskedBatchNorm, make_norm

PLACEMENTS = ("post", "pre", "sandwich", "parallel")


@keras.saving.register_keras_serializable("keras_transformer_zoo")
class TransformerBlock(keras.layers.Layer):
    """One block of a Transformer, made of the parts that it is given.

    With `f` a sublayer (self-attention, then cross-attention where there is one, then feed-forward) and dropout on the
    output of each:

    * `placement="post"`: `x = norm(residual_scale * x + f(x))`, the original Transformer; with a `residual_scale` above
      1 this is DeepNorm.
    * `placement="pre"`: `x = x + f(norm(x))`.
    * `placement="sandwich"`: `x = x + norm_after(f(norm(x)))`.
    * `placement="parallel"`: `x = x + attention(norm(x)) [+ cross(norm(x))] + feed_forward(norm(x))`, one norm for all.

    Args:
        attention: Self-attention, a `MultiHeadAttention`; or a mixer that takes its place (`ConvolutionMixer`,
            `RecurrentMixer`).
        feed_forward: Position-wise network, `FeedForward` or `MixtureOfExperts`.
        cross_attention: Attention to a memory, a second `MultiHeadAttention`; None where there is none.
        norm: Kind of norm, see `layers.norms.make_norm`.
        norm_epsilon: Epsilon of the norms.
        norm_options: Further arguments of the norms, for example `{"unit_offset": True}`.
        placement: Where the norms are: "post", "pre", "sandwich" or "parallel".
        attention_norm: Whether there is a norm before the self-attention. Without one, which is for a first block whose
            inputs are normed already, the attention gets the inputs as they are. False only with "pre".
        dropout: Rate of the dropout on the output of each sublayer (residual dropout).
        residual_scale: Factor on the residual branch, for DeepNorm. Only with "post".

    Call arguments:
        inputs: `(batch, length, width)`.
        memory: What cross-attention attends to, `(batch, memory_length, memory_width)`.
        memory_padding_mask: True where the memory is real, `(batch, memory_length)`.
        memory_segment_ids: Segments of the memory, `(batch, memory_length)`: cross-attention stays within a segment.
        padding_mask, attention_mask, segment_ids, prefix_length, positions, sequence_length, cache, cache_index: Of the
            self-attention, see `MultiHeadAttention`.
        projected_memory: Keys and values of the memory as `cross_attention.project_memory` returns them.
        return_weights: Whether to return `{"attention": ..., "cross_attention": ...}` too.
        training: Whether dropout is active.

    Returns:
        `(batch, length, width)`. With `cache`: a tuple with the written cache next. With `return_weights`: a tuple with
        the dictionary of attention weights last.

    Raises:
        ValueError: If `placement`, `attention_norm` or `residual_scale` is out of range, if a cross-attention has no
            memory, or a memory has no cross-attention.

    Example:

    >>> block = TransformerBlock(MultiHeadAttention(8, 64), FeedForward(2048), placement="pre", norm="rms")
    >>> block(np.ones((2, 10, 512), "float32")).shape
    (2, 10, 512)

    Reference:
        Vaswani et al. 2017, section 3.1 and 5.4 (post, residual dropout); Xiong et al. 2020, "On Layer Normalization in
        the Transformer Architecture" (pre); Ding et al. 2021, "CogView", section 2.4 (sandwich); Wang and Komatsuzaki
        2021, "GPT-J-6B" (parallel); Wang et al. 2022, "DeepNet", section 3 (DeepNorm); Warner et al. 2024,
        "ModernBERT", section 2.1.1 (no first attention norm).
    """

    def __init__(
        self,
        attention: keras.layers.Layer,
        feed_forward: keras.layers.Layer,
        cross_attention: keras.layers.Layer | None = None,
        *,
        norm: str = "layer",
        norm_epsilon: float = 1e-6,
        norm_options: dict[str, Any] | None = None,
        placement: str = "post",
        attention_norm: bool = True,
        dropout: float = 0.0,
        residual_scale: float = 1.0,
        **kwargs: Any,
    ):
        super().__init__(**kwargs)
        if placement not in PLACEMENTS:
            raise ValueError(f"placement must be one of {PLACEMENTS}, got {placement!r}.")
        if residual_scale != 1.0 and placement != "post":
            raise ValueError(
                f"residual_scale={residual_scale!r} (DeepNorm) is defined for placement='post', got {placement!r}."
            )
        if not attention_norm and placement != "pre":
            raise ValueError(f"attention_norm=False is defined for placement='pre', got {placement!r}.")
        if not residual_scale > 0:
            raise ValueError(f"residual_scale must be above 0, got {residual_scale!r}.")
        if not 0 <= dropout < 1:
            raise ValueError(f"dropout must be at least 0 and below 1, got {dropout!r}.")
        self.attention = attention
        self.feed_forward = feed_forward
        self.cross_attention = cross_attention
        self.norm = norm
        self.norm_epsilon = norm_epsilon
        self.norm_options = dict(norm_options or {})
        self.placement = placement
        self.has_attention_norm = attention_norm
        self.residual_scale = residual_scale
        self.dropout_rate = dropout

        def make(name: str) -> keras.layers.Layer:
            return make_norm(norm, norm_epsilon, **self.norm_options, name=name, dtype=self.dtype_policy)

        sublayers = ["attention", "feed_forward"]
        if cross_attention is not None:
            sublayers.insert(1, "cross_attention")
        if placement == "parallel":
            self.norms = {"attention": make("norm")}
        else:
            normed = sublayers if attention_norm else sublayers[1:]
            self.norms = {name: make(f"{name}_norm") for name in normed}
        self.norms_after = {}
        if placement == "sandwich":
            self.norms_after = {name: make(f"{name}_norm_after") for name in sublayers}
        self.dropouts = {
            name: Dropout(dropout, name=f"{name}_dropout", dtype=self.dtype_policy) for name in sublayers if dropout
        }

    def build(self, inputs_shape: tuple, memory_shape: tuple | None = None) -> None:
        for part, shapes in (
            (self.attention, (inputs_shape,)),
            (self.cross_attention, (inputs_shape, memory_shape or inputs_shape)),
            (self.feed_forward, (inputs_shape,)),
        ):
            if part is not None and not part.built:
                part.build(*shapes)
        for norm in (*self.norms.values(), *self.norms_after.values()):
            norm.build(inputs_shape)
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
        memory_padding_mask: Any = None,
        memory_segment_ids: Any = None,
        projected_memory: dict[str, Any] | None = None,
        return_weights: bool = False,
        training: bool | None = None,
    ) -> Any:
        self._check_call(memory is not None or projected_memory is not None, cache, segment_ids, return_weights)
        real = padding_mask if cache is None else mask_of_new(inputs, padding_mask, positions, cache_index)
        query_positions = positions
        if positions is None and cache is not None:
            query_positions = positions_from(cache_index, ops.shape(inputs)[1])
        shared = {"return_weights": return_weights, "training": training}
        to_itself = {
            "padding_mask": padding_mask,
            "attention_mask": attention_mask,
            "segment_ids": segment_ids,
            "prefix_length": prefix_length,
            "positions": positions,
            "sequence_length": sequence_length,
            "cache": cache,
            "cache_index": cache_index,
            **shared,
        }
        to_memory = {
            "positions": query_positions,
            "padding_mask": memory_padding_mask,
            "segment_ids": None if memory_segment_ids is None else segment_ids,
            "memory_segment_ids": memory_segment_ids,
            "projected_memory": projected_memory,
            **shared,
        }
        weights, written = {}, {}
        functions: dict[str, Callable] = {"attention": lambda x: self._attend(x, to_itself, weights, written)}
        if self.cross_attention is not None:
            functions["cross_attention"] = lambda x: self._cross_attend(x, memory, to_memory, weights)
        functions["feed_forward"] = lambda x: self._feed_forward(x, real, training)

        x = inputs
        if self.placement == "parallel":
            normed = normalize(self.norms["attention"], x, real, training)
            for name, function in functions.items():
                x = x + self._drop(name, function(normed), training)
        else:
            for name, function in functions.items():
                x = self._sublayer(name, function, x, real, training)
        results = (x,)
        if cache is not None:
            results += (written["cache"],)
        if return_weights:
            results += (weights,)
        return results if len(results) > 1 else x

    def _check_call(self, has_memory: bool, cache: Any, segment_ids: Any, return_weights: bool) -> None:
        if has_memory != (self.cross_attention is not None):
            raise ValueError(
                "memory or projected_memory must be given exactly when the block has a cross_attention: "
                f"cross_attention={self.cross_attention!r}, memory given: {has_memory}."
            )
        is_attention = isinstance(self.attention, MultiHeadAttention)
        if not is_attention and (cache is not None or segment_ids is not None or return_weights):
            raise ValueError(
                f"cache, segment_ids and return_weights need a MultiHeadAttention, attention is {self.attention!r}."
            )

    def _attend(self, x: Any, options: dict[str, Any], weights: dict[str, Any], written: dict[str, Any]) -> Any:
        """Self-attention, or the mixer in its place; what else it returns goes into `weights` and `written`."""
        if not isinstance(self.attention, MultiHeadAttention):
            return self.attention(x, mask=options["padding_mask"], training=options["training"])
        result = self.attention(x, **options)
        if options["return_weights"]:
            *result, weights["attention"] = result
            result = result[0] if options["cache"] is None else result
        if options["cache"] is not None:
            result, written["cache"] = result
        return result

    def _cross_attend(self, x: Any, memory: Any, options: dict[str, Any], weights: dict[str, Any]) -> Any:
        result = self.cross_attention(x, memory, **options)
        if options["return_weights"]:
            result, weights["cross_attention"] = result
        return result

    def _feed_forward(self, x: Any, real: Any, training: bool | None) -> Any:
        if isinstance(self.feed_forward, MixtureOfExperts):
            return self.feed_forward(x, mask=real, training=training)  # padding takes no expert's time
        return self.feed_forward(x, training=training)

    def _sublayer(self, name: str, function: Callable, x: Any, real: Any, training: bool | None) -> Any:
        if self.placement == "post":
            residual = x if self.residual_scale == 1.0 else self.residual_scale * x
            return normalize(self.norms[name], residual + self._drop(name, function(x), training), real, training)
        output = function(normalize(self.norms[name], x, real, training) if name in self.norms else x)
        if self.placement == "sandwich":
            output = normalize(self.norms_after[name], output, real, training)
        return x + self._drop(name, output, training)

    def _drop(self, name: str, x: Any, training: bool | None) -> Any:
        return self.dropouts[name](x, training=training) if name in self.dropouts else x

    def compute_output_spec(self, *args: Any, **kwargs: Any) -> Any:
        # by a symbolic call: how many results there are depends on the arguments
        return keras.Operation.compute_output_spec(self, *args, **kwargs)

    def compute_output_shape(self, inputs_shape: tuple, memory_shape: tuple | None = None) -> tuple:
        return tuple(inputs_shape)

    def get_config(self) -> dict[str, Any]:
        config = super().get_config()
        for name in ("attention", "feed_forward", "cross_attention"):
            part = getattr(self, name)
            config[name] = None if part is None else keras.saving.serialize_keras_object(part)
            if part is not None:
                config[name].pop("build_config", None)  # it is built with this layer
        config.update(
            norm=self.norm,
            norm_epsilon=self.norm_epsilon,
            norm_options=self.norm_options,
            placement=self.placement,
            attention_norm=self.has_attention_norm,
            dropout=self.dropout_rate,
            residual_scale=self.residual_scale,
        )
        return config

    @classmethod
    def from_config(cls, config: dict[str, Any]) -> "TransformerBlock":
        config = dict(config)
        for part in ("attention", "feed_forward", "cross_attention"):
            if config.get(part) is not None:
                config[part] = keras.saving.deserialize_keras_object(config[part])
        return cls(**config)


def mask_of_new(inputs: Any, padding_mask: Any, positions: Any, cache_index: Any) -> Any:
    """Returns which of the positions that a cached call adds are real, `(batch, length)`; None where all are.

    Args:
        inputs: The new positions, `(batch, length, width)`.
        padding_mask: True where the entry of a cache's slot is real, `(batch, capacity)`, or None.
        positions: Positions, `(length,)` or `(batch, length)`, below zero where there is padding; or None.
        cache_index: Slot of the first new entry, a scalar integer, or one per row `(batch,)`.
    """
    batch, length = ops.shape(inputs)[:2]
    masks = []
    if positions is not None:
        masks.append(ops.broadcast_to(ops.convert_to_tensor(positions) >= 0, (batch, length)))
    if padding_mask is not None:
        slots = ops.broadcast_to(positions_from(cache_index, length), (batch, length))
        masks.append(ops.take_along_axis(ops.cast(padding_mask, "bool"), slots, axis=1))
    if len(masks) == 2:
        return ops.logical_and(*masks)
    return masks[0] if masks else None


def normalize(norm: keras.layers.Layer, x: Any, padding_mask: Any, training: bool | None) -> Any:
    """Returns `norm(x)`; a norm that takes statistics over positions gets to know which are real.

    Args:
        norm: What `make_norm` returned.
        x: `(batch, length, width)`.
        padding_mask: True where a position is real, `(batch, length)`; None where all are.
        training: Whether the statistics of the batch are used.
    """
    if isinstance(norm, MaskedBatchNorm):
        return norm(x, mask=padding_mask, training=training)
    return norm(x)
