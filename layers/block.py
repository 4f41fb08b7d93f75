"""The Transformer block of all models: attention, cross-attention, feed-forward, their residuals and norms."""

from collections.abc import Callable
from typing import Any

import keras
from keras import ops

from layers.attention.masks import AttentionMask, both
from layers.call_arguments import accepts_argument, arguments_for, is_argument, mask_argument
from layers.constructor_arguments import ConfigFromArguments
from layers.dropout import Dropout
from layers.errors import describe
from layers.fusion import sizes
from layers.keras_internals import with_cast_weights
from layers.norm_makers import NormMaker
from layers.norms import LayerNorm
from layers.positions.base import positions_from
from layers.remat import rematerialize
from layers.roles import WHOLE, Role
from layers.view import View, closed, opened, refuse_with_view

PLACEMENTS = ("post", "pre", "sandwich", "res_post", "parallel")


@keras.saving.register_keras_serializable("keras_transformer_zoo")
class TransformerBlock(ConfigFromArguments, keras.layers.Layer):
    """One block of a Transformer: sublayers with residuals, norms and dropout.

    The sublayers are self-attention, cross-attention and feed-forward (if there are such). Dropout acts on the output
    of each. For a sublayer `f`:

    * `placement="post"`: `x = norm(residual_scale * x + f(x))`, as in the original Transformer. A `residual_scale`
      above 1 gives DeepNorm.
    * `placement="pre"`: `x = x + f(norm(x))`.
    * `placement="sandwich"`: `x = x + norm_after(f(norm(x)))`.
    * `placement="res_post"`: `x = x + norm_after(f(x))`, as in OLMo 2.
    * `placement="parallel"`: `x = x + attention(norm(x)) [+ cross(norm(x))] + feed_forward(norm(x))`. The sublayers
      share one norm, or have one each with `shared_norm=False`, as in GPT-NeoX.

    `branch_scale` multiplies each `f(x)` by a number, `layer_scale` by a learned factor per feature. `drop_path` leaves
    `f(x)` out for some rows in training.

    A sublayer is any layer. It is called with the padding mask if it has an argument `padding_mask` or `mask`, and with
    the call arguments of the block that are meant for it. If it is given a cache, it must return a tuple with the
    written cache. If it is asked for weights, it must return a tuple with the weights last.

    Args:
        attention: Self-attention, a `MultiHeadAttention`; or a mixer that replaces it (`ConvolutionMixer`,
            `RecurrentEncoder`).
        feed_forward: Position-wise network, `FeedForward` or `MixtureOfExperts`; None for none, as in Mamba 2.
        cross_attention: Attention to a memory, a second `MultiHeadAttention`; None for no cross-attention.
        norm: A norm layer, copied for each norm of the block with the dtype of the block; or a callable without
            arguments that makes a norm layer, such as a class. Default `LayerNorm(1e-6)`.
        placement: Where the norms are: "post", "pre", "sandwich", "res_post" or "parallel".
        attention_norm: Whether there is a norm before the self-attention. False is for a first block whose inputs are
            normed already, and allowed only with "pre".
        shared_norm: Whether parallel sublayers share their norm. False only with "parallel".
        dropout: Rate of the dropout on the output of each sublayer (residual dropout), in [0, 1).
        residual_scale: Factor on the residual branch, for DeepNorm. Only with "post".
        branch_scale: Factor on the outputs of the sublayers, before they are added.
        layer_scale: Initial value of the learned factors on the outputs of the sublayers; None for no factors.
        drop_path: Rate at which training leaves out the output of a sublayer for a whole row (stochastic depth), in
            [0, 1). Outputs that are kept are divided by the probability of being kept.
        remat: Whether training keeps only the inputs of the block and computes the rest again in the backward pass.
            This takes less memory and about a third more time. It has no effect on calls with a cache or
            `return_weights`.

    Call arguments:
        inputs: `(batch, length, width)`.
        memory: What cross-attention attends to, `(batch, memory_length, memory_width)`.
        padding_mask: True where a position is real, `(batch, length)`; with a cache `(batch, capacity)`. Combined with
            the mask that `inputs` carry from a Keras layer (`Embedding(mask_zero=True)`, `Masking`).
        lengths: Integers `(batch,)`: number of real positions in each row, which stand first. The self-attention is
            given it in the place of the padding mask.
        positions: Positions of the inputs, `(length,)` or `(batch, length)`, for the self-attention and the queries of
            the cross-attention.
        sequence_length, cache, cache_index: Arguments of the self-attention, see `MultiHeadAttention`.
        projected_memory: Keys and values of the memory, the result of `cross_attention.project_memory`.
        return_weights: Whether to return the attention weights too.
        view: The result of `look`, made once for several blocks, in place of all arguments but `inputs`, `memory`,
            `cache`, `projected_memory`, `return_weights` and `training`.
        mask, inputs_mask, memory_mask: Keras's masks of `inputs` (the first two) and `memory`, filled in by Keras.
        training: Whether dropout is active.
        arguments: Further tensors. Names that begin with `memory_` (`memory_padding_mask`, or `memory_lengths` in its
            place, `memory_segment_ids`) are for the cross-attention, all others (`attention_mask`, `segment_ids`,
            `prefix_length`, ...) for the self-attention; see `MultiHeadAttention`.

    Returns:
        The output `(batch, length, width)`. With `cache` or `return_weights` a tuple: the output, then the written
        cache if there is one, then the weights `{"attention": ..., "cross_attention": ...}` if asked for.

    Raises:
        ValueError: If an argument is out of range, if there is a memory without a cross-attention or the reverse, or if
            a sublayer does not take a call argument that is meant for it.

    Example:

    >>> block = TransformerBlock(MultiHeadAttention(8, 64), FeedForward(2048), placement="pre", norm=RMSNorm(1e-6))
    >>> block(np.ones((2, 10, 512), "float32")).shape
    (2, 10, 512)

    Reference:
        Vaswani et al. 2017, section 3.1 and 5.4 (post, residual dropout); Xiong et al. 2020, "On Layer Normalization in
        the Transformer Architecture" (pre); Ding et al. 2021, "CogView", section 2.4 (sandwich); OLMo Team 2025, "2
        OLMo 2 Furious", section 3.2 and Liu et al. 2022, "Swin Transformer V2", section 3.2 (res_post); Wang and
        Komatsuzaki 2021, "GPT-J-6B" and Black et al. 2022, "GPT-NeoX-20B", section 2.1 (parallel); Wang et al. 2022,
        "DeepNet", section 3 (DeepNorm); Warner et al. 2024, "ModernBERT", section 2.1.1 (no first attention norm);
        Touvron et al. 2021, "Going deeper with Image Transformers", section 2 (layer scale); Huang et al. 2016, "Deep
        Networks with Stochastic Depth", section 3 (drop path); Granite Team 2024, "Granite 3.0 Language Models"
        (branch scale).
    """

    argument_attributes = {"norm": "_make_norm.norm", "attention_norm": "has_attention_norm", "dropout": "dropout_rate"}

    def __init__(
        self,
        attention: keras.layers.Layer,
        feed_forward: keras.layers.Layer | None,
        cross_attention: keras.layers.Layer | None = None,
        *,
        norm: keras.layers.Layer | Callable[[], keras.layers.Layer] | None = None,
        placement: str = "post",
        attention_norm: bool = True,
        shared_norm: bool = True,
        dropout: float = 0.0,
        residual_scale: float = 1.0,
        branch_scale: float = 1.0,
        layer_scale: float | None = None,
        drop_path: float = 0.0,
        remat: bool = False,
        **kwargs: Any,
    ) -> None:
        super().__init__(**kwargs)
        if placement not in PLACEMENTS:
            raise ValueError(f"placement must be one of {PLACEMENTS}, got {placement!r}.")
        if residual_scale != 1.0 and placement != "post":
            raise ValueError(
                f"residual_scale must be 1.0 with placement={placement!r}, got {residual_scale!r}: DeepNorm is defined "
                "for placement='post'."
            )
        if not attention_norm and placement != "pre":
            raise ValueError(
                f"attention_norm must be True with placement={placement!r}, got False: only placement='pre' can do "
                "without it."
            )
        if not shared_norm and placement != "parallel":
            raise ValueError(
                f"shared_norm must be True with placement={placement!r}, got False: only placement='parallel' has "
                "sublayers that can share a norm."
            )
        for name, scale in (("residual_scale", residual_scale), ("branch_scale", branch_scale)):
            if not scale > 0:
                raise ValueError(f"{name} must be above 0, got {scale!r}.")
        for name, rate in (("dropout", dropout), ("drop_path", drop_path)):
            if not 0 <= rate < 1:
                raise ValueError(f"{name} must be at least 0 and below 1, got {rate!r}.")
        self.supports_masking = True
        # Keras would round the states in caches; inputs are cast by `call`
        self.autocast = False
        self.attention = attention
        self.feed_forward = feed_forward
        self.cross_attention = cross_attention
        self.placement = placement
        self.has_attention_norm = attention_norm
        self.shared_norm = shared_norm
        self.residual_scale = residual_scale
        self.branch_scale = branch_scale
        self.dropout_rate = dropout
        self.layer_scale = layer_scale
        self.drop_path = drop_path
        self.remat = remat

        others = {"cross_attention": cross_attention, "feed_forward": feed_forward}
        self.sublayers = ["attention", *(name for name, part in others.items() if part is not None)]
        self._make_norm = NormMaker(LayerNorm(1e-6) if norm is None else norm)
        self.norms, self.norms_after = {}, {}
        if placement == "parallel" and shared_norm:
            self.norms = {"attention": self._make_norm("norm", self.dtype_policy)}
        elif placement != "res_post":
            normed = self.sublayers if attention_norm else self.sublayers[1:]
            self.norms = {name: self._make_norm(f"{name}_norm", self.dtype_policy) for name in normed}
        if placement in ("sandwich", "res_post"):
            self.norms_after = {
                name: self._make_norm(f"{name}_norm_after", self.dtype_policy) for name in self.sublayers
            }
        self.dropouts: dict[str, Dropout] = {}
        self.path_dropouts: dict[str, Dropout] = {}
        self.scales: dict[str, Any] = {}
        for name in self.sublayers:
            if dropout:
                self.dropouts[name] = Dropout(dropout, name=f"{name}_dropout", dtype=self.dtype_policy)
            if drop_path:
                self.path_dropouts[name] = Dropout(
                    drop_path, noise_shape=(None, 1, 1), name=f"{name}_drop_path", dtype=self.dtype_policy
                )

    @property
    def weight_roles(self) -> dict[str, Role]:
        """The roles of its own weights, see `layers.roles`. Sublayers have roles of their own."""
        return {f"{name}_scale": WHOLE for name in self.sublayers}

    @property
    def counts_padding(self) -> bool:
        """Whether padding that is not masked affects other positions through the feed-forward network or a norm.

        With causal attention, padding on the right affects no real position through the attention.
        """
        parts = [*self.norms.values(), *self.norms_after.values()]
        parts += [] if self.feed_forward is None else [self.feed_forward]
        return any(accepts_argument(part, "mask") or accepts_argument(part, "padding_mask") for part in parts)

    def build(self, inputs_shape: tuple[int | None, ...], memory_shape: tuple[int | None, ...] | None = None) -> None:
        for part, shapes in (
            (self.attention, (inputs_shape,)),
            (self.cross_attention, (inputs_shape, memory_shape or inputs_shape)),
            (self.feed_forward, (inputs_shape,)),
        ):
            if part is not None and not part.built:
                part.build(*shapes)
        for norm in (*self.norms.values(), *self.norms_after.values()):
            norm.build(inputs_shape)
        if self.layer_scale is not None:
            initial, shape = keras.initializers.Constant(self.layer_scale), (inputs_shape[-1],)
            for name in self.sublayers:
                self.scales[name] = self.add_weight(shape=shape, initializer=initial, name=f"{name}_scale")
        self.built = True

    @with_cast_weights
    def call(
        self,
        inputs: Any,
        memory: Any = None,
        *,
        padding_mask: Any = None,
        lengths: Any = None,
        positions: Any = None,
        sequence_length: Any = None,
        cache: dict[str, Any] | None = None,
        cache_index: Any = None,
        projected_memory: dict[str, Any] | None = None,
        return_weights: bool = False,
        view: View | None = None,
        mask: Any = None,
        inputs_mask: Any = None,
        memory_mask: Any = None,
        training: bool | None = None,
        **arguments: Any,
    ) -> Any:
        inputs = ops.cast(inputs, self.compute_dtype)
        memory = None if memory is None else ops.cast(memory, self.compute_dtype)
        facts = {
            "padding_mask": padding_mask,
            "lengths": lengths,
            "positions": positions,
            "sequence_length": sequence_length,
            "cache_index": cache_index,
            **arguments,
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
        to_attention = view.to_attention | arguments_for(
            self.attention, "attention", cache=cache, return_weights=return_weights
        )
        to_memory = view.to_memory
        if self.cross_attention is not None:
            to_memory = to_memory | arguments_for(
                self.cross_attention,
                "cross_attention",
                projected_memory=projected_memory,
                return_weights=return_weights,
            )

        def run(*tensors: Any) -> tuple[Any, Any, dict[str, Any]]:
            return self._run(*tensors, training)

        tensors = (inputs, memory, view.token_mask, to_attention, to_memory)
        if self.remat and training and cache is None and not return_weights:
            # gradients flow to tensors, also to those of views, which hold what positions learn
            return rematerialize(self, lambda *parts: run(*closed(parts))[0], *opened(tensors))
        x, written, weights = run(*tensors)
        results = (x,)
        if cache is not None:
            results += (written,)
        if return_weights:
            results += (weights,)
        return results if len(results) > 1 else x

    def look(
        self,
        inputs: Any,
        memory: Any = None,
        *,
        padding_mask: Any = None,
        lengths: Any = None,
        positions: Any = None,
        cache: dict[str, Any] | None = None,
        cache_index: Any = None,
        projected_memory: dict[str, Any] | None = None,
        inputs_mask: Any = None,
        memory_mask: Any = None,
        **arguments: Any,
    ) -> View:
        """Returns what the block knows about the tokens of a call, for its `view` and that of blocks that look alike.

        Args:
            inputs, memory, cache, projected_memory: As for the call. Only their shapes are used.
            padding_mask, lengths, positions, cache_index, inputs_mask, memory_mask, arguments: As for the call.

        Raises:
            ValueError: See the call.
        """
        has_memory = memory is not None or projected_memory is not None
        if has_memory != (self.cross_attention is not None):
            raise ValueError(
                "memory or projected_memory must be given exactly when the block has a cross_attention, got "
                f"memory={describe(memory)} and projected_memory={describe(projected_memory)} with "
                f"cross_attention={self.cross_attention!r}."
            )
        if lengths is not None and padding_mask is None:
            padding_mask = AttentionMask(key_lengths=lengths).with_padding_mask(sizes(inputs)[1]).key_padding_mask
        if cache is None:
            token_mask = padding_mask = both(padding_mask, inputs_mask)
        else:
            token_mask = both(mask_of_new(inputs, padding_mask, positions, cache_index), inputs_mask)
        arguments = {name: value for name, value in arguments.items() if value is not None}
        about_memory = {name: arguments.pop(name) for name in list(arguments) if name.startswith("memory_")}
        given = {"lengths": lengths, "positions": positions, "cache": cache, "cache_index": cache_index, **arguments}
        to_attention = _seen_by(self.attention, "attention", (inputs,), padding_mask, inputs_mask, given)
        if self.cross_attention is None:
            if about_memory:
                found = ", ".join(describe(about_memory[name]) for name in sorted(about_memory))
                raise ValueError(
                    f"{', '.join(sorted(about_memory))} must be None without cross_attention, got {found}."
                )
            return View(token_mask, to_attention, {})
        padding_mask = both(about_memory.pop("memory_padding_mask", None), memory_mask)
        given = {"lengths": about_memory.pop("memory_lengths", None), "projected_memory": projected_memory}
        if about_memory.get("memory_segment_ids") is not None:  # queries see the memory of their segment
            given["segment_ids"] = arguments.get("segment_ids")
        if positions is None and cache is not None:
            positions = positions_from(cache_index, sizes(inputs)[1])
        if accepts_argument(self.cross_attention, "positions"):
            given["positions"] = positions
        given |= about_memory
        tensors = (inputs, memory)
        to_memory = _seen_by(self.cross_attention, "cross_attention", tensors, padding_mask, inputs_mask, given)
        return View(token_mask, to_attention, to_memory)

    def outlook(self) -> tuple[Any, ...]:
        """What a view depends on besides the call arguments: blocks with equal ones share their views."""
        parts = (self.attention, self.cross_attention)
        return tuple(part.outlook() if hasattr(part, "outlook") else part for part in parts)

    def _run(
        self,
        x: Any,
        memory: Any,
        token_mask: Any,
        to_attention: dict[str, Any],
        to_memory: dict[str, Any],
        training: bool | None,
    ) -> tuple[Any, Any, dict[str, Any]]:
        """The output, the written cache (None without one) and the attention weights (if they are asked for)."""
        written, weights = [], {}

        def attend(x: Any) -> Any:
            result = self.attention(x, training=training, **to_attention)
            if "return_weights" in to_attention:
                *result, weights["attention"] = result
                result = result if "cache" in to_attention else result[0]
            if "cache" in to_attention:
                result, cache = result
                written.append(cache)
            return result

        def attend_to_memory(x: Any) -> Any:
            result = self.cross_attention(x, memory, training=training, **to_memory)
            if "return_weights" in to_memory:
                result, weights["cross_attention"] = result
            return result

        def feed_forward(x: Any) -> Any:
            return self.feed_forward(x, training=training, **mask_argument(self.feed_forward, token_mask))

        def norm(norms: dict[str, keras.layers.Layer], name: str, x: Any) -> Any:
            return normalize(norms[name], x, token_mask, training) if name in norms else x

        functions = {"attention": attend, "cross_attention": attend_to_memory, "feed_forward": feed_forward}
        shared = norm(self.norms, "attention", x) if self.placement == "parallel" and self.shared_norm else None
        first = x
        for name in self.sublayers:
            if self.placement == "post":
                residual = x if self.residual_scale == 1.0 else self.residual_scale * x
                x = norm(self.norms, name, residual + self._branch(name, functions[name](x), training))
                continue
            if shared is not None:
                output = functions[name](shared)
            else:
                output = functions[name](norm(self.norms, name, first if self.placement == "parallel" else x))
            x = x + self._branch(name, norm(self.norms_after, name, output), training)
        return x, written[0] if written else None, weights

    def _branch(self, name: str, x: Any, training: bool | None) -> Any:
        """The output of a sublayer after scales, dropout and drop path."""
        if self.branch_scale != 1.0:
            x = x * self.branch_scale
        if name in self.scales:
            x = x * ops.cast(self.scales[name], x.dtype)
        for dropouts in (self.dropouts, self.path_dropouts):
            if name in dropouts:
                x = dropouts[name](x, training=training)
        return x

    def compute_output_spec(self, *args: Any, **kwargs: Any) -> Any:
        # the number of results depends on the arguments, so the specification comes from a symbolic call
        return keras.Operation.compute_output_spec(self, *args, **kwargs)

    def compute_output_shape(
        self, inputs_shape: tuple[int | None, ...], memory_shape: tuple[int | None, ...] | None = None
    ) -> tuple[int | None, ...]:
        return tuple(inputs_shape)


def _seen_by(
    sublayer: keras.layers.Layer,
    role: str,
    tensors: tuple[Any, ...],
    padding_mask: Any,
    inputs_mask: Any,
    given: dict[str, Any],
) -> dict[str, Any]:
    """The arguments that tell a sublayer about the tokens: the facts, or a view of them if it has a method `look`."""
    facts = arguments_for(sublayer, role, **given)
    if given["lengths"] is None:
        facts |= mask_argument(sublayer, padding_mask)
    seen = {}
    look = getattr(type(sublayer), "look", None)
    if look is not None and accepts_argument(sublayer, "view"):
        seen = {name: fact for name, fact in facts.items() if is_argument(look, name)}
        facts["view"] = look(sublayer, *tensors, inputs_mask=inputs_mask, **seen)
    return {name: fact for name, fact in facts.items() if name not in {*seen, "cache", "projected_memory"}}


def mask_of_new(inputs: Any, padding_mask: Any, positions: Any, cache_index: Any) -> Any:
    """Returns which of the positions that a cached call adds are real, `(batch, length)`; None if all are.

    Args:
        inputs: Vectors of the new positions, `(batch, length, width)`.
        padding_mask: True where a slot of the cache holds a real entry, `(batch, capacity)`, or None.
        positions: Positions, `(length,)` or `(batch, length)`, below zero for padding; or None.
        cache_index: Slot of the first new entry, a scalar integer or one per row `(batch,)`.
    """
    batch, length = sizes(inputs)[:2]
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
    """Returns `norm(x)`. A norm with statistics over positions, whose call has a mask, is given the padding mask.

    Args:
        norm: A norm layer.
        x: `(batch, length, width)`.
        padding_mask: True where a position is real, `(batch, length)`; None if all are.
        training: Whether the statistics of the batch are used.
    """
    return norm(x, training=training, **mask_argument(norm, padding_mask))
