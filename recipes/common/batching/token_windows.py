"""Windows of a long text for a language model, by tf.data."""

from __future__ import annotations

import numpy as np
import tensorflow as tf

from recipes.common.errors import DataError, require_options
from zoo.training import ResumableBatches


class TokenWindows(ResumableBatches):
    """A reproducible, resumable `tf.data.Dataset` of windows of one sequence of tokens.

    Each element is `(inputs, labels, sample_weight)`. `inputs` has `token_ids` and `padding_mask`, `labels` are the
    next tokens, all `(batch, length)`.

    With `random_windows`, windows begin anywhere, as in nanoGPT. They depend only on the seed and the epoch. Otherwise
    the windows are consecutive, and every token but the first is a label exactly once. The last window and the last
    batch are filled up with weights of zero.

    Args:
        token_ids: The tokens, integers `(tokens,)`.
        length: Number of tokens of a window.
        batch_size: Number of windows of a batch.
        random_windows: Number of random batches of an epoch; None for consecutive windows.
        seed: Seed of the windows, at least 0.

    Attributes:
        dataset, number_of_batches: See `ResumableBatches`.
        number_of_tokens: Tokens that are predicted: all but the first.

    Raises:
        DataError: There are fewer tokens than a window and its label take.
        ConfigError: An argument is out of range.

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
    ) -> None:
        require_options(length=length, batch_size=batch_size, random_windows=random_windows, seed=seed)
        token_ids = np.asarray(token_ids, "int32")
        needed = length + 1 if random_windows else 2
        if len(token_ids) < needed:
            raise DataError(f"the text has {len(token_ids)} tokens; windows of {length} need at least {needed}")
        self._length, self._batch_size, self._seed = length, batch_size, seed
        self._random, self._count = random_windows is not None, len(token_ids)
        windows = -(-(len(token_ids) - 1) // length)
        self.number_of_tokens = len(token_ids) - 1
        number_of_batches = random_windows if self._random else -(-windows // batch_size)
        filler = 0 if self._random else number_of_batches * batch_size * length + 1 - len(token_ids)
        with tf.device("CPU:0"):
            self._token_ids = tf.constant(np.pad(token_ids, (0, filler)))
        super().__init__(number_of_batches, self._batches_of_epoch)

    def _batches_of_epoch(self, epoch: tf.Tensor) -> tf.data.Dataset:
        starts = tf.numpy_function(self._plan, [epoch], tf.int64, stateful=False)
        starts = tf.ensure_shape(starts, [self.number_of_batches, self._batch_size])
        return tf.data.Dataset.from_tensor_slices(starts).map(self._assemble)

    def _plan(self, epoch: int) -> np.ndarray:
        shape = (self.number_of_batches, self._batch_size)
        if self._random:
            generator = np.random.default_rng((self._seed, int(epoch)))
            return generator.integers(self._count - self._length, size=shape)
        return np.arange(np.prod(shape)).reshape(shape) * self._length

    def _assemble(self, starts: tf.Tensor) -> tuple[dict[str, tf.Tensor], tf.Tensor, tf.Tensor]:
        places = starts[:, None] + tf.range(self._length, dtype=tf.int64)
        token_mask = places < self._count - 1
        inputs = {"token_ids": tf.gather(self._token_ids, places), "padding_mask": token_mask}
        return inputs, tf.gather(self._token_ids, places + 1), tf.cast(token_mask, tf.float32)
