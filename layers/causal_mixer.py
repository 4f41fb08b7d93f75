"""What layers have in common that take the place of causal attention: their call, and what they know about tokens."""

import dataclasses
from collections.abc import Mapping, Sequence
from typing import Any

import keras
from keras import ops

from layers.attention.cache import CachePlan, RollingCache, column, count_new
from layers.attention.masks import both
from layers.attention.view import to_tensor
from layers.constructor_arguments import ConfigFromArguments
from layers.dense import Dense
from layers.errors import describe
from layers.fusion import sizes
from layers.initializers import separate
from layers.keras_internals import with_cast_weights
from layers.view import refuse_with_view


@dataclasses.dataclass(frozen=True, eq=False)
class MixerView:
    """What a mixer with a causal convolution knows about the tokens of a call. Layers of equal `outlook` share it.

    Args:
        token_mask: True where an input is real, `(batch, length)`; None if all are.
        segment_ids: Integers `(batch, length)` of packed sequences, or None.
        plan: Where the inputs go in the cache; None without one.
        slots: The slots of the entries before the inputs, in their order, `(kernel_size - 1,)` or `(batch,
            kernel_size - 1)`; None without a cache.
        is_filled: Whether there is such an entry, of the same shape.
    """

    token_mask: Any
    segment_ids: Any = None
    plan: CachePlan | None = None
    slots: Any = None
    is_filled: Any = None


def view_of_mixer(
    inputs: Any,
    kernel_size: int,
    *,
    padding_mask: Any = None,
    segment_ids: Any = None,
    positions: Any = None,
    cache: dict[str, Any] | None = None,
    cache_index: Any = None,
    inputs_mask: Any = None,
) -> MixerView:
    """Returns what a mixer knows about the tokens of a call.

    Args:
        inputs: `(batch, length, width)`. Of this and of `cache` only the shapes are used.
        kernel_size: Number of positions that a convolution sees.
        padding_mask, segment_ids, positions, cache_index: Call arguments of the mixer.
        cache: The entries of the convolution, `{"entry": (batch, 1, slots, width)}`.
        inputs_mask: Keras's mask.

    Raises:
        ValueError: If arguments exclude each other, or one has a wrong shape or type.
    """
    if len(inputs.shape) != 3:
        raise ValueError(f"inputs must have shape (batch, length, width), got {tuple(inputs.shape)}.")
    if (cache is None) != (cache_index is None):
        raise ValueError(
            f"cache and cache_index must be given together, got cache={describe(cache)} and "
            f"cache_index={describe(cache_index)}."
        )
    shape = tuple(inputs.shape[:2])
    padding_mask = to_tensor("padding_mask", padding_mask, shape, kind="mask")
    inputs_mask = to_tensor("The Keras mask", inputs_mask, shape, kind="mask")
    segment_ids = to_tensor("segment_ids", segment_ids, shape, kind="int")
    positions = to_tensor("positions", positions, shape[1:], shape, kind="int")
    if cache is None:
        return MixerView(both(padding_mask, inputs_mask), segment_ids)
    for name, value in (("padding_mask", padding_mask), ("segment_ids", segment_ids)):
        if value is not None:
            raise ValueError(
                f"{name} must be None with a cache, which does not keep it, got {describe(value)}. Give padding "
                "positions below zero."
            )
    layout = RollingCache(kernel_size)
    if not isinstance(cache_index, int):
        cache_index = to_tensor("cache_index", cache_index, (), shape[:1], kind="int")
    plan = layout.plan(cache, sizes(inputs)[1], cache_index, count_new(positions, cache_index))
    before = column(cache_index) - (kernel_size - 1) + ops.arange(kernel_size - 1)
    slots = ops.mod(before, sizes(cache["entry"])[2])
    real = None if positions is None else ops.broadcast_to(positions >= 0, sizes(inputs)[:2])
    return MixerView(both(real, inputs_mask), None, plan, slots, before >= 0)


class CausalMixer(ConfigFromArguments, keras.layers.Layer):
    """A layer that mixes tokens in the place of causal self-attention. A base class.

    A subclass has a `CausalConvolution` as its attribute `convolution`, of which the view of a call is made, and keeps
    `kernel_size`, `kernel_initializer`, `output_initializer` and `bias_initializer`. It overrides `mix` and the
    properties that planning reads, and `make_cache` if its cache has more than the entries of the convolution.

    Call arguments and results are those that `layers.ShortConvolution` describes.
    """

    def __init__(self, **kwargs: Any) -> None:
        super().__init__(**kwargs)
        self.supports_masking = True
        # Keras would round the states in caches; inputs are cast by `call`
        self.autocast = False

    def mix(self, inputs: Any, view: MixerView, cache: dict[str, Any] | None) -> Any:
        """Returns what the call returns.

        Args:
            inputs, cache: As for the call.
            view: What is known about the tokens.
        """
        raise NotImplementedError

    def build_projections(
        self, inputs_shape: tuple[int | None, ...], units: Mapping[str, int], use_bias: bool = False
    ) -> None:
        """Makes the linear maps, attributes such as `value_projection` for "value".

        Args:
            inputs_shape: Shape of the inputs of the layer.
            units: Number of outputs of each, by name. "output" takes as many features as "value" gives.
            use_bias: Whether they add biases.
        """
        for index, (name, count) in enumerate(units.items()):
            is_output = name == "output"
            projection = Dense(
                count,
                use_bias=use_bias,
                kernel_initializer=separate((is_output and self.output_initializer) or self.kernel_initializer, index),
                bias_initializer=separate(self.bias_initializer, index),
                dtype=self.dtype_policy,
                name=name,
            )
            projection.build((*inputs_shape[:-1], units["value"]) if is_output else inputs_shape)
            setattr(self, f"{name}_projection", projection)

    @with_cast_weights
    def call(
        self,
        inputs: Any,
        *,
        padding_mask: Any = None,
        lengths: Any = None,
        positions: Any = None,
        segment_ids: Any = None,
        sequence_length: Any = None,
        cache: dict[str, Any] | None = None,
        cache_index: Any = None,
        view: MixerView | None = None,
        mask: Any = None,
    ) -> Any:
        inputs = ops.cast(inputs, self.compute_dtype)
        facts = {
            "padding_mask": padding_mask,
            "lengths": lengths,
            "positions": positions,
            "segment_ids": segment_ids,
            "sequence_length": sequence_length,
            "cache_index": cache_index,
        }
        if view is None:
            view = self.look(inputs, **facts, cache=cache, inputs_mask=mask)
        else:
            refuse_with_view(facts)
        return self.mix(inputs, view, cache)

    def look(
        self,
        inputs: Any,
        *,
        lengths: Any = None,
        sequence_length: Any = None,
        cache: dict[str, Any] | None = None,
        **facts: Any,
    ) -> MixerView:
        """Returns what the layer knows about the tokens of a call, for the `view` of all layers with its `outlook`.

        Args:
            inputs, lengths, sequence_length, cache: As for the call. Of `inputs` and `cache` only the shapes are used.
            **facts: `padding_mask`, `positions`, `segment_ids`, `cache_index` as for the call; `inputs_mask`, Keras's
                mask.

        Raises:
            ValueError: See the call.
        """
        entries = None if cache is None else {"entry": cache["entry"]}
        return view_of_mixer(inputs, self.kernel_size, cache=entries, **facts)

    def outlook(self) -> tuple[Any, ...]:
        """What a view depends on besides the call arguments."""
        return (type(self).__name__, self.kernel_size)

    def make_cache(self, batch_size: Any, capacity: Any) -> dict[str, Any]:
        """Returns an empty cache, a dictionary of tensors: `{"entry": (batch, 1, slots, width)}`.

        Args:
            batch_size: Number of rows, an integer or an integer tensor.
            capacity: Largest number of positions that will be decoded, an integer or an integer tensor.

        Raises:
            ValueError: If the layer has no weights yet.
        """
        return self.convolution.make_cache(batch_size, capacity)

    @property
    def kept_dim(self) -> int:
        """Numbers of a token between its linear maps that a backward pass reads."""
        raise NotImplementedError

    @property
    def state_products(self) -> int:
        """Products of a token with states."""
        raise NotImplementedError

    def compute_output_spec(self, *args: Any, **kwargs: Any) -> Any:
        # the number of results depends on the arguments, so the specification comes from a symbolic call
        return keras.Operation.compute_output_spec(self, *args, **kwargs)

    def compute_output_shape(self, inputs_shape: tuple[int | None, ...]) -> tuple[int | None, ...]:
        return tuple(inputs_shape)


class StateMixer(CausalMixer):
    """A mixer of heads with a state of each row, a matrix `(key_dim, value_dim)`. A base class."""

    def keep_heads(self, num_heads: int, key_dim: int, value_dim: int | None, num_key_heads: int | None) -> None:
        """Checks and keeps the numbers of heads and their widths.

        Args:
            num_heads: Number of heads of values, each of which has a state.
            key_dim: Width of a query and a key.
            value_dim: Width of a value; None for `key_dim`.
            num_key_heads: Number of heads of queries and keys, each shared by as many heads of values; None for
                `num_heads`.

        Raises:
            ValueError: If one is no integer of at least 1, or heads cannot be shared equally.
        """
        self.num_heads = num_heads
        self.key_dim = key_dim
        self.value_dim = key_dim if value_dim is None else value_dim
        self.num_key_heads = num_heads if num_key_heads is None else num_key_heads
        for name in ("num_heads", "key_dim", "value_dim", "num_key_heads"):
            value = getattr(self, name)
            if isinstance(value, bool) or not isinstance(value, int) or value < 1:
                raise ValueError(f"{name} must be an integer of at least 1, got {value!r}.")
        if num_heads % self.num_key_heads:
            raise ValueError(f"num_key_heads must be a divisor of num_heads={num_heads}, got {num_key_heads!r}.")

    @property
    def widths(self) -> tuple[int, int]:
        """Widths of all keys and of all values."""
        return self.num_key_heads * self.key_dim, self.num_heads * self.value_dim

    def convolve(
        self, inputs: Any, projections: Sequence[Any], view: MixerView, cache: dict[str, Any] | None
    ) -> tuple[Any, dict[str, Any], Any]:
        """Returns what the convolution makes of the results of linear maps, and what a cache says.

        Args:
            inputs: `(batch, length, width)`.
            projections: The linear maps, whose results stand side by side.
            view, cache: As for `mix`.

        Returns:
            The results, `(batch, length, width of all)`; the entries of the cache after them, `{}` without one; and the
            state before them, `(batch, num_key_heads, group, key_dim, value_dim)`, None without one.
        """
        mixed = ops.concatenate([projection(inputs) for projection in projections], axis=-1)
        if cache is None:
            return self.convolution(mixed, view=view), {}, None
        mixed, written = self.convolution(mixed, view=view, cache={"entry": cache["entry"]})
        heads, group = self.num_key_heads, self.num_heads // self.num_key_heads
        shape = (sizes(inputs)[0], heads, group, self.key_dim, self.value_dim)
        return mixed, written, ops.reshape(cache["state"], shape)

    def make_cache(self, batch_size: Any, capacity: Any) -> dict[str, Any]:
        """Returns an empty cache: `{"entry": (batch, 1, slots, width), "state": (batch, heads, key_dim, value_dim)}`.

        Args:
            batch_size: Number of rows, an integer or an integer tensor.
            capacity: Largest number of positions that will be decoded, an integer or an integer tensor.

        Raises:
            ValueError: If the layer has no weights yet.
        """
        state = ops.zeros((batch_size, self.num_heads, self.key_dim, self.value_dim), dtype="float32")
        return {**super().make_cache(batch_size, capacity), "state": state}
