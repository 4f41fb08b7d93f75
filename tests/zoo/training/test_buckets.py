import itertools

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from zoo.training import choose_bucket_lengths, count_batches, plan_batches

row_lengths = st.lists(st.integers(1, 12), min_size=1, max_size=40).map(np.array)


def padded_tokens(lengths, buckets):
    return sum(min(bucket for bucket in buckets if bucket >= length) for length in lengths)


@settings(deadline=None, max_examples=100)
@given(lengths=row_lengths, number_of_buckets=st.integers(1, 5))
def test_chosen_lengths_are_the_best_of_all(lengths, number_of_buckets):
    chosen = choose_bucket_lengths(lengths, number_of_buckets)
    distinct = sorted(set(lengths.tolist()))
    assert chosen == sorted(set(chosen))
    assert len(chosen) <= number_of_buckets
    assert chosen[-1] == distinct[-1]
    best = min(
        padded_tokens(lengths, [*others, distinct[-1]])
        for size in range(min(number_of_buckets, len(distinct)))
        for others in itertools.combinations(distinct[:-1], size)
    )
    assert padded_tokens(lengths, chosen) == best


@settings(deadline=None, max_examples=100)
@given(lengths=row_lengths, seed=st.none() | st.integers(0, 100), data=st.data())
def test_every_row_is_in_one_batch_that_holds_it(lengths, seed, data):
    buckets = choose_bucket_lengths(lengths, 3)
    sizes = [data.draw(st.integers(1, 6)) for _ in buckets]
    plan = plan_batches(lengths, buckets, sizes, None if seed is None else np.random.default_rng(seed))
    rows_seen, filled_up = [], 0
    for start, size, length in zip(plan.starts, plan.sizes, plan.lengths, strict=True):
        assert size == sizes[buckets.index(length)]
        rows = plan.rows[start : start + size]
        real = rows[rows < len(lengths)]
        assert len(real) > 0
        assert lengths[real].max() <= length
        filled_up += len(real) < size
        rows_seen += real.tolist()
    assert sorted(rows_seen) == list(range(len(lengths)))
    assert filled_up <= 1
    assert len(plan.starts) == count_batches(lengths, buckets, sizes)
    assert plan.sizes.sum() == len(plan.rows)


def test_left_over_rows_move_to_the_next_bucket():
    plan = plan_batches(np.array([2, 5, 2, 2, 5]), [2, 5], [2, 2])
    assert plan.rows.tolist() == [0, 2, 3, 1, 4, 5]
    assert plan.starts.tolist() == [0, 2, 4]
    assert plan.sizes.tolist() == [2, 2, 2]
    assert plan.lengths.tolist() == [2, 5, 5]


def test_shuffling_changes_rows_and_batches():
    lengths = np.repeat([3, 9], 50)
    plans = [plan_batches(lengths, [3, 9], [5, 5], np.random.default_rng(seed)) for seed in (1, 1, 2)]
    assert np.array_equal(plans[0].rows, plans[1].rows)
    assert not np.array_equal(plans[0].rows, plans[2].rows)
    # Short and long batches are mixed.
    assert len(set(plans[0].lengths[:10])) == 2
    assert sorted(plans[0].lengths) == sorted(plans[2].lengths)


def test_no_rows():
    plan = plan_batches(np.array([], np.int64), [4], [2])
    assert [column.size for column in plan] == [0, 0, 0, 0]
    assert count_batches(np.array([], np.int64), [4], [2]) == 0


def test_bad_arguments():
    with pytest.raises(ValueError, match="number_of_buckets must be at least 1, got 0"):
        choose_bucket_lengths(np.array([1]), 0)
    with pytest.raises(ValueError, match="must not be empty"):
        choose_bucket_lengths(np.array([], int), 2)
    with pytest.raises(ValueError, match="row_lengths must be at most 4, .*, got 9"):
        plan_batches(np.array([9]), [4], [1])
