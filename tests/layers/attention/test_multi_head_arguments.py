"""Multi-head attention in models and files, and what it says of wrong arguments."""

import keras
import numpy as np
import pytest
from numpy_attention import TOLERANCE, array, formula, made, normal, relative_bias

from layers import (
    ALiBi,
    MultiHeadAttention,
    RotaryEmbedding,
    ShawRelativePositions,
    SinusoidalPositionEncoding,
)
from layers.attention import make_cache


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


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"num_heads": 0}, "num_heads must be an integer of at least 1, got 0"),
        ({"head_dim": 2.5}, "head_dim must be .* got 2.5"),
        ({"num_key_value_heads": 3}, "num_key_value_heads must divide num_heads=4, got 3"),
        ({"value_head_dim": -1}, "value_head_dim must be .* got -1"),
        ({"output_dim": 0}, "output_dim must be .* got 0"),
        ({"use_bias": ("query", "gate")}, r"use_bias names \['gate'\].*'query', 'key', 'value', 'output'"),
        (
            {"position": SinusoidalPositionEncoding(8)},
            "position must act on queries.*got <Sinusoidal",
        ),
        ({"position": RotaryEmbedding(4)}, "position=.* must have head_dim=6, got 4"),
        ({"position": ALiBi(1)}, "position=.* must have num_heads=4, got 1"),
        ({"position": ShawRelativePositions(6, 2, value_dim=4)}, "position=.* must have value_dim=6, got 4"),
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


@pytest.mark.parametrize("initializer", ["glorot_uniform", keras.initializers.GlorotUniform(seed=3)])
def test_kernels_of_one_shape_start_different(initializer):
    layer = MultiHeadAttention(2, 6, output_gate=True, kernel_initializer=initializer)
    layer.build((None, None, 12))
    kernels = [array(weight).ravel() for weight in layer.weights if weight.path.endswith("kernel")]
    assert len(kernels) == 5 and np.abs(np.corrcoef(kernels) - np.eye(5)).max() < 0.5  # 144 random numbers each
