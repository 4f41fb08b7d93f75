"""Dropout with fewer random bits, which takes a fraction of the usual time.

A dropout decision needs far less than the 32 random bits of a uniform float: with 8 bits the rate is a multiple of
1/256. Random words are therefore drawn as integers and read as bytes. Outputs are scaled by the exact probability of
keeping an element, so that the expectation is exact.
"""

from collections.abc import Callable
from typing import Any

import keras
from keras import ops

from layers.devices import seed_of_replica

# Type in which random bits are drawn, by backend. Under XLA on a CPU, TensorFlow 2.21 draws 64-bit words 50 times
# faster than 32-bit ones. The other backends gain nothing from 64-bit integers, or do not have them by default.
_WORD_DTYPES = {"tensorflow": "int64"}

# Largest relative difference between the given rate and its rounded value.
_RATE_TOLERANCE = 0.02


def quantized_rate(rate: float) -> tuple[int, int]:
    """Returns a rate as a fraction of a power of two, with the fewest bits that give it to within 2 %.

    Args:
        rate: Probability of dropping an element, at least 0 and below 1.

    Returns:
        `(numerator, bits)`: elements are dropped with probability `numerator / 2**bits`. `bits` is 8, 16 or 32.

    Example:

    >>> quantized_rate(0.3)  # 77 / 256 = 0.3008
    (77, 8)
    >>> quantized_rate(0.001)  # 66 / 65536 = 0.00101
    (66, 16)
    """
    for bits in (8, 16):
        numerator = round(rate * 2**bits)
        if abs(numerator / 2**bits - rate) <= _RATE_TOLERANCE * rate and numerator < 2**bits:
            return numerator, bits
    return min(round(rate * 2**32), 2**32 - 1), 32


def _random_integers(shape: Any, bits: int, seed: Any) -> Any:
    """Uniform unsigned integers of `bits` bits (8, 16 or 32) in the given shape, whose sizes may be tensors."""
    # Words for each run of the last axis: a product of sizes that are tensors would overflow from 2**31 elements on.
    word_dtype = _WORD_DTYPES.get(keras.backend.backend(), "int32")
    word_bits = int(word_dtype[3:])
    *before, last = shape or (1,)
    integers_per_word = word_bits // bits
    words = -(-last // integers_per_word)
    # The largest word is never drawn, a bias of 2**-32 or less.
    most = 2 ** (word_bits - 1)
    random_words = keras.random.randint((*before, words), -most, most - 1, dtype=word_dtype, seed=seed_of_replica(seed))
    # with a last axis of size 1, because `view` cannot split an axis of unknown size
    integers = ops.view(ops.expand_dims(random_words, -1), dtype=f"uint{bits}")
    integers = ops.reshape(integers, (*before, words * integers_per_word))
    if not isinstance(last, int) or last % integers_per_word:
        integers = integers[..., :last]
    return ops.reshape(integers, shape)


def dropout_multiplier(shape: Any, rate: float, seed: Any, dtype: str = "float32") -> Any:
    """Returns the random factors of dropout: 0 for dropped elements, `1 / (probability of being kept)` for others.

    Use them where the same decisions are needed twice, as in a backward pass that recomputes its forward pass.

    Args:
        shape: The sizes of the axes, integers or scalar tensors.
        rate: Probability of dropping an element, at least 0 and below 1.
        seed: A `keras.random.SeedGenerator`, or an integer, which gives the same factors every time.
        dtype: Dtype of the result.

    Returns:
        A tensor of `shape`.
    """
    numerator, bits = quantized_rate(rate)
    threshold = ops.convert_to_tensor(numerator, dtype=f"uint{bits}")
    keep = ops.greater_equal(_random_integers(shape, bits, seed), threshold)
    return ops.cast(keep, dtype) * (2**bits / (2**bits - numerator))


class _SeedOfBlock(keras.random.SeedGenerator):
    """A seed generator whose only seed is a given one, made another one by a number.

    Args:
        seed: The seed, integers `(2,)`.
        number: The number, an integer or a scalar tensor.
    """

    def __init__(self, seed: Any, number: Any) -> None:
        # without a state of its own
        self._seed, self._number = seed, number

    def next(self, ordered: bool = True) -> Any:
        dtype = self._seed.dtype
        # the second word counts draws: numbers are spread over the first one, far from those of other layers and steps
        spread = ops.cast(self._number, dtype) * ops.cast(_SPREAD, dtype)
        return ops.stack([self._seed[0] + spread, self._seed[1]])


# odd, so that numbers below 2**31 give different products: the golden ratio of 31 bits
_SPREAD = 1_327_217_885


@keras.saving.register_keras_serializable("keras_transformer_zoo")
class Dropout(keras.layers.Dropout):
    """Dropout that draws fewer random bits than `keras.layers.Dropout`.

    In training, each element is set to zero independently with probability `rate`. The others are divided by the
    probability of being kept. At inference the layer returns its input.

    The rate is rounded to a multiple of 1/256, or of a smaller power of two if that would change it by more than 2 %
    (see `quantized_rate`). Outputs are scaled for the rounded rate, so that the expected output is the input. The
    backward pass uses the factors of the forward pass.

    Args:
        rate: Probability of dropping an element, from 0 to 1.
        noise_shape: Shape of the decisions, which broadcasts to the input. None stands for the size of the input's
            axis: `(None, 1, None)` drops the same features at all positions of `(batch, length, dim)`.
        seed: Integer that makes the decisions reproducible.

    Raises:
        ValueError: If `rate` is outside of [0, 1] or `noise_shape` is not a sequence of positive integers and `None`.

    Example:

    >>> layer = Dropout(0.5, seed=1)
    >>> layer(keras.ops.ones((2, 6)), training=True).shape
    (2, 6)

    Reference:
        Srivastava et al. 2014, "Dropout: A Simple Way to Prevent Neural Networks from Overfitting", section 4.
    """

    def call(self, inputs: Any, training: bool = False) -> Any:
        if not training or self.rate == 0:
            return inputs
        if self.rate == 1:
            return ops.zeros_like(inputs)
        shape = ops.shape(inputs)
        if self.noise_shape is not None:
            shape = tuple(
                actual if wanted is None else wanted for actual, wanted in zip(shape, self.noise_shape, strict=True)
            )
        return inputs * dropout_multiplier(shape, self.rate, self.seed_generator, inputs.dtype)

    def by_block(self) -> Callable[[Any, Any, str], Any]:
        """Returns a function that gives the factors of any block of a large tensor, each time the same ones.

        The function takes the number of the block, its shape and the dtype of the factors. So a tensor of which there
        is never more than a block, such as the weights of long attention, is dropped in the forward pass and again in
        the backward pass. Each call of this method draws new factors.

        Example:

        >>> factors = Dropout(0.1, seed=1).by_block()
        >>> factors(7, (2, 4), "float32").shape
        (2, 4)
        """
        seed = seed_of_replica(self.seed_generator).next()
        return lambda number, shape, dtype: dropout_multiplier(shape, self.rate, _SeedOfBlock(seed, number), dtype)


class WeightDropout:
    """Dropout of the attention weights of one call, at once or block by block.

    Args:
        layer: The layer that drops.

    Attributes:
        last: The weights that it was called with, dropped; None if it has only been asked for factors of blocks.
    """

    def __init__(self, layer: Dropout) -> None:
        self._layer = layer
        self.last: Any = None

    def __call__(self, weights: Any) -> Any:
        self.last = self._layer(weights, training=True)
        return self.last

    def by_block(self) -> Callable[[Any, Any, str], Any]:
        """See `Dropout.by_block`."""
        return self._layer.by_block()
