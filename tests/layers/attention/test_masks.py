"""Descriptions of masks against the matrices that they stand for."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from keras import ops

from layers.attention import AttentionMask


def matrix(mask, *arguments):
    return np.array(ops.convert_to_numpy(mask.materialize(*arguments)))


def test_documented_matrix():
    expected = [[1, 0, 0, 0], [1, 1, 0, 0], [1, 1, 1, 0], [0, 1, 1, 1]]
    np.testing.assert_array_equal(matrix(AttentionMask(causal=True, window=(2, 0)), 4, 4)[0, 0], expected)


def test_nothing_to_hide():
    assert AttentionMask().materialize(4, 4) is None
    assert AttentionMask(window=(None, None)).materialize(4, 4) is None


ORDER = st.fixed_dictionaries(
    {"causal": st.booleans()},
    optional={
        "window": st.tuples(st.none() | st.integers(0, 6), st.none() | st.integers(0, 6)),
        "block_size": st.integers(1, 6),
    },
)


@settings(max_examples=60, deadline=None, derandomize=True)
@given(options=ORDER, query_length=st.integers(1, 10), key_length=st.integers(1, 10), data=st.data())
def test_pieces_are_slices_of_the_whole(options, query_length, key_length, data):
    allowed = np.random.default_rng(0).random((query_length, key_length)) < 0.8
    segments = np.arange(10) // 4
    mask = AttentionMask(
        **options,
        allowed=allowed,
        query_segment_ids=segments[None, :query_length],
        key_segment_ids=segments[None, :key_length],
        key_padding_mask=np.arange(key_length)[None] != 1,
    )
    whole = matrix(mask, query_length, key_length)
    first_query = data.draw(st.integers(0, query_length - 1))
    first_key = data.draw(st.integers(0, key_length - 1))
    piece = matrix(mask, query_length - first_query, key_length - first_key, first_query, first_key)
    np.testing.assert_array_equal(piece, whole[..., first_query:, first_key:])


@settings(max_examples=100, deadline=None, derandomize=True)
@given(options=ORDER, key_length=st.integers(1, 12), data=st.data())
def test_range_of_visible_keys_is_exact(options, key_length, data):
    mask = AttentionMask(**options)
    first = data.draw(st.integers(0, 12))
    last = data.draw(st.integers(first, 12))
    start, end = mask.key_range(first, last, key_length)
    whole = mask.materialize(13, key_length)
    seen = np.ones(key_length, bool) if whole is None else matrix(mask, 13, key_length)[0, 0, first : last + 1].any(0)
    outside = np.ones(key_length, bool)
    outside[max(start, 0) : max(end, 0)] = False
    assert not np.any(seen & outside)
    # the same for indices that are known when a graph runs only
    tensors = mask.key_range(*(ops.convert_to_tensor(x) for x in (first, last, key_length)))
    assert [int(x) for x in tensors] == [start, end]
    if np.any(seen):
        assert (start, end) == (int(np.argmax(seen)), key_length - int(np.argmax(seen[::-1])))


@settings(max_examples=100, deadline=None, derandomize=True)
@given(options=ORDER, query_length=st.integers(1, 10), key_length=st.integers(1, 10), segments=st.booleans())
def test_certainty_of_seeing_something(options, query_length, key_length, segments):
    if segments:
        ids = np.arange(10)[None] // 3
        options = {**options, "query_segment_ids": ids[:, :query_length], "key_segment_ids": ids[:, :key_length]}
    mask = AttentionMask(**options)
    if mask.materialize(query_length, key_length) is None or not mask.sees_something(query_length, key_length):
        return
    assert np.all(matrix(mask, query_length, key_length).any(-1))


def test_what_may_see_nothing():
    padding = np.array([[True, False]])
    assert AttentionMask(causal=True).sees_something(2, 2)
    assert AttentionMask(window=(1, 1)).sees_something(2, 2)
    assert not AttentionMask(window=(1, 1)).sees_something(9, 2)
    assert not AttentionMask(key_padding_mask=padding).sees_something(2, 2)
    assert not AttentionMask(allowed=np.ones((2, 2), bool)).sees_something(2, 2)
    assert not AttentionMask(causal=True, query_positions=np.arange(2)).sees_something(2, 2)
    assert not AttentionMask(
        query_segment_ids=np.zeros((1, 2), "int32"), key_segment_ids=np.ones((1, 2), "int32")
    ).sees_something(2, 2)


def test_longer_masks_agree_where_there_was_something():
    generator = np.random.default_rng(0)
    mask = AttentionMask(
        causal=True,
        query_positions=np.arange(3) + 2,
        key_positions=np.arange(5),
        key_padding_mask=generator.random((2, 5)) < 0.7,
        query_segment_ids=generator.integers(0, 2, (2, 3)),
        key_segment_ids=generator.integers(0, 2, (2, 5)),
        allowed=generator.random((2, 1, 3, 5)) < 0.8,
    )
    np.testing.assert_array_equal(matrix(mask.padded(2, 1), 5, 6)[..., :3, :5], matrix(mask, 3, 5))


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"window": (-1, 0)}, r"window must be a pair .*\(-1, 0\)"),
        ({"window": (1, 2, 3)}, r"window must be a pair .*\(1, 2, 3\)"),
        ({"block_size": 0}, "block_size must be at least 1.*0"),
        ({"prefix_length": np.array([1])}, "prefix_length must be left out with causal=False"),
        ({"causal": True, "prefix_length": np.array([[1]])}, r"prefix_length must have rank 1 .*\(1, 1\)"),
        ({"query_segment_ids": np.zeros((1, 2), "int32")}, "must be given together"),
        ({"key_padding_mask": np.ones((2, 3))}, "key_padding_mask must have rank 2 and type bool.*float"),
        ({"key_padding_mask": np.ones(3, bool)}, r"key_padding_mask must have rank 2 .*\(3,\)"),
        ({"allowed": np.ones((2, 2), "int32")}, "allowed must have .*type bool.*int"),
        ({"query_positions": np.ones(3)}, "query_positions must have .*type int.*float"),
    ],
)
def test_errors(options, message):
    with pytest.raises(ValueError, match=message):
        AttentionMask(**options)
