"""A convolution of each feature over the last positions, which a cache holds."""

from typing import Any

import keras
from keras import ops

from layers.attention.cache import RollingCache
from layers.causal_mixer import MixerView
from layers.constructor_arguments import ConfigFromArguments
from layers.padding import hide_padding


@keras.saving.register_keras_serializable("keras_transformer_zoo")
class CausalConvolution(ConfigFromArguments, keras.layers.Layer):
    """A convolution of each feature with its own numbers, over a position and the `kernel_size - 1` before it.

    Padding, positions before the first one, and those of another packed sequence count as zeros.

    A cache holds the last inputs by their positions, as a `RollingCache` does keys. So rows of a batch can be of
    different lengths.

    Args:
        kernel_size: Number of positions that each output sees.
        use_bias: Whether a bias is added.

    Call arguments:
        inputs: `(batch, length, width)`.
        view: The result of `view_of_mixer`.
        cache: What `make_cache` or the last call returned; None to see the inputs alone.

    Returns:
        `(batch, length, width)`; with a cache a tuple of this and the new cache.

    Raises:
        ValueError: If `kernel_size` is no integer of at least 1.

    Example:

    >>> x = keras.ops.ones((2, 5, 8))
    >>> CausalConvolution(3)(x, view=view_of_mixer(x, 3)).shape
    (2, 5, 8)

    Reference:
        Wu et al. 2019, "Pay Less Attention", section 3 (depthwise convolution).
    """

    def __init__(self, kernel_size: int, use_bias: bool = False, **kwargs: Any) -> None:
        super().__init__(**kwargs)
        if isinstance(kernel_size, bool) or not isinstance(kernel_size, int) or kernel_size < 1:
            raise ValueError(f"kernel_size must be an integer of at least 1, got {kernel_size!r}.")
        self.kernel_size = kernel_size
        self.use_bias = use_bias

    def build(self, inputs_shape: tuple[int | None, ...]) -> None:
        width, bound = inputs_shape[-1], self.kernel_size**-0.5
        # an output is a sum of `kernel_size` products, whatever the width
        initializer = keras.initializers.RandomUniform(-bound, bound)
        self.kernel = self.add_weight(shape=(self.kernel_size, width), initializer=initializer, name="kernel")
        self.bias = self.add_weight(shape=(width,), initializer="zeros", name="bias") if self.use_bias else None
        self.built = True

    def call(self, inputs: Any, view: MixerView, cache: dict[str, Any] | None = None) -> Any:
        entries, before = hide_padding(inputs, view.token_mask), self.kernel_size - 1
        if cache is None:
            whole = ops.pad(entries, [[0, 0], [before, 0], [0, 0]])
        else:
            new = ops.cast(ops.expand_dims(entries, 1), cache["entry"].dtype)  # (batch, 1, length, width)
            held = self._entries_before(cache["entry"], view)
            cache = {"entry": view.plan.write(cache["entry"], new)}
            whole = ops.concatenate([ops.cast(held, entries.dtype), entries], axis=1)
        outputs = 0.0
        for place in range(self.kernel_size):
            seen = whole[:, place : (place - before) or None]  # (batch, length, width)
            if view.segment_ids is not None and place < before:
                segments = ops.pad(view.segment_ids, [[0, 0], [before, 0]])[:, place : place - before]
                seen = hide_padding(seen, ops.equal(segments, view.segment_ids))
            outputs = outputs + seen * ops.cast(self.kernel[place], seen.dtype)
        if self.bias is not None:
            outputs = outputs + ops.cast(self.bias, outputs.dtype)
        return outputs if cache is None else (outputs, cache)

    def _entries_before(self, entries: Any, view: MixerView) -> Any:
        """The entries before the inputs in order, zeros where there is none, `(batch, kernel_size - 1, width)`."""
        entries, slots, is_filled = entries[:, 0], view.slots, view.is_filled
        if len(slots.shape) == 1:
            held = ops.take(entries, slots, axis=1)
            return ops.where(is_filled[:, None], held, ops.cast(0, held.dtype))
        held = ops.take_along_axis(entries, ops.expand_dims(slots, -1), axis=1)
        return hide_padding(held, is_filled)

    def make_cache(self, batch_size: Any, capacity: Any) -> dict[str, Any]:
        """Returns a cache without entries, `{"entry": (batch, 1, slots, width)}`.

        Args:
            batch_size: Number of rows, an integer or an integer tensor.
            capacity: Largest number of entries that will be written, an integer or an integer tensor.

        Raises:
            ValueError: If the layer has no weights yet.
        """
        if not self.built:
            raise ValueError(f"{self.name} must be built before it makes a cache, which is as wide as its inputs.")
        slots = RollingCache(self.kernel_size).num_slots(capacity)
        return {"entry": ops.zeros((batch_size, 1, slots, self.kernel.shape[-1]), dtype=self.compute_dtype)}
