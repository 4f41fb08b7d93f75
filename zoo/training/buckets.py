"""Rows of similar length in one batch: the lengths that rows are padded to, and which rows form a batch."""

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np


class BatchPlan(NamedTuple):
    """The batches of a set of rows.

    Batch i consists of `rows[starts[i] : starts[i] + sizes[i]]` padded to `lengths[i]` tokens. A row index that equals
    the number of rows stands for a row without tokens, which fills a batch up to its size.
    """

    rows: np.ndarray
    starts: np.ndarray
    sizes: np.ndarray
    lengths: np.ndarray


def choose_bucket_lengths(row_lengths: np.ndarray, number_of_buckets: int) -> list[int]:
    """Returns the lengths to pad rows to that need the fewest tokens of padding in total.

    The result is exact, by dynamic programming over the distinct row lengths: the best k buckets for all rows up to a
    length are the best k - 1 buckets up to a shorter length, and a bucket for the rest.

    Args:
        row_lengths: Length of every row in tokens, ints `(rows,)`.
        number_of_buckets: Largest number of lengths.

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
        raise ValueError("row_lengths must not be empty, got no row.")
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
    """Puts every row into one batch of the shortest bucket that holds it.

    Rows of a bucket that are too few for a batch move to the next longer bucket. So at most one batch, of the longest
    bucket, is filled up with rows without tokens. The number of batches does not depend on the order of the rows.

    Args:
        row_lengths: Length of every row in tokens, ints `(rows,)`.
        bucket_lengths: Increasing lengths to pad to. The last is at least that of the longest row.
        batch_sizes: Number of rows in a batch of each bucket.
        generator: Shuffles the rows and the batches. None keeps the order of the rows within a bucket, short buckets
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
        raise ValueError(
            f"row_lengths must be at most {bucket_lengths[-1]}, that of the last bucket, got {row_lengths.max()}."
        )
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
    """Returns the number of batches that `plan_batches` forms from these rows, in any order.

    Args:
        row_lengths: Length of every row in tokens, ints `(rows,)`.
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
