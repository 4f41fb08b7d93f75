"""Gated short convolutions, which mix the last few tokens in the place of attention."""

from typing import Any, ClassVar

import keras

from layers.causal_convolution import CausalConvolution
from layers.causal_mixer import CausalMixer, MixerView
from layers.roles import COLUMNS, ROWS, Role


@keras.saving.register_keras_serializable("keras_transformer_zoo")
class ShortConvolution(CausalMixer):
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
        self.convolution = CausalConvolution(kernel_size, use_bias, dtype=self.dtype_policy, name="convolution")

    def build(self, inputs_shape: tuple[int | None, ...]) -> None:
        width = inputs_shape[-1]
        names = ("input_gate", "output_gate", "value", "output")
        self.build_projections(inputs_shape, dict.fromkeys(names, width), self.use_bias)
        self.convolution.build(inputs_shape)
        self.built = True

    def mix(self, inputs: Any, view: MixerView, cache: dict[str, Any] | None) -> Any:
        products = self.input_gate_projection(inputs) * self.value_projection(inputs)
        result = self.convolution(products, view=view, cache=cache)
        mixed, *written = result if cache is not None else (result,)  # (batch, length, width)
        output = self.output_projection(self.output_gate_projection(inputs) * mixed)
        return (output, *written) if written else output

    @property
    def kept_dim(self) -> int:
        """Numbers of a token between its linear maps that a backward pass reads."""
        # both gates, the values, what the convolution reads and what it returns
        return 5 * self.output_projection.units

    @property
    def state_products(self) -> int:
        """Products of a token with a state: there is none."""
        return 0
