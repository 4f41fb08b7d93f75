"""Multi-head attention in models and files, and what it says of wrong arguments."""

import keras
import numpy as np
import pytest
from keras import ops
from numpy_attention import TOLERANCE, array, formula, made, normal, relative_bias

from layers import (
    ALiBi,
    MaskedBatchNorm,
    MultiHeadAttention,
    RMSNorm,
    RotaryEmbedding,
    ShawRelativePositions,
    SinusoidalPositionEncoding,
)
from layers.attention import WholeCache


@pytest.mark.parametrize(
    "options",
    [
        {},
        {"num_key_value_heads": 2, "position": RotaryEmbedding(6), "query_norm": RMSNorm(), "sinks": True},
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
        ({"use_bias": ("query", "gate")}, r"use_bias must be .*'query', 'key', 'value', 'output'.* got \['gate'\]"),
        (
            {"position": SinusoidalPositionEncoding(8)},
            "position must act on queries.*got <Sinusoidal",
        ),
        ({"position": RotaryEmbedding(4)}, "position=.* must have head_dim=6, got 4"),
        ({"position": ALiBi(1)}, "position=.* must have num_heads=4, got 1"),
        ({"position": ShawRelativePositions(6, 2, value_dim=4)}, "position=.* must have value_dim=6, got 4"),
        ({"window": (-1, 0)}, r"window must be a pair.*at least 0.*\(-1, 0\)"),
        ({"block_size": 0}, "block_size.* at least 1.*0"),
        ({"logit_soft_cap": 0.0}, "logit_soft_cap must be positive or None, got 0.0"),
        ({"projection_limit": -1}, "projection_limit must be positive or None, got -1"),
        ({"query_norm": MaskedBatchNorm()}, "query_norm must be a norm of each position for itself, got <MaskedBatch"),
        ({"key_norm": "rms"}, "key_norm must be a Keras layer or None, got 'rms'"),
        ({"norm_scope": "row"}, "norm_scope must be one of .*'head', 'width'.* got 'row'"),
        ({"window": (1, 2, 3)}, r"window must be a pair \(left, right\).*one number for both sides, got \(1, 2, 3\)"),
        ({"window": "wide"}, "window must be a pair.* got 'wide'"),
        ({"path": "quantum"}, "path must be one of .*'banded'.* got 'quantum'"),
        ({"path": "banded"}, "path must not be 'banded' without a block_size or a window"),
        ({"path": "blocked", "weighting": ops.softmax}, "path must be 'auto' or one of .*'plain'.* got 'blocked'"),
        ({"weighting": ops.softmax, "sinks": True}, "sinks and logit_soft_cap must be left out with weighting"),
        ({"weighting": "entmax"}, "weighting must be an AttentionWeighting or a function.* got 'entmax'"),
        ({"position": keras.layers.Dense(3)}, "position must be a PositionEncoding or None, got <Dense"),
        ({"cache_layout": 5}, "cache_layout must be a CacheLayout or None, got 5"),
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
        ({"padding_mask": np.ones((2, 5))}, "padding_mask must be booleans or integers, .* got type float32"),
        ({"attention_mask": np.ones((5, 5))}, "attention_mask must be booleans or integers, .* got type float32"),
        ({"positions": np.arange(6)}, r"positions must have shape \(5,\) or \(2, 5\), got \(6,\)"),
        ({"positions": normal(5)}, "positions must be integers, got type float32"),
        ({"segment_ids": integers(2, 4)}, r"segment_ids must have shape \(2, 5\), got \(2, 4\)"),
        ({"prefix_length": integers(2, 1)}, r"prefix_length must have shape \(2,\), got \(2, 1\)"),
        ({"memory": normal(3, 5, 12)}, r"memory must have shape \(2, None, None\), got \(3, 5, 12\)"),
        (
            {"memory": normal(2, 5, 12), "segment_ids": integers(2, 5)},
            "memory_segment_ids must be given exactly when segment",
        ),
        (
            {"memory": normal(2, 5, 12), "projected_memory": {}},
            r"memory must be None with projected_memory, got shape \(2, 5, 12\)",
        ),
        ({"cache_index": 0}, "cache and cache_index must be given together, got cache=None and cache_index=0"),
        ({"memory_segment_ids": integers(2, 5)}, "memory_segment_ids must be given exactly when segment_ids"),
        ({"mask": np.ones((2, 4), "bool")}, r"The Keras mask must have shape \(2, 5\), got \(2, 4\)"),
    ],
)
def test_wrong_call_arguments(options, message):
    with pytest.raises(ValueError, match=message):
        made(4, 6, causal=True)(normal(2, 5, 12), **options)


@pytest.mark.parametrize(
    ("options", "call_options", "message"),
    [
        ({}, {"segment_ids": integers(2, 5)}, r"segment_ids must be None with a cache, .* got shape \(2, 5\)"),
        ({"causal": False}, {}, "causal must be True with a cache, got False"),
        ({}, {"padding_mask": np.ones((2, 5), "bool")}, r"padding_mask must have shape \(2, 8\), got \(2, 5\)"),
        ({}, {"cache_index": 4}, "room for 5 new entries in a cache with a capacity of 8, got 4"),
        ({"window": (7, 0)}, {"padding_mask": np.ones((2, 8), "bool")}, "padding_mask .* RollingCache"),
        ({}, {"mask": np.ones((2, 5), "bool")}, "inputs must have no Keras mask with a cache"),
        ({}, {"cache_index": np.zeros(3, "int32")}, r"cache_index must have shape \(\) or \(2,\), got \(3,\)"),
    ],
)
def test_wrong_call_arguments_with_a_cache(options, call_options, message):
    layer = made(4, 6, **{"causal": True, **options})
    with pytest.raises(ValueError, match=message):
        layer(normal(2, 5, 12), **{"cache": layer.make_cache(2, 8), "cache_index": 0, **call_options})


def test_inputs_of_wrong_rank():
    with pytest.raises(ValueError, match=r"inputs must have shape \(batch, length, width\), got \(5, 12\)"):
        made(4, 6)(normal(5, 12))


def test_inputs_of_wrong_width():
    layer = made(4, 6, memory=9)
    with pytest.raises(ValueError, match="query.*expected axis -1 of input shape to have value 12.*11"):
        layer(normal(2, 5, 11), normal(2, 4, 9))
    with pytest.raises(ValueError, match="key.*expected axis -1 of input shape to have value 9.*8"):
        layer(normal(2, 5, 12), normal(2, 4, 8))
    with pytest.raises(ValueError, match="heads of query must be a multiple of the heads of key.*4 and 3"):
        layer(normal(2, 5, 12), projected_memory={"key": normal(2, 3, 4, 6), "value": normal(2, 3, 4, 6)})


def test_vectors_for_values_need_a_path_that_holds_the_weights():
    with pytest.raises(ValueError, match="path must be 'auto' or 'plain' with position=.*got 'blocked'"):
        MultiHeadAttention(2, 6, position=ShawRelativePositions(6, 2), path="blocked")


def test_integer_masks():
    layer, x = made(4, 6), normal(2, 5, 12)
    padding, allowed = np.array([[1, 1, 1, 0, 0], [1, 1, 1, 1, 1]]), np.tril(np.ones((5, 5), "int32"))
    for options in ({"padding_mask": padding}, {"attention_mask": allowed}):
        as_booleans = {name: mask.astype("bool") for name, mask in options.items()}
        np.testing.assert_array_equal(array(layer(x, **options)), array(layer(x, **as_booleans)))


def test_a_window_of_one_number_is_the_same_on_both_sides():
    x = normal(2, 9, 12)
    for causal in (False, True):
        one, pair = made(4, 6, window=2, causal=causal), made(4, 6, window=(2, 2), causal=causal)
        assert one.window == (2, 2)
        np.testing.assert_array_equal(array(one(x)), array(pair(x)))


def test_projecting_a_memory_first():
    layer, x, memory = (
        MultiHeadAttention(4, 6, query_norm=RMSNorm(), key_norm=RMSNorm()),
        normal(2, 5, 12),
        normal(2, 7, 9),
    )
    projected = layer.project_memory(memory)
    output = layer(x, projected_memory=projected)
    assert len(layer.weights) == 10 and layer.key_projection.kernel.shape == (9, 24)
    assert all(weight.path.startswith(layer.name) for weight in layer.weights)
    np.testing.assert_allclose(array(output), array(layer(x, memory)), **TOLERANCE)


def test_bias_initializer():
    layer = made(2, 3, bias_initializer=keras.initializers.RandomNormal(stddev=1.0, seed=1))
    layer = MultiHeadAttention.from_config(layer.get_config())
    layer.build((None, None, 6))
    biases = [array(getattr(layer, f"{name}_projection").bias) for name in ("query", "key", "value", "output")]
    assert all(np.abs(bias).min() > 0 for bias in biases) and not np.array_equal(biases[0], biases[1])


def test_parts_survive_a_file(tmp_path):
    layer = MultiHeadAttention(
        *(4, 6),
        causal=True,
        position=RotaryEmbedding(6),
        query_norm=RMSNorm(epsilon=0.1),
        key_norm=RMSNorm(unit_offset=True),
        norm_scope="width",
        cache_layout=WholeCache(),
    )
    model = keras.Sequential([keras.Input((None, 12)), layer])
    model.save(tmp_path / "model.keras")
    reloaded = keras.models.load_model(tmp_path / "model.keras")
    x = normal(2, 5, 12)
    np.testing.assert_array_equal(array(reloaded(x)), array(model(x)))
    assert reloaded.layers[0].query_norm.epsilon == 0.1 and reloaded.layers[0].key_norm.unit_offset
    assert isinstance(reloaded.layers[0].cache_layout, WholeCache)


def test_names_of_keras():
    layer, x, memory = made(4, 6, causal=True), normal(2, 5, 12), normal(2, 3, 12, seed=1)
    result = array(layer(x))
    for arguments in (
        {"query": x, "value": x},
        {"query": x, "value": x, "key": x, "use_causal_mask": True},
        {"inputs": x, "use_causal_mask": True},
    ):
        np.testing.assert_array_equal(array(layer(**arguments)), result)
    np.testing.assert_array_equal(array(layer(x, value=x)), result)
    expected = layer(x, memory, return_weights=True)
    mask = np.ones((5, 3), "bool")
    for given in (
        layer(query=x, value=memory, key=memory, attention_mask=mask, return_attention_scores=True),
        layer(x, memory, key=memory, return_attention_scores=True),
    ):
        for part, value in zip(given, expected, strict=True):
            np.testing.assert_array_equal(array(part), array(value))
    inputs = keras.Input((5, 12))
    model = keras.Model(inputs, layer(query=inputs, value=inputs, use_causal_mask=True))
    np.testing.assert_allclose(array(model(x)), result, **TOLERANCE)


def test_the_layer_of_keras_gives_the_same_with_the_same_call():
    x, memory = normal(2, 5, 12), normal(2, 5, 12, seed=1)
    arguments = {"query": x, "value": memory, "key": memory, "use_causal_mask": True, "return_attention_scores": True}
    arguments["attention_mask"] = np.random.default_rng(2).random((2, 5, 5)) < 0.7
    arguments["attention_mask"][:, np.arange(5), 0] = True
    theirs = keras.layers.MultiHeadAttention(4, 6)
    expected = theirs(**arguments)
    layer = made(4, 6, causal=True)
    for own, weight in zip(layer.weights, theirs.weights, strict=True):
        own.assign(ops.reshape(weight, own.shape))
    for part, value in zip(layer(**arguments), expected, strict=True):
        np.testing.assert_allclose(array(part), array(value), **TOLERANCE)


@pytest.mark.parametrize(
    ("arguments", "error", "message"),
    [
        ({"use_causal_mask": True}, ValueError, "use_causal_mask must be False as causal .* got True: .* causal=True"),
        ({"value": normal(2, 3, 12), "key": normal(2, 3, 12)}, ValueError, r"key must be .* value, got .*\(2, 3, 12\)"),
        ({"key": normal(2, 3, 12)}, ValueError, "key must be the same tensor as value"),
        ({"value_mask": np.ones((2, 5))}, TypeError, "takes no value_mask: use padding_mask"),
        ({"query_mask": np.ones((2, 5))}, TypeError, "takes no query_mask: use padding_mask"),
        ({"cache_update_index": 0}, TypeError, r"takes no cache_update_index: use cache_index.*make_cache\(\)"),
    ],
)
def test_names_of_keras_that_mean_something_else(arguments, error, message):
    with pytest.raises(error, match=message):
        made(4, 6)(normal(2, 5, 12), **arguments)


def test_one_argument_by_both_names():
    x, memory = normal(2, 5, 12), normal(2, 3, 12)
    layer = made(4, 6)
    for positional, arguments, names in (
        ((x, memory), {"value": x}, "value or memory"),
        ((x,), {"memory": memory, "value": x}, "value or memory"),
        ((x,), {"query": x}, "query or inputs"),
        ((), {"query": x, "inputs": normal(2, 5, 12, seed=1)}, "query or inputs"),
        ((x,), {"return_attention_scores": True, "return_weights": False}, "return_attention_scores or return_weights"),
    ):
        with pytest.raises(TypeError, match=f"takes {names}, which are the same, got both"):
            layer(*positional, **arguments)
    result = array(layer(x, memory))
    np.testing.assert_array_equal(array(layer(inputs=x, value=memory, memory=None)), result)


def test_three_tensors_and_options_of_keras():
    x = normal(2, 5, 12)
    with pytest.raises(TypeError, match="takes inputs and memory without a name, got 3 arguments"):
        made(4, 6)(x, x, x)
    for options, message in (
        ({"num_heads": 4, "key_dim": 6}, "takes no key_dim: use head_dim"),
        ({"num_heads": 4, "head_dim": 6, "value_dim": 6}, "takes no value_dim: use value_head_dim"),
        ({"head_dim": 6, "num_query_heads": 4, "num_key_value_heads": 2}, "takes no num_query_heads: use num_heads"),
    ):
        with pytest.raises(TypeError, match=message):
            MultiHeadAttention(**options)
