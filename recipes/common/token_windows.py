"""Windows of a long text for a language model, by tf.data."""

from __future__ import annotations

import numpy as np
import tensorflow as tf

from recipes.common.errors import DataError


class TokenWindows:
    """A reproducible, resumable `tf.data.Dataset` of windows of one sequence of tokens.

    Each element is `(inputs, labels, sample_weight)`: `inputs` has `token_ids` and `padding_mask`, `labels` the tokens
    one further on, all `(batch, length)`.

    With `random_windows` a batch holds windows that begin anywhere, as many batches as asked for make an epoch, and
    they are a function of the seed and the epoch only (nanoGPT's way). Without, the windows follow each other and hold
    every token but the first exactly once as a label; the last window and the last batch are filled up with weights of
    zero.

    Args:
        token_ids: The tokens, integers `(tokens,)`.
        length: Tokens of a window.
        batch_size: Windows of a batch.
        random_windows: Number of random batches of an epoch; None for consecutive windows.
        seed: Seed of the windows, at least 0.

    Attributes:
        dataset: The `tf.data.Dataset`; each iteration gives the epoch set by `start_epoch` (at first 0).
        number_of_batches: Batches of an epoch.

    Raises:
        DataError: There are fewer tokens than a window and its label take.
        ValueError: An argument is out of range.

    Example:

    >>> batches = TokenWindows(ids, length=64, batch_size=12, random_windows=250)
    """

    def __init__(
        self,
        token_ids: np.ndarray,
        *,
        length: int,
        batch_size: int,
        random_windows: int | None = None,
        seed: int = 0,
    ):
        for name, value in (("length", length), ("batch_size", batch_size), ("random_windows", random_windows)):
            if value is not None and value < 1:
                raise ValueError(f"{name} must be at least 1; got {value}")
        if seed < 0:
            raise ValueError(f"seed must be at least 0; got {seed}")
        token_ids = np.asarray(token_ids, "int32")
        needed = length + 1 if random_windows else 2
        if len(token_ids) < needed:
            raise DataError(f"the text has {len(token_ids)} tokens; windows of {length} need at least {needed}")
        self._length, self._batch_size, self._seed = length, batch_size, seed
        self._random, self._count = random_windows is not None, len(token_ids)
        windows = -(-(len(token_ids) - 1) // length)
        self.number_of_batches = random_windows if self._random else -(-windows // batch_size)
        filler = 0 if self._random else self.number_of_batches * batch_size * length + 1 - len(token_ids)
        with tf.device("CPU:0"):
            self._token_ids = tf.constant(np.pad(token_ids, (0, filler)))
            self._epoch = tf.Variable(0, dtype=tf.int64, trainable=False)
            self._skip_batches = tf.Variable(0, dtype=tf.int64, trainable=False)
        dataset = tf.data.Dataset.from_tensors(0).flat_map(self._one_epoch).prefetch(tf.data.AUTOTUNE)
        # Keras stops an epoch after `cardinality` batches; that of a resumed epoch is still that of a whole one
        number_of_batches = tf.constant(self.number_of_batches, tf.int64)
        dataset.cardinality = lambda: number_of_batches
        self.dataset = dataset

    def start_epoch(self, epoch: int, skip_batches: int = 0) -> None:
        """Set what the next iteration over `dataset` gives.

        Args:
            epoch: Number of the epoch, from 0.
            skip_batches: Number of batches at the start of the epoch that are left out.

        Raises:
            ValueError: A number is out of range.
        """
        if epoch < 0:
            raise ValueError(f"epoch must be at least 0; got {epoch}")
        if not 0 <= skip_batches <= self.number_of_batches:
            raise ValueError(f"skip_batches must be 0 to {self.number_of_batches}; got {skip_batches}")
        self._epoch.assign(epoch)
        self._skip_batches.assign(skip_batches)

    def _one_epoch(self, _: tf.Tensor) -> tf.data.Dataset:
        starts = tf.numpy_function(self._plan, [self._epoch.read_value()], tf.int64, stateful=False)
        starts = tf.ensure_shape(starts, [self.number_of_batches, self._batch_size])
        return tf.data.Dataset.from_tensor_slices(starts).skip(self._skip_batches.read_value()).map(self._assemble)

    def _plan(self, epoch: int) -> np.ndarray:
        shape = (self.number_of_batches, self._batch_size)
        if self._random:
            generator = np.random.default_rng((self._seed, int(epoch)))
            return generator.integers(self._count - self._length, size=shape)
        return np.arange(np.prod(shape)).reshape(shape) * self._length

    def _assemble(self, starts: tf.Tensor):
        places = starts[:, None] + tf.range(self._length, dtype=tf.int64)
        real = places < self._count - 1
        inputs = {"token_ids": tf.gather(self._token_ids, places), "padding_mask": real}
        return inputs, tf.gather(self._token_ids, places + 1), tf.cast(real, tf.float32)
