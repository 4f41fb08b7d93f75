"""Multi-head attention against a NumPy implementation of its formula and against the layers of Keras."""

import keras
import numpy as np
import pytest
from keras import ops
from numpy_attention import TOLERANCE, array, formula, made, normal, order, relative_bias, root_mean_square, rotation
from tensorflow_backend import require_tensorflow

from layers import (
    ALiBi,
    PositionEncoding,
    RMSNorm,
    RotaryEmbedding,
    ShawRelativePositions,
)

VARIANTS = {
    "plain": ({}, {}),
    "grouped": ({"num_key_value_heads": 2}, {}),
    "multi_query": ({"num_key_value_heads": 1}, {}),
    "value_width": ({"value_head_dim": 3, "num_key_value_heads": 2}, {}),
    "output_width": ({"output_dim": 5}, {}),
    "no_bias": ({"use_bias": False}, {}),
    "some_biases": ({"use_bias": ("value", "query")}, {}),
    "query_key_norm": ({"query_norm": RMSNorm(), "key_norm": RMSNorm()}, {"norm": root_mean_square}),
    "query_key_norm_of_the_width": (
        {"query_norm": RMSNorm(), "key_norm": RMSNorm(), "norm_scope": "width", "num_key_value_heads": 2},
        {"norm": root_mean_square},
    ),
    "scale": ({"scale": 0.3}, {"scale": 0.3}),
    "soft_cap": ({"logit_soft_cap": 1.5}, {"cap": 1.5}),
    "projection_limit": ({"projection_limit": 0.4, "num_key_value_heads": 2}, {"limit": 0.4}),
    "sinks": ({"sinks": True}, {}),
    "output_gate": ({"output_gate": True, "value_head_dim": 2}, {}),
    "rotary": ({"position": RotaryEmbedding(6)}, {"rotate": rotation(6)}),
    "everything": (
        {
            "num_key_value_heads": 2,
            "value_head_dim": 3,
            "output_dim": 7,
            "use_bias": ("key", "output"),
            "query_norm": RMSNorm(),
            "key_norm": RMSNorm(),
            "scale": 0.7,
            "logit_soft_cap": 2.0,
            "projection_limit": 0.5,
            "sinks": True,
            "output_gate": True,
            "position": RotaryEmbedding(6),
            "causal": True,
        },
        {
            "norm": root_mean_square,
            "scale": 0.7,
            "cap": 2.0,
            "limit": 0.5,
            "rotate": rotation(6),
            "visible": order(5) >= 0,
        },
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


def test_relative_bias_adds_to_the_scores():
    table = np.random.default_rng(8).normal(size=(2 * 11 - 1, 4))

    class ByDistance(PositionEncoding):
        num_heads = 4

        def score_bias(self, query, key, query_positions, key_positions, scale, projections):
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


def test_packed_pairs_are_separate():
    layer, x, memory = made(4, 6, memory=9), normal(2, 6, 12), normal(2, 8, 9, seed=1)
    segments = np.array([[1, 1, 2, 2, 2, 0], [1, 1, 1, 1, 2, 3]])
    memory_segments = np.array([[1, 1, 1, 2, 2, 2, 2, 0], [2, 2, 1, 1, 1, 3, 3, 3]])
    options = {"segment_ids": segments, "memory_segment_ids": memory_segments}
    packed = [array(layer(x, memory, **options))]
    packed.append(array(layer(x, projected_memory=layer.project_memory(memory), **options)))
    for row, number in [(0, 1), (0, 2), (1, 1), (1, 2), (1, 3)]:
        part, memory_part = segments[row] == number, memory_segments[row] == number
        alone = array(layer(x[row : row + 1, part], memory[row : row + 1, memory_part]))[0]
        for output in packed:
            np.testing.assert_allclose(output[row, part], alone, **TOLERANCE)


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


def test_dropout_only_at_training():
    layer, x = made(4, 6, dropout=0.5), normal(2, 5, 12)
    expected = formula(layer, x)[0]
    for training in (None, False):
        np.testing.assert_allclose(array(layer(x, training=training)), expected, **TOLERANCE)
    output, weights = layer(x, training=True, return_weights=True)
    assert np.abs(array(output) - expected).max() > 0.1
    np.testing.assert_allclose(array(weights).sum(-1), 1, atol=1e-5)  # the weights before dropout


def test_gradients_reach_every_weight():
    tf = require_tensorflow()
    layer = made(
        4,
        6,
        output_gate=True,
        sinks=True,
        query_norm=RMSNorm(),
        key_norm=RMSNorm(),
        position=relative_bias(bidirectional=True),
    )
    with tf.GradientTape() as tape:
        loss = ops.sum(ops.square(layer(normal(2, 5, 12))))
    for weight, gradient in zip(
        layer.trainable_variables, tape.gradient(loss, [w.value for w in layer.trainable_variables]), strict=True
    ):
        # the softmax does not notice what all keys have in common, save for the sinks: hence not the bias of keys
        assert gradient is not None and np.abs(tf.convert_to_tensor(gradient)).max() > 0, weight.path
