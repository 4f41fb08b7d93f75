"""Every path of attention against the definition, for every mask and option."""

import itertools
import warnings

import keras
import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from keras import ops

from layers.attention import AttentionMask, attend, choose_path

# float32 sums of a few dozen terms of size one
TOLERANCE = {"atol": 1e-5, "rtol": 1e-5}

PATHS = ["plain", "blocked", "banded"] + (["fused"] if keras.backend.backend() in ("jax", "torch") else [])

PADDING = np.array([[True] * 5 + [False] * 4, [False] * 9])  # nothing is real in the second row
SEGMENTS = np.array([[1, 1, 1, 2, 2, 2, 2, 3, 3], [1, 1, 1, 1, 1, 2, 2, 2, 2]])
ALLOWED = np.random.default_rng(4).random((2, 4, 9, 9)) < 0.5
ALLOWED[0, 1, 2] = False  # a query that sees nothing in one head only
MASKS = {
    "none": {},
    "causal": {"causal": True},
    "window": {"window": (2, 1)},
    "window_without_self": {"window": (1, 0)},
    "window_of_self": {"window": (0, 0)},
    "window_left": {"window": (2, None)},
    "window_right": {"window": (None, 1)},
    "causal_window": {"causal": True, "window": (2, 0)},
    "block": {"block_size": 4},
    "block_window": {"block_size": 4, "window": (1, 2)},
    "causal_block": {"block_size": 2, "causal": True},
    "prefix": {"causal": True, "prefix_length": np.array([4, 0])},
    "padding": {"key_padding_mask": PADDING},
    "causal_padding": {"causal": True, "key_padding_mask": ~PADDING},
    "window_padding": {"window": (1, 1), "key_padding_mask": PADDING},
    "segments": {"query_segment_ids": SEGMENTS, "key_segment_ids": SEGMENTS},
    "causal_segments": {"causal": True, "query_segment_ids": SEGMENTS, "key_segment_ids": SEGMENTS},
    "window_segments": {"window": (3, 0), "query_segment_ids": SEGMENTS, "key_segment_ids": SEGMENTS},
    "positions": {"causal": True, "query_positions": np.arange(9) - 3, "key_positions": np.arange(9)},
    "positions_by_row": {"window": (2, 2), "query_positions": np.arange(9) + np.array([[0], [4]])},
    "allowed": {"allowed": ALLOWED[0, 0]},
    "allowed_by_row": {"allowed": ALLOWED[:, 0]},
    "allowed_by_head": {"allowed": ALLOWED, "causal": True},
    "allowed_keys": {"allowed": ALLOWED[0, 0, :1]},
}
OPTIONS = {
    "plain": {},
    "soft_cap": {"soft_cap": 1.5},
    "sinks": {"sinks": np.array([0.5, -1.0, 2.0, 0.0], "float32")},
    "bias": {"bias": np.random.default_rng(5).normal(size=(2, 4, 9, 9)).astype("float32")},
    "bias_of_keys": {"bias": np.random.default_rng(6).normal(size=(1, 1, 1, 9)).astype("float32")},
    "all": {
        "soft_cap": 1.5,
        "sinks": np.array([0.5, -1.0, 2.0, 0.0], "float32"),
        "bias": np.random.default_rng(7).normal(size=(1, 4, 9, 9)).astype("float32"),
    },
}


def can(path, *tensors, **options):
    """Whether a path can do what is asked for, by what it says itself."""
    try:
        choose_path(*tensors, path=path, **options)
    except ValueError as error:
        assert "path must be 'auto' or 'plain' where" in str(error)
        return False
    return True


def check(kernels, path, query, key, value, mask_options, scale=0.4, bias_matrix=None, **options):
    """Runs a path if it can, and compares; returns whether it could."""
    mask = AttentionMask(**mask_options) if mask_options else None
    if not can(path, query, key, value, mask, **options):
        return False
    visible = kernels.visible_pairs(*query.shape[:3], key.shape[2], mask_options)
    expected_options = {**options, "bias": options.get("bias") if bias_matrix is None else bias_matrix}
    expected, expected_weights = kernels.formula(query, key, value, visible, scale=scale, **expected_options)
    output = ops.convert_to_numpy(kernels.run(path, query, key, value, mask, scale=scale, **options))
    np.testing.assert_allclose(output, expected, **TOLERANCE)
    # rows that see nothing are zero, not merely close to it
    hidden = ~visible.any(-1)
    np.testing.assert_array_equal(output[hidden], 0)
    if path == "plain":
        output, weights = attend(query, key, value, mask, scale=scale, path=path, return_weights=True, **options)
        np.testing.assert_allclose(ops.convert_to_numpy(output), expected, **TOLERANCE)
        np.testing.assert_allclose(ops.convert_to_numpy(weights), expected_weights, **TOLERANCE)
    return True


@pytest.mark.parametrize("path", PATHS)
@pytest.mark.parametrize("name", MASKS)
def test_masks(kernels, short_pieces, path, name):
    query, key, value = (
        kernels.normal(2, 4, 9, 5),
        kernels.normal(2, 2, 9, 5, seed=1),
        kernels.normal(2, 2, 9, 5, seed=2),
    )
    could = check(kernels, path, query, key, value, MASKS[name])
    banded = ("window" in name or "block" in name) and name not in ("window_left", "window_right")
    assert could == (path != "banded" or banded)


@pytest.mark.parametrize("path", PATHS)
@pytest.mark.parametrize("name", OPTIONS)
@pytest.mark.parametrize("mask", ["none", "causal", "window", "causal_padding"])
def test_options(kernels, short_pieces, path, name, mask):
    query, key, value = (
        kernels.normal(2, 4, 9, 5),
        kernels.normal(2, 2, 9, 5, seed=1),
        kernels.normal(2, 2, 9, 3, seed=2),
    )
    could = check(kernels, path, query, key, value, MASKS[mask], **OPTIONS[name])
    if path in ("plain", "blocked"):
        assert could


@pytest.mark.parametrize("path", ["plain", "blocked", "banded"])
@pytest.mark.parametrize("mask", ["none", "causal", "window", "causal_window", "causal_block", "positions"])
def test_bias_of_the_distance(kernels, short_pieces, path, mask):
    query, key, value = (kernels.normal(2, 4, 9, 5, seed=seed) for seed in range(3))
    bias = kernels.BiasOfDistance(4)
    matrix = bias.matrix(9, 9)
    if mask == "positions":
        matrix = np.asarray(bias(ops.arange(9) - 3, ops.arange(9)))
    could = check(kernels, path, query, key, value, MASKS[mask], bias=bias, bias_matrix=matrix)
    assert could == (path != "banded" or mask not in ("none", "causal", "positions"))


@st.composite
def problems(draw):
    """Shapes, a mask and options."""
    size = st.integers(1, 8)
    batch, key_value_heads, groups = draw(st.integers(1, 2)), draw(st.integers(1, 2)), draw(st.integers(1, 2))
    query_length = draw(size)
    key_length = draw(st.one_of(st.just(query_length), size))
    side = st.one_of(st.none(), st.integers(0, 5))
    random = np.random.default_rng(draw(st.integers(0, 2**20)))
    mask = {"causal": draw(st.booleans())}
    if draw(st.booleans()):
        mask["window"] = draw(st.tuples(side, side))
    if draw(st.integers(0, 3)) == 0:
        mask["block_size"] = draw(st.integers(1, 5))
    if mask["causal"] and draw(st.integers(0, 3)) == 0:
        mask["prefix_length"] = random.integers(0, key_length + 1, batch)
    if draw(st.booleans()):
        mask["key_padding_mask"] = random.random((batch, key_length)) < 0.7
    if draw(st.integers(0, 3)) == 0:
        mask["query_segment_ids"] = random.integers(0, 3, (batch, query_length))
        mask["key_segment_ids"] = random.integers(0, 3, (batch, key_length))
    if draw(st.integers(0, 3)) == 0:
        mask["query_positions"] = random.integers(-2, key_length, (batch, query_length))
    if draw(st.integers(0, 3)) == 0:
        mask["allowed"] = random.random((query_length, key_length)) < 0.6
    options = {}
    if draw(st.booleans()):
        options["sinks"] = random.normal(size=key_value_heads * groups).astype("float32")
    if draw(st.integers(0, 2)) == 0:
        options["soft_cap"] = 2.0
    if draw(st.integers(0, 2)) == 0:
        rows = draw(st.sampled_from([1, query_length]))
        options["bias"] = random.normal(size=(1, key_value_heads * groups, rows, key_length)).astype("float32")
    heads, dim, value_dim = key_value_heads * groups, draw(st.integers(1, 4)), draw(st.integers(1, 4))
    query = random.normal(size=(batch, heads, query_length, dim)).astype("float32")
    key = random.normal(size=(batch, key_value_heads, key_length, dim)).astype("float32")
    value = random.normal(size=(batch, key_value_heads, key_length, value_dim)).astype("float32")
    return query, key, value, mask, options


# JAX compiles every operation anew for each shape
EXAMPLES = 60 if keras.backend.backend() == "tensorflow" else 6


@settings(
    max_examples=EXAMPLES,
    deadline=None,
    derandomize=True,
    suppress_health_check=[HealthCheck.function_scoped_fixture],
)
@given(problem=problems())
def test_random_shapes_and_masks(kernels, short_pieces, problem):
    query, key, value, mask, options = problem
    done = [path for path in PATHS if check(kernels, path, query, key, value, mask, **options)]
    assert {"plain", "blocked"} <= set(done)


@pytest.mark.parametrize("path", ["plain", "blocked", "banded"])
def test_lengths_that_differ(kernels, short_pieces, path):
    for query_length, key_length in itertools.product((1, 4, 10), (1, 5, 10)):
        query = kernels.normal(1, 2, query_length, 3)
        key, value = (kernels.normal(1, 2, key_length, 3, seed=seed) for seed in (1, 2))
        check(kernels, path, query, key, value, {"window": (2, 1)})


@pytest.mark.parametrize("path", ["plain", "blocked"])
@pytest.mark.parametrize("ascending", [True, False])
@pytest.mark.parametrize("causal", [True, False])
def test_scores_of_any_size(kernels, path, ascending, causal):
    # each score is far above, or below, the one before: a softmax that does not move its reference overflows
    query = np.ones((1, 1, 12, 1), "float32")
    key = np.linspace(-500, 500, 12, dtype="float32")[:: 1 if ascending else -1].reshape(1, 1, 12, 1)
    check(kernels, path, query, key, kernels.normal(1, 1, 12, 2), {"causal": causal}, scale=1.0)
    check(kernels, path, query, key - 2000, kernels.normal(1, 1, 12, 2), {"causal": causal}, scale=1.0)


@pytest.mark.parametrize("path", ["plain", "blocked"])
def test_hidden_keys_may_hold_anything_finite(kernels, path):
    query, key, value = (kernels.normal(1, 2, 6, 4, seed=seed) for seed in range(3))
    hidden = np.arange(6) > 3
    key[:, :, hidden] = 1e9
    check(kernels, path, query, key, value, {"key_padding_mask": ~hidden[None]})


@pytest.mark.parametrize("path", PATHS)
@pytest.mark.parametrize(("dtype", "tolerance"), [("bfloat16", 0.03), ("float16", 0.004)])
def test_half_precision(kernels, short_pieces, path, dtype, tolerance):
    # inputs and output keep 8 and 11 bits: relative errors of 0.4 and 0.05 % in each of a few roundings
    tensors = [ops.cast(kernels.normal(1, 2, 9, 8, seed=seed), dtype) for seed in range(3)]
    rounded = [ops.convert_to_numpy(ops.cast(x, "float32")) for x in tensors]
    mask = {"window": (3, 2)}
    expected, _ = kernels.formula(*rounded, kernels.visible_pairs(1, 2, 9, 9, mask), scale=0.3)
    output = kernels.run(path, *tensors, AttentionMask(**mask), scale=0.3)
    assert keras.backend.standardize_dtype(output.dtype) == dtype
    np.testing.assert_allclose(ops.convert_to_numpy(ops.cast(output, "float32")), expected, atol=tolerance)


@pytest.mark.parametrize("path", ["plain", "blocked", "banded"])
def test_softmax_is_in_float32_in_half_precision(kernels, path):
    # 3,000 equal scores: a float16 sum of their exponentials has steps of 2, a bfloat16 sum stops at 256
    query = ops.zeros((1, 1, 3000, 2), "bfloat16")
    mask = AttentionMask(window=(3000, 3000))
    value = ops.ones((1, 1, 3000, 2), "bfloat16")
    output = attend(query[:, :, :300], query, value, mask, scale=1.0, path=path)
    np.testing.assert_allclose(ops.convert_to_numpy(ops.cast(output, "float32")), 1, atol=0.005)


@pytest.mark.parametrize("path", ["plain", "banded"])
def test_dropout_gets_the_weights(kernels, short_pieces, path):
    query, key, value = (kernels.normal(1, 2, 9, 4, seed=seed) for seed in range(3))
    sums = []

    def halve_and_watch(weights):
        sums.append(ops.convert_to_numpy(ops.sum(weights, axis=-1)))
        return weights / 2

    options = {"scale": 0.5, "path": path}
    mask = AttentionMask(window=(2, 2))
    expected = ops.convert_to_numpy(attend(query, key, value, mask, **options))
    output = attend(query, key, value, mask, dropout=halve_and_watch, **options)
    np.testing.assert_allclose(ops.convert_to_numpy(output), expected / 2, **TOLERANCE)
    for total in sums:
        np.testing.assert_allclose(total, 1, atol=1e-5)


def test_returned_weights_are_those_before_dropout(kernels):
    query, key, value = (kernels.normal(1, 2, 5, 4, seed=seed) for seed in range(3))
    output, weights = attend(query, key, value, scale=0.5, dropout=lambda weights: weights * 0, return_weights=True)
    np.testing.assert_array_equal(ops.convert_to_numpy(output), 0)
    np.testing.assert_allclose(ops.convert_to_numpy(weights).sum(-1), 1, atol=1e-5)


@pytest.mark.parametrize("path", PATHS)
@pytest.mark.parametrize("mask", ["none", "causal", "causal_window", "padding"])
def test_xla(kernels, short_pieces, with_xla, path, mask):
    query, key, value = (
        kernels.normal(2, 4, 9, 5),
        kernels.normal(2, 2, 9, 5, seed=1),
        kernels.normal(2, 2, 9, 5, seed=2),
    )
    options = MASKS[mask]
    if not can(path, query, key, value, AttentionMask(**options)):
        pytest.skip("this path does not take this mask")
    expected, _ = kernels.formula(query, key, value, kernels.visible_pairs(2, 4, 9, 9, options), scale=0.4)
    output = with_xla(lambda *tensors: kernels.run(path, *tensors, AttentionMask(**options), scale=0.4))(
        query, key, value
    )
    np.testing.assert_allclose(output, expected, **TOLERANCE)


@pytest.mark.parametrize("path", ["plain", "blocked", "banded"])
@pytest.mark.parametrize("mask", ["causal_window", "window_padding"])
def test_unknown_batch_and_lengths(kernels, short_pieces, path, mask):
    tf = pytest.importorskip("tensorflow")
    if keras.backend.backend() != "tensorflow":
        pytest.skip("only TensorFlow traces with sizes that are not known")
    options = dict(MASKS[mask])
    padding = options.pop("key_padding_mask", np.ones((2, 9), bool))

    @tf.function(
        input_signature=[tf.TensorSpec((None, heads, None, 5)) for heads in (4, 2, 2)]
        + [tf.TensorSpec((None, None), tf.bool)]
    )
    def function(query, key, value, padding):
        return kernels.run(path, query, key, value, AttentionMask(**options, key_padding_mask=padding), scale=0.4)

    for batch, length in ((2, 9), (1, 4), (2, 1)):
        tensors = [kernels.normal(batch, heads, length, 5, seed=heads) for heads in (4, 2, 2)]
        visible = kernels.visible_pairs(
            batch, 4, length, length, {**options, "key_padding_mask": padding[:batch, :length]}
        )
        output = function(*tensors, padding[:batch, :length])
        np.testing.assert_allclose(output, kernels.formula(*tensors, visible, scale=0.4)[0], **TOLERANCE)


@pytest.mark.parametrize("path", ["plain", "banded"])
def test_a_single_key(path):
    """A text of one token attends to itself. Keras would warn of an axis of size 1."""
    query, key, value = (np.random.default_rng(part).normal(size=(2, 4, 1, 8)).astype("float32") for part in range(3))
    mask = AttentionMask(window=(0, 0))
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        output = attend(*map(ops.convert_to_tensor, (query, key, value)), mask=mask, scale=1.0, path=path)
    np.testing.assert_array_equal(output, value)
