"""Batches of raw examples for `model.fit`, made token-level by a preprocessor, by tf.data."""

from __future__ import annotations

from typing import Any

import numpy as np
import tensorflow as tf

from recipes.common.errors import DataError, require_options
from zoo.preprocessing import EVALUATION_SEED
from zoo.preprocessing.datasets import apply_class_weight
from zoo.preprocessing.rows import take_rows
from zoo.training import ResumableBatches, choose_bucket_lengths, plan_batches


class ExampleBatches(ResumableBatches):
    """A reproducible, resumable `tf.data.Dataset` of batches of the examples of a task.

    Rows of similar length share a batch, which saves padding. The last batch may be smaller. The order of an epoch
    depends only on the seed and the epoch: call `start_epoch` before each epoch, as `zoo.training.TrainingState` does.

    Args:
        preprocessor: The preprocessor of a task, or an object with `examples` and `collate`.
        x: Raw inputs, as for `fit` of the task.
        y: Raw targets, or None if the task has none.
        batch_size: Number of rows of a batch.
        number_of_buckets: Number of groups of similar length in which rows are batched.
        shuffle: Whether rows and batches are shuffled.
        seed: Seed of the order, and of random choices of the preprocessor, at least 0.
        class_weight: Weight of each label in the loss, `(labels,)`; None for none.

    Attributes:
        dataset, number_of_batches: See `ResumableBatches`.
        number_of_rows: Number of rows of an epoch. Each window of a long text is a row.
        number_cut: Number of rows whose end is cut off because they are longer than the model allows.

    Raises:
        DataError: A row that the preprocessor does not take, named by its number.
        ConfigError: An argument is out of range.

    Example:

    >>> batches = ExampleBatches(classifier.preprocessor, texts, labels, batch_size=32)
    >>> batches.start_epoch(3)
    >>> classifier.fit(batches.dataset, initial_epoch=3, epochs=4)
    """

    def __init__(
        self,
        preprocessor: Any,
        x: Any,
        y: Any = None,
        *,
        batch_size: int,
        number_of_buckets: int = 8,
        shuffle: bool = True,
        seed: int = 0,
        class_weight: np.ndarray | None = None,
    ) -> None:
        require_options(batch_size=batch_size, number_of_buckets=number_of_buckets, seed=seed)
        self._preprocessor, self._shuffle, self._seed = preprocessor, shuffle, seed
        self._class_weight = class_weight
        with tf.device("CPU:0"):
            try:
                self._examples = preprocessor.examples(x, y)
            except (TypeError, ValueError) as error:
                raise DataError(str(error)) from error
            self.number_of_rows = len(self._examples.lengths)
            self.number_cut = 0
            if getattr(preprocessor, "truncate", False):
                counts = preprocessor.training_counts(self._examples.tokens).numpy()
                self.number_cut = int(np.count_nonzero(counts > preprocessor.sequence_length))
            self._bucket_lengths = choose_bucket_lengths(self._examples.lengths, number_of_buckets)
            self._batch_sizes = [batch_size] * len(self._bucket_lengths)
        super().__init__(-(-self.number_of_rows // batch_size), self._batches_of_epoch)

    def _batches_of_epoch(self, epoch: tf.Tensor) -> tf.data.Dataset:
        rows, starts, sizes = tf.numpy_function(self._plan, [epoch], [tf.int64] * 3, stateful=False)
        columns = tuple(tf.ensure_shape(column, [None]) for column in (starts, sizes))
        batches = tf.data.Dataset.from_tensor_slices(columns).enumerate()

        def assemble(index: tf.Tensor, batch: tuple[tf.Tensor, tf.Tensor]) -> tuple[Any, Any, Any]:
            start, size = batch
            chosen = tf.gather(tf.ensure_shape(rows, [None]), tf.range(start, start + size))
            # a batch that is not full is filled up with a number that is no row
            chosen = tf.boolean_mask(chosen, chosen < self.number_of_rows)
            tokens, targets, weights = take_rows(self._examples[:3], chosen)
            # training draws anew in each epoch, validation always the same
            drawn = (self._seed * 10**6 + epoch) * 10**9 + index if self._shuffle else EVALUATION_SEED
            inputs, labels, weights = self._preprocessor.collate(tokens, targets, weights, drawn)
            weights = apply_class_weight(labels, weights, self._class_weight)
            return inputs, labels, tf.ones(tf.shape(chosen)) if weights is None else weights

        return batches.map(assemble, num_parallel_calls=tf.data.AUTOTUNE)

    def _plan(self, epoch: int) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
        generator = np.random.default_rng((self._seed, int(epoch))) if self._shuffle else None
        plan = plan_batches(self._examples.lengths, self._bucket_lengths, self._batch_sizes, generator)
        return plan.rows, plan.starts, plan.sizes
