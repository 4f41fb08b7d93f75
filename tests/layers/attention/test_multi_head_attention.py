"""Multi-head attention against a NumPy implementation of its formula and against the layers of Keras."""

import keras
import numpy as np
import pytest
from keras import ops

from layers import (
    ALiBi,
    MultiHeadAttention,
    RelativePositionBias,
    RotaryEmbedding,
    ShawRelativePositions,
    SinusoidalPositionEncoding,
)
from layers.attention import make_cache, rolling_positions

# float32 sums of a few dozen terms of size one
TOLERANCE = {"atol": 2e-5, "rtol": 2e-5}


def made(*arguments, inputs=12, memory=None, **options):
    """A built layer whose weights, biases and norms included, are random."""
    layer = MultiHeadAttention(*arguments, **options)
    layer.build((None, None, inputs), None if memory is None else (None, None, memory))
    generator = np.random.default_rng(3)
    for weight in layer.weights:
        weight.assign(generator.normal(0, 0.5, weight.shape))
    return layer


def normal(*shape, seed=0):
    return np.random.default_rng(seed).normal(size=shape).astype("float32")


def array(x):
    return ops.convert_to_numpy(ops.cast(x, "float32")) if "bfloat16" in str(x.dtype) else ops.convert_to_numpy(x)


def formula(layer, inputs, memory=None, visible=True, *, bias=None, rotate=None, norm=None, scale=None, cap=None):
    """Output and weights, one row, head and query at a time, in float64.

    Args:
        visible: broadcasts to `(batch, heads, queries, keys)`.
        bias: `(heads, queries, keys)`.
        rotate: function of `(length, head_dim)`.
        norm: function of `(length, head_dim)` and the gain.
    """
    memory = inputs if memory is None else memory
    heads, groups = layer.num_heads, layer.num_heads // layer.num_key_value_heads
    scale = 1 / np.sqrt(layer.head_dim) if scale is None else scale

    def project(dense, x):
        result = x.astype("float64") @ array(dense.kernel).astype("float64")
        return result if dense.bias is None else result + array(dense.bias)

    def head(x, index, width):
        return x[:, index * width : (index + 1) * width]

    visible = np.broadcast_to(visible, (len(inputs), heads, inputs.shape[1], memory.shape[1]))
    outputs, all_weights = [], np.zeros(visible.shape)
    for row in range(len(inputs)):
        query = project(layer.query_projection, inputs[row])
        key, value = project(layer.key_projection, memory[row]), project(layer.value_projection, memory[row])
        contexts = []
        for h in range(heads):
            q, k = head(query, h, layer.head_dim), head(key, h // groups, layer.head_dim)
            v = head(value, h // groups, layer.value_head_dim)
            if norm is not None:
                q, k = norm(q, array(layer.query_norm.weights[0])), norm(k, array(layer.key_norm.weights[0]))
            if rotate is not None:
                q, k = rotate(q), rotate(k)
            scores = q @ k.T * scale
            if cap is not None:
                scores = cap * np.tanh(scores / cap)
            if bias is not None:
                scores = scores + bias[h]
            context = np.zeros((len(q), layer.value_head_dim))
            for i in range(len(q)):
                seen = np.flatnonzero(visible[row, h, i])
                exponentials = np.exp(scores[i, seen])
                total = exponentials.sum() + (np.exp(array(layer.sinks)[h]) if layer.sinks is not None else 0)
                if len(seen):
                    all_weights[row, h, i, seen] = exponentials / total
                context[i] = all_weights[row, h, i] @ v
            contexts.append(context)
        joined = np.concatenate(contexts, axis=-1)
        if layer.gate_projection is not None:
            joined = joined / (1 + np.exp(-project(layer.gate_projection, inputs[row])))
        outputs.append(project(layer.output_projection, joined))
    return np.stack(outputs), all_weights


def rotation(head_dim):
    """Rotates by position in the half-split layout (Su et al. 2021), base 10000."""

    def rotate(x):
        half = head_dim // 2
        angles = np.arange(len(x))[:, None] * 10000.0 ** (-np.arange(half) / half)
        a, b = x[:, :half], x[:, half:]
        return np.concatenate([a * np.cos(angles) - b * np.sin(angles), b * np.cos(angles) + a * np.sin(angles)], -1)

    return rotate


def root_mean_square(x, gain):
    return x / np.sqrt((x**2).mean(-1, keepdims=True) + 1e-6) * gain


def order(queries, keys=None):
    """Query index minus key index, `(queries, keys)`."""
    return np.arange(queries)[:, None] - np.arange(queries if keys is None else keys)[None]


VARIANTS = {
    "plain": ({}, {}),
    "grouped": ({"num_key_value_heads": 2}, {}),
    "multi_query": ({"num_key_value_heads": 1}, {}),
    "value_width": ({"value_head_dim": 3, "num_key_value_heads": 2}, {}),
    "output_width": ({"output_dim": 5}, {}),
    "no_bias": ({"use_bias": False}, {}),
    "some_biases": ({"use_bias": ("value", "query")}, {}),
    "query_key_norm": ({"query_key_norm": "rms"}, {"norm": root_mean_square}),
    "scale": ({"scale": 0.3}, {"scale": 0.3}),
    "soft_cap": ({"logit_soft_cap": 1.5}, {"cap": 1.5}),
    "sinks": ({"sinks": True}, {}),
    "output_gate": ({"output_gate": True, "value_head_dim": 2}, {}),
    "rotary": ({"position": RotaryEmbedding(6)}, {"rotate": rotation(6)}),
    "everything": (
        {
            "num_key_value_heads": 2,
            "value_head_dim": 3,
            "output_dim": 7,
            "use_bias": ("key", "output"),
            "query_key_norm": "rms",
            "scale": 0.7,
            "logit_soft_cap": 2.0,
            "sinks": True,
            "output_gate": True,
            "position": RotaryEmbedding(6),
            "causal": True,
        },
        {"norm": root_mean_square, "scale": 0.7, "cap": 2.0, "rotate": rotation(6), "visible": order(5) >= 0},
    ),
}


@pytest.mark.parametrize("name", VARIANTS)
def test_self_attention(name):
    options, expected_options = VARIANTS[name]
    layer, x = made(4, 6, **options), normal(2, 5, 12)
    expected, expected_weights = formula(layer, x, **expected_options)
    output, weights = layer(x, return_weights=True)
    np.testing.assert_allclose(array(output), expected, **TOLERANCE)
    np.testing.assert_allclose(array(weights), expected_weights, **TOLERANCE)
    np.testing.assert_allclose(array(layer(x)), expected, **TOLERANCE)
    assert tuple(output.shape) == layer.compute_output_shape(x.shape)
    if layer.sinks is None:
        np.testing.assert_allclose(array(weights).sum(-1), 1, atol=1e-6)


def test_biases_per_projection():
    layer = made(4, 6, use_bias=("key", "output"), output_gate=True)
    has_bias = {name: getattr(layer, f"{name}_projection").bias is not None for name in ("query", "key", "value")}
    assert has_bias == {"query": False, "key": True, "value": False}
    assert layer.output_projection.bias is not None and layer.gate_projection.bias is None


@pytest.mark.parametrize("key_value_heads", [4, 2, 1])
def test_cross_attention(key_value_heads):
    layer = made(4, 6, num_key_value_heads=key_value_heads, memory=9)
    x, memory = normal(2, 5, 12), normal(2, 7, 9, seed=1)
    mask = np.arange(7) < np.array([[4], [7]])
    expected, expected_weights = formula(layer, x, memory, mask[:, None, None])
    output, weights = layer(x, memory, padding_mask=mask, return_weights=True)
    np.testing.assert_allclose(array(output), expected, **TOLERANCE)
    np.testing.assert_allclose(array(weights), expected_weights, **TOLERANCE)
    projected = layer.project_memory(ops.convert_to_tensor(memory))
    np.testing.assert_allclose(array(layer(x, projected_memory=projected, padding_mask=mask)), expected, **TOLERANCE)


PREFIX = np.array([3, 0])
PADDING = np.array([[True] * 6 + [False] * 2, [False] * 8])  # nothing is real in the second row
ARBITRARY = np.random.default_rng(4).random((2, 4, 8, 8)) < 0.5
BEHIND = order(8)
BLOCKS = np.arange(8)[:, None] // 3 == np.arange(8) // 3
MASKS = {
    "causal": ({"causal": True}, {}, BEHIND >= 0),
    "window": ({"window": (2, 1)}, {}, (BEHIND <= 2) & (BEHIND >= -1)),
    "window_left": ({"window": (1, None)}, {}, BEHIND <= 1),
    "causal_window": ({"causal": True, "window": (2, 0)}, {}, (BEHIND <= 2) & (BEHIND >= 0)),
    "block_local": ({"block_size": 3}, {}, BLOCKS),
    "causal_block_local": ({"block_size": 3, "causal": True}, {}, BLOCKS & (BEHIND >= 0)),
    "prefix": (
        {"causal": True},
        {"prefix_length": PREFIX},
        ((BEHIND >= 0) | (np.arange(8) < PREFIX[:, None, None]))[:, None],
    ),
    "padding": ({}, {"padding_mask": PADDING}, PADDING[:, None, None]),
    "arbitrary": ({}, {"attention_mask": ARBITRARY[0, 0]}, ARBITRARY[0, 0]),
    "arbitrary_rows": ({}, {"attention_mask": ARBITRARY[:, 0]}, ARBITRARY[:, :1]),
    "arbitrary_heads": ({}, {"attention_mask": ARBITRARY}, ARBITRARY),
    "all_together": (
        {"causal": True, "window": (4, 0), "num_key_value_heads": 2},
        {"padding_mask": PADDING, "attention_mask": ARBITRARY},
        ARBITRARY & PADDING[:, None, None] & (BEHIND >= 0) & (BEHIND <= 4),
    ),
}


@pytest.mark.parametrize("name", MASKS)
def test_masks(name):
    options, call_options, visible = MASKS[name]
    layer, x = made(4, 6, **options), normal(2, 8, 12)
    expected, expected_weights = formula(layer, x, visible=visible)
    output, weights = layer(x, return_weights=True, **call_options)
    np.testing.assert_allclose(array(output), expected, **TOLERANCE)
    np.testing.assert_allclose(array(weights), expected_weights, **TOLERANCE)
    np.testing.assert_allclose(array(layer(x, **call_options)), expected, **TOLERANCE)


def test_query_with_nothing_to_see_gets_the_bias_of_the_output_only():
    layer = made(4, 6)
    output = layer(normal(1, 3, 12), padding_mask=np.zeros((1, 3), "bool"))
    np.testing.assert_array_equal(array(output), np.broadcast_to(array(layer.output_projection.bias), (1, 3, 12)))


def relative_bias(**options):
    position = RelativePositionBias(4, num_buckets=8, max_distance=6, **options)
    position.build(None)
    position.weights[0].assign(np.random.default_rng(8).normal(size=position.weights[0].shape))
    return position


def test_relative_bias_adds_to_the_scores():
    table = np.random.default_rng(8).normal(size=(2 * 11 - 1, 4))

    class ByDistance(keras.layers.Layer):
        acts_on = "scores"
        num_heads = 4

        def call(self, query_positions, key_positions):
            distance = ops.expand_dims(query_positions, 1) - ops.expand_dims(key_positions, 0) + 10
            return ops.expand_dims(ops.transpose(ops.take(table, distance, axis=0), (2, 0, 1)), 0)

    layer, x = made(4, 6, position=ByDistance(), causal=True), normal(2, 5, 12)
    bias = np.moveaxis(table[order(5) + 10], -1, 0)
    np.testing.assert_allclose(array(layer(x)), formula(layer, x, visible=order(5) >= 0, bias=bias)[0], **TOLERANCE)


def test_alibi():
    layer, x = made(4, 6, position=ALiBi(4)), normal(2, 5, 12)
    slopes = 2.0 ** (-2 * np.arange(1, 5))
    expected, _ = formula(layer, x, bias=-slopes[:, None, None] * abs(order(5)))
    np.testing.assert_allclose(array(layer(x)), expected, **TOLERANCE)


def shaw_formula(layer, x, keep=1.0):
    """Shaw et al. 2018, equations 3 and 4, for one head; `keep` multiplies the weights of values."""
    query, key, value = (
        x[0] @ array(getattr(layer, f"{name}_projection").kernel) for name in ("query", "key", "value")
    )
    number = np.clip(-order(len(query)), -2, 2) + 2
    key_vectors = array(layer.position.key_embeddings)[number]
    value_vectors = array(layer.position.value_embeddings)[number]
    scores = np.einsum("id,ijd->ij", query, key[None] + key_vectors) / np.sqrt(query.shape[-1])
    weights = np.exp(scores) / np.exp(scores).sum(-1, keepdims=True)
    return np.einsum("ij,ijd->id", weights * keep, value[None] + value_vectors) @ array(layer.output_projection.kernel)


def test_shaw():
    layer, x = made(1, 6, position=ShawRelativePositions(6, 2), use_bias=False), normal(1, 7, 12)
    np.testing.assert_allclose(array(layer(x))[0], shaw_formula(layer, x), **TOLERANCE)


def test_dropout_of_shaw_acts_on_the_vectors_of_the_values_too():
    layer, x = made(1, 6, position=ShawRelativePositions(6, 2), use_bias=False, dropout=0.5), normal(1, 7, 12)
    multiplier = []
    drop = layer.weight_dropout.call

    def spy(weights, training=None):
        dropped = drop(weights, training=training)
        multiplier.append(array(dropped)[0, 0] / array(weights)[0, 0])
        return dropped

    layer.weight_dropout.call = spy
    output = array(layer(x, training=True))[0]
    assert set(np.unique(multiplier[0].round(5))) == {0, 2}
    np.testing.assert_allclose(output, shaw_formula(layer, x, multiplier[0]), **TOLERANCE)


def test_same_as_keras_multi_head_attention():
    x, memory = normal(2, 6, 12), normal(2, 4, 10, seed=1)
    mask = np.random.default_rng(2).random((2, 6, 4)) < 0.7
    theirs = keras.layers.MultiHeadAttention(4, 6, value_dim=3, output_shape=8)
    theirs.build((None, None, 12), (None, None, 10))
    ours = made(4, 6, value_head_dim=3, output_dim=8, memory=10)
    for name in ("query", "key", "value"):
        dense, projection = getattr(theirs, f"_{name}_dense"), getattr(ours, f"{name}_projection")
        dense.kernel.assign(ops.reshape(projection.kernel, dense.kernel.shape))
        dense.bias.assign(ops.reshape(projection.bias, dense.bias.shape))
    theirs._output_dense.kernel.assign(ops.reshape(ours.output_projection.kernel, (4, 3, 8)))
    theirs._output_dense.bias.assign(ours.output_projection.bias)
    expected, expected_weights = theirs(x, memory, attention_mask=mask, return_attention_scores=True)
    output, weights = ours(x, memory, attention_mask=mask, return_weights=True)
    np.testing.assert_allclose(array(output), array(expected), **TOLERANCE)
    np.testing.assert_allclose(array(weights), array(expected_weights), **TOLERANCE)


@pytest.mark.parametrize("key_value_heads", [2, 4])
def test_same_as_keras_grouped_query_attention(key_value_heads):
    x = normal(2, 6, 12)
    theirs = keras.layers.GroupQueryAttention(6, 4, key_value_heads)
    theirs.build((None, None, 12), (None, None, 12))
    ours = made(4, 6, num_key_value_heads=key_value_heads, causal=True)
    for name in ("query", "key", "value"):
        dense, projection = getattr(theirs, f"_{name}_dense"), getattr(ours, f"{name}_projection")
        dense.kernel.assign(ops.reshape(projection.kernel, dense.kernel.shape))
        dense.bias.assign(ops.reshape(projection.bias, dense.bias.shape))
    theirs._output_dense.kernel.assign(ops.reshape(ours.output_projection.kernel, theirs._output_dense.kernel.shape))
    theirs._output_dense.bias.assign(ours.output_projection.bias)
    np.testing.assert_allclose(array(ours(x)), array(theirs(x, x, use_causal_mask=True)), **TOLERANCE)


@pytest.mark.parametrize("position", ["none", "rotary", "relative_bias"])
def test_packed_sequences_are_separate(position):
    positions = {
        "none": lambda: None,
        "rotary": lambda: RotaryEmbedding(6),
        "relative_bias": lambda: relative_bias(bidirectional=False),
    }
    layer, x = made(4, 6, causal=True, position=positions[position]()), normal(2, 9, 12)
    segments = np.array([[1, 1, 1, 1, 2, 2, 2, 2, 2], [1, 1, 2, 2, 2, 3, 3, 3, 3]])
    restarted = np.array([[0, 1, 2, 3, 0, 1, 2, 3, 4], [0, 1, 0, 1, 2, 0, 1, 2, 3]])
    # these positions are relative, so it is all the same whether they restart
    packed = [array(layer(x, segment_ids=segments)), array(layer(x, segment_ids=segments, positions=restarted))]
    for row, number in [(0, 1), (0, 2), (1, 1), (1, 2), (1, 3)]:
        part = segments[row] == number
        alone = array(layer(x[row : row + 1, part]))[0]
        for output in packed:
            np.testing.assert_allclose(output[row, part], alone, **TOLERANCE)


CACHED_POSITIONS = {
    "none": lambda: None,
    "rotary": lambda: RotaryEmbedding(6),
    "relative_bias": lambda: relative_bias(bidirectional=False),
    "alibi": lambda: ALiBi(4),
    "shaw": lambda: ShawRelativePositions(6, 2),
}


def decoded(layer, x, capacity, chunks, positions=None, **options):
    """Outputs and weights of the chunks, each fed after the ones before it."""
    cache = make_cache(len(x), layer.num_key_value_heads, capacity, layer.head_dim, layer.value_head_dim)
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
        4, 6, causal=True, window=window, num_key_value_heads=2, value_head_dim=6, position=CACHED_POSITIONS[position]()
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
    assert layer.is_rolling(3) and not layer.is_rolling(9)
    output, weights = decoded(layer, x, 3, chunks)
    np.testing.assert_allclose(output, array(layer(x)), **TOLERANCE)
    for weight in weights:
        np.testing.assert_allclose(weight.sum(-1), 1, atol=1e-5)


@pytest.mark.parametrize("position", CACHED_POSITIONS)
@pytest.mark.parametrize(("capacity", "window"), [(9, None), (3, (2, 0))])
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
@pytest.mark.parametrize(("capacity", "window"), [(9, None), (3, (2, 0))])
def test_cached_rows_that_start_later(position, capacity, window):
    # what is not written yet must not pass for an entry at a position below the first
    layer = made(4, 6, causal=True, window=window, position=CACHED_POSITIONS[position]())
    x, positions = normal(2, 7, 12), np.arange(7) + np.array([[5], [0]])
    output, _ = decoded(layer, x, capacity, [1, 4, 1, 1], positions)
    np.testing.assert_allclose(output, array(layer(x, positions=positions)), **TOLERANCE)


def test_weights_of_a_rolling_cache_stand_by_slot():
    layer, x = made(2, 4, causal=True, window=(2, 0)), normal(1, 6, 12)
    _, full = layer(x, return_weights=True)
    _, weights = decoded(layer, x, 3, [1] * 6)
    for step in range(2, 6):
        entries = array(rolling_positions(3, step + 1))
        np.testing.assert_allclose(weights[step][0, :, 0], array(full)[0, :, step][:, entries], **TOLERANCE)


def test_cached_block_local_and_padding_mask():
    layer, x = made(4, 6, causal=True, block_size=3), normal(2, 7, 12)
    np.testing.assert_allclose(decoded(layer, x, 8, [2, 3, 1, 1])[0], array(layer(x)), **TOLERANCE)
    mask = np.array([[True] * 8, [False, True, False, True, True, True, True, True]])
    expected = array(layer(x, padding_mask=mask[:, :7]))
    np.testing.assert_allclose(decoded(layer, x, 8, [2, 3, 1, 1], padding_mask=mask)[0], expected, **TOLERANCE)


def test_cached_decoding_of_unknown_batch_and_length():
    tf = pytest.importorskip("tensorflow")
    layer, x = made(4, 6, causal=True, window=(2, 0), position=RotaryEmbedding(6)), normal(2, 7, 12)
    spec = {name: tf.TensorSpec((None, 4, 3, 6)) for name in ("key", "value")}

    @tf.function(input_signature=[tf.TensorSpec((None, None, 12)), spec, tf.TensorSpec((), tf.int32)])
    def step(inputs, cache, index):
        return layer(inputs, cache=cache, cache_index=index)

    cache, outputs, index = make_cache(2, 4, 3, 6), [], 0
    for count in (5, 1, 1):
        output, cache = step(x[:, index : index + count], cache, index)
        outputs.append(output)
        index += count
    np.testing.assert_allclose(np.concatenate(outputs, axis=1), array(layer(x)), **TOLERANCE)


def test_dropout_only_at_training():
    layer, x = made(4, 6, dropout=0.5), normal(2, 5, 12)
    expected = formula(layer, x)[0]
    for training in (None, False):
        np.testing.assert_allclose(array(layer(x, training=training)), expected, **TOLERANCE)
    output, weights = layer(x, training=True, return_weights=True)
    assert np.abs(array(output) - expected).max() > 0.1
    np.testing.assert_allclose(array(weights).sum(-1), 1, atol=1e-5)  # the weights before dropout


@pytest.mark.parametrize(
    "options",
    [
        {},
        {"num_key_value_heads": 2, "position": RotaryEmbedding(6), "query_key_norm": "rms", "sinks": True},
        {"position": relative_bias(bidirectional=True), "output_gate": True, "window": (2, 1), "logit_soft_cap": 3.0},
        {"position": ShawRelativePositions(6, 2), "causal": True, "block_size": 3, "use_bias": ["key"]},
    ],
    ids=["plain", "rotary", "relative_bias", "shaw"],
)
def test_functional_model_keras_file_xla_and_half_precision(check_layer, options):
    x = normal(2, 5, 12)
    # half precision: products of three dozen terms of a size up to 10, each rounded to 8 bits
    check_layer(made(4, 6, name="attention", **options), x, half_precision_tolerance=0.1)


def test_functional_model_with_memory_mask_and_weights(tmp_path):
    inputs, memory = keras.Input((None, 12)), keras.Input((None, 9))
    mask = keras.Input((None,), dtype="bool")
    layer = made(4, 6, memory=9)
    output, weights = layer(inputs, memory, padding_mask=mask, return_weights=True)
    assert output.shape == (None, None, 12) and weights.shape == (None, 4, None, None)
    model = keras.Model([inputs, memory, mask], [output, weights])
    model.save(tmp_path / "model.keras")
    arrays = [normal(2, 5, 12), normal(2, 3, 9), np.array([[True, True, False], [True, True, True]])]
    expected = formula(layer, arrays[0], arrays[1], arrays[2][:, None, None])
    for output, value in zip(keras.models.load_model(tmp_path / "model.keras")(arrays), expected, strict=True):
        np.testing.assert_allclose(array(output), value, **TOLERANCE)


def test_gradients_reach_every_weight():
    tf = pytest.importorskip("tensorflow")
    layer = made(4, 6, output_gate=True, sinks=True, query_key_norm="rms", position=relative_bias(bidirectional=True))
    with tf.GradientTape() as tape:
        loss = ops.sum(ops.square(layer(normal(2, 5, 12))))
    for weight, gradient in zip(
        layer.trainable_variables, tape.gradient(loss, [w.value for w in layer.trainable_variables]), strict=True
    ):
        # the softmax does not notice what all keys have in common, save for the sinks: hence not the bias of keys
        assert gradient is not None and np.abs(tf.convert_to_tensor(gradient)).max() > 0, weight.path


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"num_heads": 0}, "num_heads must be an integer of at least 1, got 0"),
        ({"head_dim": 2.5}, "head_dim must be .* got 2.5"),
        ({"num_key_value_heads": 3}, "num_key_value_heads must divide num_heads=4, got 3"),
        ({"value_head_dim": -1}, "value_head_dim must be .* got -1"),
        ({"output_dim": 0}, "output_dim must be .* got 0"),
        ({"use_bias": ("query", "gate")}, r"use_bias names \['gate'\].*'query', 'key', 'value', 'output'"),
        ({"position": SinusoidalPositionEncoding(8)}, "position=.*not added inside attention"),
        ({"position": RotaryEmbedding(4)}, "position=.* must have head_dim=6, it has 4"),
        ({"position": ALiBi(1)}, "position=.* must have num_heads=4, it has 1"),
        ({"position": ShawRelativePositions(6, 2, value_dim=4)}, "position=.* must have value_dim=6, it has 4"),
        ({"window": (-1, 0)}, r"window.*>= 0.*\(-1, 0\)"),
        ({"block_size": 0}, "block_size.* at least 1.*0"),
        ({"logit_soft_cap": 0.0}, "logit_soft_cap must be positive or None, got 0.0"),
        ({"query_key_norm": "batch"}, "query_key_norm='batch'"),
        ({"query_key_norm": "median"}, "must be one of .*'rms'.* got 'median'"),
        ({"dropout": 1.0}, "dropout must be at least 0 and below 1, got 1.0"),
    ],
)
def test_wrong_arguments(options, message):
    with pytest.raises(ValueError, match=message):
        MultiHeadAttention(**{"num_heads": 4, "head_dim": 6, **options})


def integers(*shape):
    return np.zeros(shape, "int32")


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"padding_mask": np.ones((2, 6), "bool")}, r"padding_mask must have shape \(2, 5\), got \(2, 6\)"),
        ({"attention_mask": np.ones((5, 6), "bool")}, r"attention_mask must have shape \(5, 5\) or .* got \(5, 6\)"),
        ({"attention_mask": np.ones((2, 3, 5, 5), "bool")}, r"\(2, 4, 5, 5\), got \(2, 3, 5, 5\)"),
        ({"padding_mask": np.ones((2, 5))}, "must have rank 2 and type bool.*float"),
        ({"positions": np.arange(6)}, r"positions must have shape \(5,\) or \(2, 5\), got \(6,\)"),
        ({"positions": normal(5)}, "positions must be integers, got type float32"),
        ({"segment_ids": integers(2, 4)}, r"segment_ids must have shape \(2, 5\), got \(2, 4\)"),
        ({"prefix_length": integers(2, 1)}, r"prefix_length must have shape \(2,\), got \(2, 1\)"),
        ({"memory": normal(3, 5, 12)}, r"memory must have shape \(2, None, None\), got \(3, 5, 12\)"),
        ({"memory": normal(2, 5, 12), "segment_ids": integers(2, 5)}, "segment_ids belong to self-attention"),
        ({"memory": normal(2, 5, 12), "projected_memory": {}}, "memory and projected_memory exclude each other"),
        ({"cache_index": 0}, "cache and cache_index come together"),
    ],
)
def test_wrong_call_arguments(options, message):
    with pytest.raises(ValueError, match=message):
        made(4, 6, causal=True)(normal(2, 5, 12), **options)


@pytest.mark.parametrize(
    ("options", "call_options", "message"),
    [
        ({}, {"segment_ids": integers(2, 5)}, "segment_ids exclude a cache"),
        ({"causal": False}, {}, "cache needs causal=True"),
        ({}, {"padding_mask": np.ones((2, 5), "bool")}, r"padding_mask must have shape \(2, 8\), got \(2, 5\)"),
        ({}, {"cache_index": 4}, "5 new entries from index 4 on do not fit a cache with a capacity of 8"),
        ({"window": (7, 0)}, {"padding_mask": np.ones((2, 8), "bool")}, "padding_mask .* rolling cache"),
    ],
)
def test_wrong_call_arguments_with_a_cache(options, call_options, message):
    layer = made(4, 6, **{"causal": True, **options})
    with pytest.raises(ValueError, match=message):
        layer(normal(2, 5, 12), **{"cache": make_cache(2, 4, 8, 6), "cache_index": 0, **call_options})


def test_inputs_of_wrong_rank():
    with pytest.raises(ValueError, match=r"inputs must have shape \(batch, length, width\), got \(5, 12\)"):
        made(4, 6)(normal(5, 12))


def test_inputs_of_wrong_width():
    layer = made(4, 6, memory=9)
    with pytest.raises(ValueError, match="query.*expected axis -1 of input shape to have value 12.*11"):
        layer(normal(2, 5, 11), normal(2, 4, 9))
    with pytest.raises(ValueError, match="key.*expected axis -1 of input shape to have value 9.*8"):
        layer(normal(2, 5, 12), normal(2, 4, 8))
    with pytest.raises(ValueError, match="heads of `query` must be a multiple of the heads of `key`.*4 and 3"):
        layer(normal(2, 5, 12), projected_memory={"key": normal(2, 3, 4, 6), "value": normal(2, 3, 4, 6)})


def test_vectors_for_values_need_a_path_that_holds_the_weights():
    with pytest.raises(ValueError, match="path must be 'auto' or 'plain' with position=.*got 'blocked'"):
        MultiHeadAttention(2, 6, position=ShawRelativePositions(6, 2), path="blocked")


def test_unknown_path():
    with pytest.raises(ValueError, match="path.*'quantum'"):
        made(4, 6, path="quantum")(normal(2, 5, 12))
