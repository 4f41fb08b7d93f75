"""Batches of rows of whole conversations for `model.fit`, by tf.data."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import tensorflow as tf

from recipes.common.errors import require_options
from zoo.preprocessing.conversations import whole_rows
from zoo.training import ResumableBatches


class PackedConversations(ResumableBatches):
    """A reproducible, resumable `tf.data.Dataset` of rows of whole conversations that do not attend to each other.

    The same conversations share a row in all epochs. The order of the rows depends only on the seed and the epoch.

    Args:
        preprocessor: The preprocessor of a `CausalLM` with a chat format.
        conversations: Lists of messages.
        length: Number of tokens of a row. No conversation may be longer.
        batch_size: Number of rows of a batch.
        shuffle: Whether the rows are shuffled.
        seed: Seed of the order, at least 0.

    Attributes:
        dataset, number_of_batches: See `ResumableBatches`.
        number_of_rows: Number of conversations of an epoch.
        filled: Fraction of the positions of all rows that hold a token.

    Example:

    >>> batches = PackedConversations(chat_model.preprocessor, conversations, length=1024, batch_size=8)
    """

    def __init__(
        self,
        preprocessor: Any,
        conversations: Sequence[Any],
        *,
        length: int,
        batch_size: int,
        shuffle: bool = True,
        seed: int = 0,
    ) -> None:
        require_options(length=length, batch_size=batch_size, seed=seed)
        self._preprocessor, self._length, self._batch_size = preprocessor, length, batch_size
        self._shuffle, self._seed = shuffle, seed
        with tf.device("CPU:0"):
            self._examples = preprocessor.replace(sequence_length=length).examples(conversations)
            rows = whole_rows(self._examples.lengths, length)
            self._members = tf.ragged.constant(rows, tf.int64, ragged_rank=1)
        self._count, self.number_of_rows = len(rows), len(conversations)
        self.filled = float(self._examples.lengths.sum()) / (length * len(rows))
        super().__init__(-(-len(rows) // batch_size), self._batches_of_epoch)

    def _batches_of_epoch(self, epoch: tf.Tensor) -> tf.data.Dataset:
        order = tf.ensure_shape(tf.numpy_function(self._order, [epoch], tf.int64, stateful=False), [None])

        def assemble(chosen: tf.Tensor) -> tuple[Any, Any, Any]:
            return self._preprocessor.packed(self._examples, tf.gather(self._members, chosen), self._length)

        batches = tf.data.Dataset.from_tensor_slices(order).batch(self._batch_size)
        return batches.map(assemble, num_parallel_calls=tf.data.AUTOTUNE)

    def _order(self, epoch: int) -> np.ndarray:
        if not self._shuffle:
            return np.arange(self._count)
        return np.random.default_rng((self._seed, int(epoch))).permutation(self._count)
