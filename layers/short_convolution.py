"""Gated short convolutions, which mix the last few tokens in the place of attention."""

from typing import Any, ClassVar

import keras

from layers.causal_convolution import CausalConvolution, MixerView, view_of_mixer
from layers.constructor_arguments import ConfigFromArguments
from layers.dense import Dense
from layers.initializers import separate
from layers.roles import COLUMNS, ROWS, Role
from layers.view import refuse_with_view

_PROJECTIONS = ("input_gate", "output_gate", "value", "output")


@keras.saving.register_keras_serializable("keras_transformer_zoo")
class ShortConvolution(ConfigFromArguments, keras.layers.Layer):
    """A convolution over the last few positions, with a gate before and one after it.

    For inputs `x` it is `output(output_gate(x) * convolution(input_gate(x) * value(x)))`. The gates are linear maps
    without an activation, and the convolution is one of each feature for itself (`CausalConvolution`). A token costs
    the same at each position, and a cache holds no more than `kernel_size` vectors.

    Args:
        kernel_size: Number of positions that each output sees, its own included.
        use_bias: Whether the linear maps and the convolution have biases.
        kernel_initializer: Initial weights of the linear maps.
        output_initializer: Initial weights of the map `output`; None for `kernel_initializer`.
        bias_initializer: Initial biases of the linear maps.

    Call arguments:
        inputs: `(batch, length, width)`.
        padding_mask: True where a position is real, `(batch, length)`. Not with a cache.
        lengths: Integers `(batch,)`: number of real positions in each row, which stand first. In this order nothing
            real sees padding.
        positions: With a cache, `(length,)` or `(batch, length)`, below zero for padding. Without one nothing depends
            on them.
        segment_ids: Integers `(batch, length)` of packed sequences, which do not see each other. Not with a cache.
        sequence_length: Number of tokens of each text, on which positions of other layers depend. Nothing here does.
        cache: What `make_cache` or the last call returned.
        cache_index: Number of entries in the cache, a scalar integer or one per row `(batch,)`.
        view: The result of `look`, in place of the arguments above but `inputs` and `cache`.
        mask: Keras's mask of `inputs`, filled in by Keras.

    Returns:
        `(batch, length, width)`; with a cache a tuple of this and the written cache.

    Raises:
        ValueError: If an argument is out of range, or arguments exclude each other.

    Example:

    >>> ShortConvolution(3)(keras.ops.ones((2, 5, 8))).shape
    (2, 5, 8)

    Reference:
        Liquid AI 2025, "LFM2 Technical Report" (gated short convolution block).
    """

    weight_roles: ClassVar[dict[str, Role]] = {
        **dict.fromkeys(("input_gate", "output_gate", "value", "convolution"), COLUMNS),
        "output": ROWS,
    }

    def __init__(
        self,
        kernel_size: int = 3,
        use_bias: bool = False,
        *,
        kernel_initializer: Any = "glorot_uniform",
        output_initializer: Any = None,
        bias_initializer: Any = "zeros",
        **kwargs: Any,
    ) -> None:
        super().__init__(**kwargs)
        self.kernel_size = kernel_size
        self.use_bias = use_bias
        self.kernel_initializer = keras.initializers.get(kernel_initializer)
        self.output_initializer = keras.initializers.get(output_initializer)
        self.bias_initializer = keras.initializers.get(bias_initializer)
        self.supports_masking = True
        self.convolution = CausalConvolution(kernel_size, use_bias, dtype=self.dtype_policy, name="convolution")

    def build(self, inputs_shape: tuple[int | None, ...]) -> None:
        for index, name in enumerate(_PROJECTIONS):
            initializer = (name == "output" and self.output_initializer) or self.kernel_initializer
            projection = Dense(
                inputs_shape[-1],
                use_bias=self.use_bias,
                kernel_initializer=separate(initializer, index),
                bias_initializer=separate(self.bias_initializer, index),
                dtype=self.dtype_policy,
                name=name,
            )
            projection.build(inputs_shape)
            setattr(self, f"{name}_projection", projection)
        self.convolution.build(inputs_shape)
        self.built = True

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
        products = self.input_gate_projection(inputs) * self.value_projection(inputs)
        result = self.convolution(products, view=view, cache=cache)
        mixed, *written = result if cache is not None else (result,)  # (batch, length, width)
        output = self.output_projection(self.output_gate_projection(inputs) * mixed)
        return (output, *written) if written else output

    def look(self, inputs: Any, *, lengths: Any = None, sequence_length: Any = None, **facts: Any) -> MixerView:
        """Returns what the layer knows about the tokens of a call, for the `view` of all layers with its `outlook`.

        Args:
            inputs, lengths, sequence_length: As for the call. Of `inputs` only the shape is used.
            **facts: `padding_mask`, `positions`, `segment_ids`, `cache`, `cache_index` as for the call; `inputs_mask`,
                Keras's mask.

        Raises:
            ValueError: See the call.
        """
        return view_of_mixer(inputs, self.kernel_size, **facts)

    def outlook(self) -> tuple[Any, ...]:
        """What a view depends on besides the call arguments."""
        return (type(self).__name__, self.kernel_size)

    def make_cache(self, batch_size: Any, capacity: Any) -> dict[str, Any]:
        """Returns an empty cache, a dictionary of tensors in the compute dtype.

        Args:
            batch_size: Number of rows, an integer or an integer tensor.
            capacity: Largest number of positions that will be decoded, an integer or an integer tensor.
        """
        return self.convolution.make_cache(batch_size, capacity)

    @property
    def kept_dim(self) -> int:
        """Numbers of a token between its linear maps that a backward pass reads."""
        # both gates, the values, what the convolution reads and what it returns
        return 5 * self.output_projection.units

    @property
    def state_products(self) -> int:
        """Products of a token with a state: there is none."""
        return 0

    def compute_output_spec(self, *args: Any, **kwargs: Any) -> Any:
        # the number of results depends on the arguments, so the specification comes from a symbolic call
        return keras.Operation.compute_output_spec(self, *args, **kwargs)

    def compute_output_shape(self, inputs_shape: tuple[int | None, ...]) -> tuple[int | None, ...]:
        return tuple(inputs_shape)
