"""Documents of a language model, packed in rows of one length without seeing each other, by tf.data."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import tensorflow as tf

from recipes.common.errors import DataError, require_options
from zoo.preprocessing.packing import packed_batches
from zoo.training import ResumableBatches

_COUNTED_AT_ONCE = 4096


class PackedDocuments(ResumableBatches):
    """A reproducible, resumable `tf.data.Dataset` of documents laid end to end in rows, see `packed_batches` of zoo.

    A document is its start token (if the task adds one), its tokens and its end token. Tokens see their own document
    only. A document that does not fit in the rest of its row continues in the next.

    With `batches_per_epoch`, the training is a stream of passes, each over all documents in another order. The stream
    is cut into epochs, and batches depend only on the seed and the epoch. Without it, an epoch has all documents in
    their order.

    Args:
        task: A `CausalLM` with a tokenizer.
        documents: Texts.
        length: Tokens of a row.
        batch_size: Rows of a batch.
        batches_per_epoch: Number of batches of an epoch; None for one pass.
        seed: Seed of the orders, at least 0.

    Attributes:
        dataset, number_of_batches: See `ResumableBatches`.
        number_of_tokens: Tokens of a pass that are predicted, end tokens included.

    Raises:
        DataError: There is no token to predict.
        ConfigError: An argument is out of range.

    Example:

    >>> batches = PackedDocuments(language_model, documents, length=64, batch_size=12, batches_per_epoch=250)
    """

    def __init__(
        self,
        task: Any,
        documents: Sequence[str],
        *,
        length: int,
        batch_size: int,
        batches_per_epoch: int | None = None,
        seed: int = 0,
    ) -> None:
        require_options(length=length, batch_size=batch_size, batches_per_epoch=batches_per_epoch, seed=seed)
        self._preprocessor, self._length, self._batch_size, self._seed = task.preprocessor, length, batch_size, seed
        self._batches_per_epoch = batches_per_epoch
        with tf.device("CPU:0"):
            self._documents = tf.constant(list(documents), tf.string)
            starts = range(0, len(documents), _COUNTED_AT_ONCE)
            parts = (self._documents[start : start + _COUNTED_AT_ONCE] for start in starts)
            self.number_of_tokens = sum(self._count(part) for part in parts)
        if not self.number_of_tokens:
            raise DataError("the documents have no token that could be predicted")
        self._batches_per_pass = -(-self.number_of_tokens // (length * batch_size))
        super().__init__(batches_per_epoch or self._batches_per_pass, self._batches_of_epoch)

    def _batches_of_epoch(self, epoch: tf.Tensor) -> tf.data.Dataset:
        if self._batches_per_epoch is None:
            return self._pack(self._documents)
        first_batch = epoch * self.number_of_batches
        passes = tf.data.Dataset.range(first_batch // self._batches_per_pass, tf.int64.max)
        stream = passes.flat_map(lambda number: self._pack(tf.gather(self._documents, self._order(number))))
        return stream.skip(first_batch % self._batches_per_pass).take(self.number_of_batches)

    def _order(self, number: tf.Tensor) -> tf.Tensor:
        def shuffled(number: int) -> np.ndarray:
            return np.random.default_rng((self._seed, int(number))).permutation(len(self._documents))

        return tf.ensure_shape(tf.numpy_function(shuffled, [number], tf.int64, stateful=False), [None])

    def _pack(self, documents: tf.Tensor) -> tf.data.Dataset:
        texts = tf.data.Dataset.from_tensor_slices(documents)
        preprocessor = self._preprocessor
        return packed_batches(texts, preprocessor.text_ids, self._length, self._batch_size, preprocessor.pad_id)

    def _count(self, documents: tf.Tensor) -> int:
        tokens = self._preprocessor.training_tokens(documents)
        return int(tf.reduce_sum(self._preprocessor.training_counts(tokens)))
