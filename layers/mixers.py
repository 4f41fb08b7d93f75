"""A layer that mixes positions by convolution, for comparison with attention."""

from typing import Any

import keras
from keras import ops

from layers.constructor_arguments import ConfigFromArguments
from layers.dense import Dense
from layers.padding import hide_padding
from layers.roles import WHOLE


@keras.saving.register_keras_serializable("keras_transformer_zoo")
class ConvolutionMixer(ConfigFromArguments, keras.layers.Layer):
    """A convolution over the positions, separable or full, that keeps length and width.

    A separable convolution convolves each feature separately, then mixes the features of each position by a linear map.
    It takes `O(kernel_size * n * dim + n * dim^2)` operations for n positions, the full one
    `O(kernel_size * n * dim^2)`. Padding and positions outside of the sequence count as zeros. Outputs at padding are
    zero.

    Args:
        kernel_size: Number of positions that each output sees.
        separable: Whether the convolution is depthwise, followed by a linear map.
        causal: Whether an output sees only its own and earlier positions. Otherwise the window is centred; with an even
            size it has one position more on the right.
        use_bias: Whether the linear map, or the full convolution, adds a bias.

    Call arguments:
        inputs: `(batch, length, dim)`.
        mask: True where a position is real, `(batch, length)`.

    Returns:
        `(batch, length, dim)`.

    Raises:
        ValueError: If `kernel_size` is not positive or `mask` has a wrong rank.

    Example:

    >>> ConvolutionMixer(3, causal=True)(keras.ops.ones((2, 5, 8))).shape
    (2, 5, 8)

    Reference:
        Vaswani et al. 2017, "Attention Is All You Need", section 4 and table 1, row 3; Chollet 2017, "Xception"
        (separable); Wu et al. 2019, "Pay Less Attention", section 3.
    """

    # small, and the same on all devices
    weight_role = WHOLE

    def __init__(
        self, kernel_size: int, separable: bool = True, causal: bool = False, use_bias: bool = True, **kwargs: Any
    ) -> None:
        super().__init__(**kwargs)
        if kernel_size < 1:
            raise ValueError(f"kernel_size must be at least 1, got {kernel_size}.")
        self.kernel_size = kernel_size
        self.separable = separable
        self.causal = causal
        self.use_bias = use_bias
        self.supports_masking = True
        self.depthwise = self.pointwise = self.convolution = None
        if separable:
            self.depthwise = keras.layers.DepthwiseConv1D(
                kernel_size, use_bias=False, dtype=self.dtype_policy, name="depthwise"
            )

    def build(self, input_shape: tuple[int | None, ...]) -> None:
        dim = input_shape[-1]
        options = {"use_bias": self.use_bias, "dtype": self.dtype_policy}
        if self.separable:
            self.depthwise.build((input_shape[0], None, dim))
            self.pointwise = Dense(dim, name="pointwise", **options)
            self.pointwise.build(input_shape)
        else:
            self.convolution = keras.layers.Conv1D(dim, self.kernel_size, name="convolution", **options)
            self.convolution.build((input_shape[0], None, dim))

    def call(self, inputs: Any, mask: Any = None) -> Any:
        before = self.kernel_size - 1 if self.causal else (self.kernel_size - 1) // 2
        padded = ops.pad(hide_padding(inputs, mask), [[0, 0], [before, self.kernel_size - 1 - before], [0, 0]])
        outputs = self.pointwise(self.depthwise(padded)) if self.separable else self.convolution(padded)
        return hide_padding(outputs, mask)

    def compute_output_shape(self, input_shape: tuple[int | None, ...]) -> tuple[int | None, ...]:
        return input_shape
