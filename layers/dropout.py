"""Dropout whose random numbers cost a fraction of the usual ones.

A dropout decision needs far less than the 32 random bits that a uniform float takes: with 8 bits the rate is a
multiple of 1/256. Random words are therefore drawn as integers and read as bytes, and the outputs are scaled by the
probability with which an element is really kept, so that the expectation is exact.
"""

from typing import Any

import keras
from keras import ops

from layers.devices import seed_of_replica

# Word that random bits are drawn in, by backend. TensorFlow draws 64-bit words much faster than 32-bit ones under
# XLA on a CPU (50 times, tensorflow 2.21); the other backends have no 64-bit integers by default or no use for them.
_WORD_DTYPES = {"tensorflow": "int64"}

# Largest relative difference between the rate asked for and the one that an unsigned integer of so many bits gives.
_RATE_TOLERANCE = 0.02


def quantized_rate(rate: float) -> tuple[int, int]:
    """The rate as a fraction of a power of two, with the fewest bits that give it to within 2 %.

    Args:
        rate: Probability of dropping an element, at least 0 and below 1.

    Returns:
        `(numerator, bits)`: elements are dropped with the probability `numerator / 2**bits`, `bits` is 8, 16 or 32.

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
    """Uniform unsigned integers of `bits` bits (8, 16 or 32) in the given shape, some sizes of which may be tensors."""
    word_dtype = _WORD_DTYPES.get(keras.backend.backend(), "int32")
    word_bits = int(word_dtype[3:])
    size = 1
    for dimension in shape:
        size = size * dimension
    integers_per_word = word_bits // bits
    words = (size + integers_per_word - 1) // integers_per_word
    # The largest word is never drawn, a bias of 2**-32 or less.
    most = 2 ** (word_bits - 1)
    random_words = keras.random.randint((words,), -most, most - 1, dtype=word_dtype, seed=seed_of_replica(seed))
    # A last axis of size 1, because the number of bytes of an axis of unknown size cannot be checked.
    integers = ops.reshape(ops.view(ops.expand_dims(random_words, -1), dtype=f"uint{bits}"), (-1,))
    if not isinstance(size, int) or size % integers_per_word:
        integers = integers[:size]
    return ops.reshape(integers, shape)


def dropout_multiplier(shape: Any, rate: float, seed: Any, dtype: str = "float32") -> Any:
    """Random factors: 0 for what is dropped, 1 / (probability of being kept) for what is kept.

    Multiplying by them is dropout. They are a function of its own for code that uses the same decisions twice, such as
    a backward pass that recomputes its forward pass.

    Args:
        shape: The sizes of the axes, integers or scalar tensors.
        rate: Probability of dropping an element, at least 0 and below 1.
        seed: A `keras.random.SeedGenerator`, or an integer, which gives the same factors every time.
        dtype: Of the result.

    Returns:
        A tensor of `shape`.
    """
    numerator, bits = quantized_rate(rate)
    threshold = ops.convert_to_tensor(numerator, dtype=f"uint{bits}")
    keep = ops.greater_equal(_random_integers(shape, bits, seed), threshold)
    return ops.cast(keep, dtype) * (2**bits / (2**bits - numerator))


@keras.saving.register_keras_serializable("keras_transformer_zoo")
class Dropout(keras.layers.Dropout):
    """Dropout with cheap random bits, otherwise `keras.layers.Dropout`.

    At training each element is set to zero with the probability `rate`, independently, and what is kept is divided by
    the probability of being kept. At inference the layer returns its input.

    The rate is rounded to the nearest multiple of 1/256, or of 1/65536 if that would change it by more than 2 % (see
    `quantized_rate`); the factor by which outputs are scaled belongs to the rounded rate, so that the expected output
    is the input. The backward pass reuses the factors of the forward pass.

    Args:
        rate: Probability of dropping an element, from 0 to 1.
        noise_shape: Shape of the decisions, broadcast over the input: `(None, 1, None)` drops the same features at all
            positions of `(batch, length, dim)`. `None` entries stand for the size of the input's axis.
        seed: Integer that makes the sequence of decisions reproducible.

    Raises:
        ValueError: If `rate` is outside of [0, 1] or `noise_shape` is not a sequence of positive integers and `None`.

    Example:

    >>> layer = Dropout(0.5, seed=1)
    >>> layer(keras.ops.ones((2, 6)), training=True).shape
    (2, 6)

    Reference:
        Srivastava et al. 2014, section 4.
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
