"""The order of batches: a function of the epoch, so that a training can go on in the middle of one; and buckets."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import NamedTuple

import numpy as np
import tensorflow as tf

from recipes.common.errors import ConfigError


class ResumableBatches:
    """A `tf.data.Dataset` that gives the batches of the epoch that was chosen last, see `zoo.training.ResumableData`.

    Args:
        number_of_batches: Batches of an epoch, the same for every epoch.
        batches_of_epoch: Graph function from the number of an epoch, an int64 scalar, to the dataset of its batches.

    Attributes:
        dataset: The dataset; each iteration gives the epoch set by `start_epoch` (at first 0). Its cardinality is that
            of a whole epoch.
        number_of_batches: Batches of an epoch.

    Example:

    >>> batches.start_epoch(3)
    >>> model.fit(batches.dataset, initial_epoch=3, epochs=4)
    """

    def __init__(self, number_of_batches: int, batches_of_epoch: Callable[[tf.Tensor], tf.data.Dataset]):
        self.number_of_batches = number_of_batches
        # variables, because the graph of a dataset is made once and reads them at the start of every iteration
        with tf.device("CPU:0"):
            self._epoch = tf.Variable(0, dtype=tf.int64, trainable=False)
            self._skip_batches = tf.Variable(0, dtype=tf.int64, trainable=False)

        def one_epoch(_: tf.Tensor) -> tf.data.Dataset:
            return batches_of_epoch(self._epoch.read_value()).skip(self._skip_batches.read_value())

        dataset = tf.data.Dataset.from_tensors(0).flat_map(one_epoch).prefetch(tf.data.AUTOTUNE)
        # Keras stops an epoch after `cardinality` batches and, where that is unknown, after as many as its first epoch
        # had, which would cut all epochs short after a resume in the middle of one. `assert_cardinality` would not do:
        # it raises when that shortened epoch ends.
        cardinality = tf.constant(number_of_batches, tf.int64)
        dataset.cardinality = lambda: cardinality
        self.dataset = dataset

    def start_epoch(self, epoch: int, skip_batches: int = 0) -> None:
        """Sets what the next iteration over `dataset` gives.

        Args:
            epoch: Number of the epoch, from 0.
            skip_batches: Number of batches at the start of the epoch that are left out, because they were trained on
                before an interruption.

        Raises:
            ValueError: A number is out of range.

        Example:

        >>> batches.start_epoch(7, skip_batches=120)
        """
        if epoch < 0:
            raise ValueError(f"epoch must be at least 0, got {epoch}")
        if not 0 <= skip_batches <= self.number_of_batches:
            raise ValueError(f"skip_batches must be 0 to {self.number_of_batches}, got {skip_batches}")
        self._epoch.assign(epoch)
        self._skip_batches.assign(skip_batches)


def require_options(**options: int | None) -> None:
    """Checks options of batches: `seed` must be at least 0, all others at least 1; None passes.

    Raises:
        ConfigError: If one is out of range, naming it.
    """
    for name, value in options.items():
        least = 0 if name == "seed" else 1
        if value is not None and value < least:
            raise ConfigError(f"training.{name} must be at least {least}, got {value}")


class BatchPlan(NamedTuple):
    """The batches of a set of rows.

    Batch number i consists of `rows[starts[i] : starts[i] + sizes[i]]` padded to `lengths[i]` tokens. A row number that
    equals the number of rows stands for a row without tokens, which fills a batch up to its size.
    """

    rows: np.ndarray
    starts: np.ndarray
    sizes: np.ndarray
    lengths: np.ndarray


def choose_bucket_lengths(row_lengths: np.ndarray, number_of_buckets: int) -> list[int]:
    """The lengths to pad rows to, at most `number_of_buckets` of them, with the fewest tokens of padding in total.

    Exact, by dynamic programming over the distinct row lengths: the best k buckets for all rows up to a length are the
    best k - 1 buckets up to a shorter one and a bucket for the rest.

    Args:
        row_lengths: Length of every row in tokens, ints (rows,).
        number_of_buckets: Most lengths that may be chosen.

    Returns:
        Increasing lengths; the last is that of the longest row.

    Raises:
        ValueError: There is no row, or `number_of_buckets` is below 1.

    Example:

    >>> choose_bucket_lengths(np.array([3, 3, 4, 9, 10]), 2)
    [4, 10]
    """
    if number_of_buckets < 1:
        raise ValueError(f"number_of_buckets must be at least 1, got {number_of_buckets}")
    lengths, counts = np.unique(row_lengths, return_counts=True)
    if not lengths.size:
        raise ValueError("row_lengths must not be empty")
    rows_up_to = np.cumsum(counts)
    # total[i]: tokens, padding included, of the rows up to lengths[i] in the buckets allowed so far.
    total = lengths * rows_up_to
    previous_ends = []
    for _ in range(min(number_of_buckets, lengths.size) - 1):
        # with_cut[i, j]: the same if the last bucket takes the rows longer than lengths[j].
        with_cut = total[None, :] + (rows_up_to[:, None] - rows_up_to[None, :]) * lengths[:, None]
        with_cut = np.where(np.tri(lengths.size, k=-1, dtype=bool), with_cut, np.iinfo(np.int64).max)
        cut = with_cut.argmin(axis=1)
        cut_total = with_cut.min(axis=1)
        previous_ends.append(np.where(cut_total < total, cut, -1))
        total = np.minimum(total, cut_total)
    end = lengths.size - 1
    chosen = [int(lengths[end])]
    for previous_end in reversed(previous_ends):
        if previous_end[end] >= 0:
            end = previous_end[end]
            chosen.append(int(lengths[end]))
    return chosen[::-1]


def plan_batches(
    row_lengths: np.ndarray,
    bucket_lengths: Sequence[int],
    batch_sizes: Sequence[int],
    generator: np.random.Generator | None = None,
) -> BatchPlan:
    """Put every row into one batch of the shortest bucket that holds it.

    The rows left over in a bucket, too few for a batch, move on to the next longer one; so at most one batch, of the
    longest bucket, is filled up with rows without tokens, and the number of batches does not depend on the order.

    Args:
        row_lengths: Length of every row in tokens, ints (rows,).
        bucket_lengths: Increasing lengths to pad to; the last is at least that of the longest row.
        batch_sizes: Rows of a batch of each bucket.
        generator: Shuffles the rows and the batches; None keeps the order of the rows within a bucket, short buckets
            first.

    Returns:
        The plan.

    Raises:
        ValueError: A row is longer than the last bucket.

    Example:

    >>> plan_batches(np.array([2, 5, 2]), [2, 5], [2, 1]).rows
    array([0, 2, 1])
    """
    row_lengths = np.asarray(row_lengths)
    number_of_rows = len(row_lengths)
    buckets = np.searchsorted(bucket_lengths, row_lengths)
    if number_of_rows and buckets.max() == len(bucket_lengths):
        raise ValueError(f"the longest row has {row_lengths.max()} tokens, the last bucket {bucket_lengths[-1]}")
    order = np.arange(number_of_rows) if generator is None else generator.permutation(number_of_rows)
    left_over = np.zeros(0, np.int64)
    batches: list[tuple[np.ndarray, int]] = []
    for bucket, (length, size) in enumerate(zip(bucket_lengths, batch_sizes, strict=True)):
        rows = np.concatenate([left_over, order[buckets[order] == bucket]])
        full = len(rows) // size * size
        batches += [(batch, length) for batch in rows[:full].reshape(-1, size)]
        left_over = rows[full:]
    if len(left_over):
        filler = np.full(batch_sizes[-1] - len(left_over), number_of_rows)
        batches.append((np.concatenate([left_over, filler]), bucket_lengths[-1]))
    if generator is not None:
        batches = [batches[index] for index in generator.permutation(len(batches))]
    sizes = np.array([len(rows) for rows, _ in batches], np.int64)
    return BatchPlan(
        rows=np.concatenate([rows for rows, _ in batches] or [left_over]).astype(np.int64),
        starts=np.cumsum(sizes) - sizes,
        sizes=sizes,
        lengths=np.array([length for _, length in batches], np.int64),
    )


def count_batches(row_lengths: np.ndarray, bucket_lengths: Sequence[int], batch_sizes: Sequence[int]) -> int:
    """The number of batches that `plan_batches` makes of these rows, in any order.

    Args:
        row_lengths: Length of every row in tokens, ints (rows,).
        bucket_lengths: As for `plan_batches`.
        batch_sizes: As for `plan_batches`.

    Returns:
        The number.

    Example:

    >>> count_batches(np.array([2, 5, 2]), [2, 5], [2, 1])
    2
    """
    rows_of_bucket = np.bincount(np.searchsorted(bucket_lengths, row_lengths), minlength=len(bucket_lengths))
    batches = left_over = 0
    for rows, size in zip(rows_of_bucket, batch_sizes, strict=True):
        full, left_over = divmod(int(rows) + left_over, size)
        batches += full
    return batches + (left_over > 0)
