"""Multi-head attention with a key-value cache against the full pass."""

import keras
import numpy as np
import pytest
from numpy_attention import TOLERANCE, array, formula, made, normal, order, relative_bias
from tensorflow_backend import require_tensorflow

from layers import (
    ALiBi,
    RotaryEmbedding,
    ShawRelativePositions,
    XPos,
)
from layers.attention import RollingCache, WholeCache

CACHED_POSITIONS = {
    "none": lambda: None,
    "rotary": lambda: RotaryEmbedding(6),
    "relative_bias": lambda: relative_bias(bidirectional=False),
    "alibi": lambda: ALiBi(4),
    "shaw": lambda: ShawRelativePositions(6, 2),
    "xpos": lambda: XPos(6, scale_base=8.0),
}


def decoded(layer, x, capacity, chunks, positions=None, **options):
    """Outputs and weights of the chunks, each fed after the ones before it."""
    cache = layer.make_cache(len(x), capacity)
    outputs, weights, index = [], [], 0
    for count in chunks:
        part = slice(index, index + count)
        given = {} if positions is None else {"positions": positions[:, part]}
        output, cache, weight = layer(
            x[:, part], cache=cache, cache_index=index, return_weights=True, **given, **options
        )
        outputs.append(array(output))
        weights.append(array(weight))
        index += count
    return np.concatenate(outputs, axis=1), weights


@pytest.mark.parametrize("position", CACHED_POSITIONS)
@pytest.mark.parametrize("chunks", [[1] * 7, [3, 1, 3]], ids=str)
@pytest.mark.parametrize("window", [None, (2, 0)])
def test_cached_is_the_full_pass(position, chunks, window):
    layer = made(
        *(4, 6),
        causal=True,
        window=window,
        num_key_value_heads=2,
        value_head_dim=6,
        position=CACHED_POSITIONS[position](),
        cache_layout=WholeCache(),
    )
    x = normal(2, 7, 12)
    expected, expected_weights = layer(x, return_weights=True)
    output, weights = decoded(layer, x, 9, chunks)
    np.testing.assert_allclose(output, array(expected), **TOLERANCE)
    weights = np.concatenate(weights, axis=2)
    np.testing.assert_allclose(weights[..., :7], array(expected_weights), **TOLERANCE)
    np.testing.assert_allclose(weights.sum(-1), 1, atol=1e-5)


@pytest.mark.parametrize("position", CACHED_POSITIONS)
@pytest.mark.parametrize("chunks", [[1] * 7, [2, 2, 3], [5, 1, 1], [7]], ids=str)
def test_rolling_cache_is_the_full_pass(position, chunks):
    # a window of three positions: the first chunks of five and seven are longer
    layer = made(4, 6, causal=True, window=(2, 0), num_key_value_heads=2, position=CACHED_POSITIONS[position]())
    x = normal(2, 7, 12)
    assert layer.cache_layout.window == 3 and layer.make_cache(2, 9)["key"].shape[2] == 3
    output, weights = decoded(layer, x, 7, chunks)
    np.testing.assert_allclose(output, array(layer(x)), **TOLERANCE)
    for weight in weights:
        np.testing.assert_allclose(weight.sum(-1), 1, atol=1e-5)


@pytest.mark.parametrize("position", CACHED_POSITIONS)
@pytest.mark.parametrize(("capacity", "window"), [(9, None), (9, (2, 0))])
@pytest.mark.parametrize("chunks", [[4, 1, 1, 1], [1] * 7], ids=str)
def test_cached_rows_padded_on_the_left(position, capacity, window, chunks):
    layer = made(4, 6, causal=True, window=window, position=CACHED_POSITIONS[position]())
    x, starts = normal(3, 7, 12), np.array([0, 2, 3])
    positions = np.arange(7) - starts[:, None]
    garbage = np.where((positions < 0)[..., None], np.float32(50), x)
    output, _ = decoded(layer, garbage, capacity, chunks, positions)
    for row, start in enumerate(starts):
        alone = array(layer(x[row : row + 1, start:]))[0]
        np.testing.assert_allclose(output[row, start:], alone, **TOLERANCE)


@pytest.mark.parametrize("position", CACHED_POSITIONS)
@pytest.mark.parametrize(("capacity", "window"), [(9, None), (9, (2, 0))])
def test_cached_rows_that_start_later(position, capacity, window):
    # what is not written yet must not pass for an entry at a position below the first
    layer = made(4, 6, causal=True, window=window, position=CACHED_POSITIONS[position]())
    x, positions = normal(2, 7, 12), np.arange(7) + np.array([[5], [0]])
    output, _ = decoded(layer, x, capacity, [1, 4, 1, 1], positions)
    np.testing.assert_allclose(output, array(layer(x, positions=positions)), **TOLERANCE)


@pytest.mark.parametrize("sequence_length", [7, np.array([7, 7])], ids=["scalar", "per_row"])
def test_cached_with_a_scaling_that_depends_on_the_length(sequence_length):
    scaling = {"kind": "dynamic_ntk", "factor": 4.0, "original_max_position_embeddings": 4}
    layer, x = made(4, 6, causal=True, position=RotaryEmbedding(6, scaling=scaling)), normal(2, 7, 12)
    expected = array(layer(x))
    output, _ = decoded(layer, x, 9, [3, 1, 1, 2], sequence_length=sequence_length)
    np.testing.assert_allclose(output, expected, **TOLERANCE)
    assert np.abs(array(layer(x, sequence_length=12)) - expected).max() > 1e-3
    with pytest.raises(ValueError, match="sequence_length must be given with cache and position=<RotaryEmbedding"):
        decoded(layer, x, 9, [7])


def test_packed_with_a_scaling_that_depends_on_the_length():
    scaling = {"kind": "dynamic_ntk", "factor": 4.0, "original_max_position_embeddings": 4}
    layer, x = made(4, 6, causal=True, position=RotaryEmbedding(6, scaling=scaling)), normal(1, 12, 12)
    lengths = np.array([[5] * 5 + [7] * 7])
    packed = {"segment_ids": lengths, "positions": np.concatenate([np.arange(5), np.arange(7)])[None]}
    expected = np.concatenate([array(layer(x[:, :5])), array(layer(x[:, 5:]))], axis=1)
    np.testing.assert_allclose(array(layer(x, sequence_length=lengths, **packed)), expected, **TOLERANCE)
    with pytest.raises(
        ValueError, match="sequence_length must be given with segment_ids and position=<RotaryEmbedding"
    ):
        layer(x, **packed)


def test_cached_with_a_scaling_for_one_length():
    scaling = {"kind": "dynamic_ntk", "factor": 4.0, "original_max_position_embeddings": 4}
    position = RotaryEmbedding(6, scaling=scaling, sequence_length=16)
    layer, x = made(4, 6, causal=True, position=position), normal(2, 7, 12)
    np.testing.assert_allclose(decoded(layer, x, 9, [3, 1, 3])[0], array(layer(x)), **TOLERANCE)


def test_weights_of_a_rolling_cache_stand_by_slot():
    layer, x = made(2, 4, causal=True, window=(2, 0)), normal(1, 6, 12)
    _, full = layer(x, return_weights=True)
    _, weights = decoded(layer, x, 3, [1] * 6)
    for step in range(2, 6):
        entries = array(layer.cache_layout.entries(layer.make_cache(1, 6), step + 1))
        np.testing.assert_allclose(weights[step][0, :, 0], array(full)[0, :, step][:, entries], **TOLERANCE)


@pytest.mark.sampled(8)
@pytest.mark.parametrize("position", CACHED_POSITIONS)
@pytest.mark.parametrize("window", [None, (2, 0)])
@pytest.mark.parametrize("step", [1, 2])
def test_rows_that_come_and_go(position, window, step):
    """One index per row: a row begins a text while the other goes on with its own, then they swap."""
    layer = made(4, 6, causal=True, window=window, num_key_value_heads=2, position=CACHED_POSITIONS[position]())
    texts = [normal(1, 8, 12, seed=seed) for seed in range(3)]
    expected = [array(layer(text))[0] for text in texts]
    cache, empty = layer.make_cache(2, 9), layer.make_cache(2, 9)
    # text 0 in row 0 and, four positions later, text 1 in row 1; then text 2 in row 0
    rows, index = [0, None], np.array([0, 0], "int32")
    for turn in range(0, 16, step):
        if turn == 4:
            rows[1], index[1] = 1, 0
        if turn == 8:
            rows[0], index[0] = 2, 0
            cache = {name: np.concatenate([empty[name][:1], cache[name][1:]]) for name in cache}
        x = np.zeros((2, step, 12), "float32")
        for row, text in enumerate(rows):
            if text is not None:
                x[row] = texts[text][0, index[row] : index[row] + step]
        output, cache = layer(x, cache=cache, cache_index=np.array(index))
        for row, text in enumerate(rows):
            if text is not None:
                part = slice(index[row], index[row] + step)
                np.testing.assert_allclose(array(output)[row], expected[text][part], **TOLERANCE)
                index[row] += step
                if index[row] == 8:
                    rows[row], index[row] = None, 0
    assert rows == [None, None]


@pytest.mark.parametrize("position", CACHED_POSITIONS)
@pytest.mark.parametrize("layout", [WholeCache(), RollingCache(3), RollingCache(6)])
def test_rows_of_unequal_chunks_padded_on_the_right(position, layout):
    """A prompt begins in one row while another row decodes, goes on with a few tokens, or waits."""
    layer = made(4, 6, causal=True, window=(2, 0), position=CACHED_POSITIONS[position](), cache_layout=layout)
    x = normal(2, 8, 12)
    expected = array(layer(x))
    cache, index = layer.make_cache(2, 8), np.array([0, 0], "int32")
    for counts in ([4, 0], [1, 3], [0, 1], [2, 4], [1, 0]):
        length = max(counts)
        inputs, positions = np.full((2, length, 12), 50, "float32"), np.full((2, length), -1)
        for row, count in enumerate(counts):
            inputs[row, :count] = x[row, index[row] : index[row] + count]
            positions[row, :count] = np.arange(count) + index[row]
        output, cache = layer(inputs, positions=positions, cache=cache, cache_index=np.array(index))
        for row, count in enumerate(counts):
            part = slice(index[row], index[row] + count)
            np.testing.assert_allclose(array(output)[row, :count], expected[row, part], **TOLERANCE)
            index[row] += count
    assert index.tolist() == [8, 8]


@pytest.mark.parametrize("policy", ["mixed_bfloat16", "float16"])
def test_a_cache_keeps_its_type_in_a_loop(policy):
    layer = made(4, 6, causal=True, dtype=policy)
    cache = layer.make_cache(2, 4)
    dtype = policy.removeprefix("mixed_")
    for index in range(2):
        assert all(dtype in str(tensor.dtype) for tensor in cache.values())
        _, cache = layer(normal(2, 1, 12), cache=cache, cache_index=index)


def test_a_preferred_path_does_not_keep_from_decoding():
    layer, x = made(4, 6, causal=True, window=(2, 0), path="banded"), normal(2, 7, 12)
    np.testing.assert_allclose(decoded(layer, x, 7, [3, 1, 3])[0], array(layer(x)), **TOLERANCE)


def test_window_of_a_layout_of_its_own():
    layer, x = made(4, 6, causal=True, cache_layout=RollingCache(9)), normal(2, 7, 12)
    np.testing.assert_allclose(decoded(layer, x, 9, [3, 1, 3])[0], array(layer(x)), **TOLERANCE)


def test_cached_block_local_and_padding_mask():
    layer, x = made(4, 6, causal=True, block_size=3), normal(2, 7, 12)
    np.testing.assert_allclose(decoded(layer, x, 8, [2, 3, 1, 1])[0], array(layer(x)), **TOLERANCE)
    mask = np.array([[True] * 8, [False, True, False, True, True, True, True, True]])
    expected = array(layer(x, padding_mask=mask[:, :7]))
    np.testing.assert_allclose(decoded(layer, x, 8, [2, 3, 1, 1], padding_mask=mask)[0], expected, **TOLERANCE)


def test_cached_decoding_of_unknown_batch_and_length():
    tf = require_tensorflow()
    layer, x = made(4, 6, causal=True, window=(2, 0), position=RotaryEmbedding(6)), normal(2, 7, 12)
    spec = {name: tf.TensorSpec((None, 4, 3, 6)) for name in ("key", "value")}

    @tf.function(input_signature=[tf.TensorSpec((None, None, 12)), spec, tf.TensorSpec((), tf.int32)])
    def step(inputs, cache, index):
        return layer(inputs, cache=cache, cache_index=index)

    cache, outputs, index = layer.make_cache(2, 7), [], 0
    for count in (5, 1, 1):
        output, cache = step(x[:, index : index + count], cache, index)
        outputs.append(output)
        index += count
    np.testing.assert_allclose(np.concatenate(outputs, axis=1), array(layer(x)), **TOLERANCE)


@pytest.mark.parametrize("window", [None, (3, 2)])
@pytest.mark.parametrize("by_row", [False, True], ids=["one index", "an index per row"])
def test_a_prefix_that_is_filled_in_parts(window, by_row):
    """A query sees the keys of the prefix that are there, whatever empty slots hold."""
    prefix, x, chunks = np.array([5, 2]), normal(2, 8, 12), [2, 2, 1, 3]
    layer = made(4, 6, causal=True, window=window)
    cache, index = layer.make_cache(2, 11), 0
    cache = {name: slots + 3.0 for name, slots in cache.items()}  # what a text before left
    for count in chunks:
        part = x[:, index : index + count]
        given = {"cache_index": np.full(2, index, "int32") if by_row else index}
        output, cache = layer(part, cache=cache, prefix_length=prefix, **given)
        distance = order(index + count)[None]
        visible = (distance >= 0) | (np.arange(index + count) < prefix[:, None, None])
        visible = (visible & (distance <= window[0]) & (-distance <= window[1]) if window else visible)[:, None]
        expected, _ = formula(layer, x[:, : index + count], visible=visible)
        np.testing.assert_allclose(array(output), expected[:, index:], **TOLERANCE)
        index += count


def test_a_prefix_and_padding_behind_its_part():
    """Rows with fewer new tokens: their padding is not kept, so it is no part of the prefix."""
    layer, x, prefix = made(4, 6, causal=True), normal(2, 4, 12), np.array([4, 4])
    positions = np.array([[0, 1, 2, 3], [0, 1, 0, 0]])
    output, _ = layer(
        *(x,),
        cache=layer.make_cache(2, 6),
        cache_index=np.zeros(2, "int32"),
        positions=positions,
        prefix_length=prefix,
    )
    for row, count in enumerate((4, 2)):
        expected, _ = formula(layer, x[row : row + 1, :count])
        np.testing.assert_allclose(array(output)[row : row + 1, :count], expected, **TOLERANCE)


@pytest.mark.parametrize("dtype", ["float32", "bfloat16", "float16"])
def test_xpos_far_out(dtype):
    """Sun et al. 2023, equation 10, in float64: only the distance counts, with and without a cache."""
    policy = dtype if dtype == "float32" else f"mixed_{dtype}"
    layer = made(4, 6, causal=True, position=XPos(6, scale_base=32.0), dtype=policy)
    x, start = normal(1, 9, 12), 100_000
    rate = np.log((np.arange(3) / 3 + 0.4) / 1.4) / 32.0
    frequencies = 10000.0 ** -(np.arange(3) / 3)
    expected = xpos_formula(layer, x.astype("float64"), rate, frequencies)
    tolerance = {"float32": 2e-3}.get(dtype, 0.06)  # angles of 100,000 are rounded to 2**-7 in float32
    for shift in (0, start):
        output = layer(x, positions=np.arange(9) + shift)
        np.testing.assert_allclose(array(keras.ops.cast(output, "float32")), expected, atol=tolerance, rtol=tolerance)
        cache, index, parts = layer.make_cache(1, 200), 0, []
        for count in (4, 1, 1, 3):
            part = slice(index, index + count)
            output, cache = layer(x[:, part], cache=cache, cache_index=index, positions=np.arange(9)[part] + shift)
            parts.append(array(keras.ops.cast(output, "float32")))
            index += count
        np.testing.assert_allclose(np.concatenate(parts, 1), expected, atol=tolerance, rtol=tolerance)


def xpos_formula(layer, x, rate, frequencies):
    """Each pair turns by the distance and is scaled by a power of it, for keys up to the query."""

    def project(dense):
        return (x[0] @ array(dense.kernel) + array(dense.bias)).reshape(len(x[0]), 4, -1)

    query, key, value = project(layer.query_projection), project(layer.key_projection), project(layer.value_projection)
    contexts = np.zeros(query.shape)
    for head, i in np.ndindex(4, len(query)):
        scores = []
        for j in range(i + 1):
            turn = np.exp((i - j) * (rate + 1j * frequencies))
            q, k = query[i, head, :3] + 1j * query[i, head, 3:], key[j, head, :3] + 1j * key[j, head, 3:]
            scores.append((q * turn * k.conj()).real.sum() / np.sqrt(6))
        weights = np.exp(np.array(scores) - max(scores))
        contexts[i, head] = weights @ value[: i + 1, head] / weights.sum()
    output = layer.output_projection
    return (contexts.reshape(len(query), -1) @ array(output.kernel) + array(output.bias))[None]
