import keras
import numpy as np
import pytest

from layers.positions import RelativePositionBias, relative_position_buckets


def bias_of(layer, query_positions, key_positions):
    return keras.ops.convert_to_numpy(layer(np.asarray(query_positions), np.asarray(key_positions)))


def test_buckets_equal_transformers(golden):
    distances = np.arange(-1000, 1001)
    for num_buckets, max_distance, bidirectional in golden["cases"]["buckets"]:
        expected = golden[f"buckets/{num_buckets}_{max_distance}_{bidirectional}"]
        ours = relative_position_buckets(distances, num_buckets, max_distance, bidirectional)
        np.testing.assert_array_equal(ours, expected)


def test_buckets_of_the_paper():
    # 32 buckets for one direction: 16 single distances, then wider and wider ones up to 128
    buckets = relative_position_buckets(-np.arange(200), bidirectional=False)
    np.testing.assert_array_equal(buckets[:17], np.arange(17))
    assert np.all(np.diff(buckets) >= 0) and np.all(buckets[128:] == 31) and buckets[100] < 31
    assert np.all(relative_position_buckets(np.arange(200), bidirectional=False) == 0)


@pytest.mark.parametrize("name", ["bidirectional", "causal"])
def test_bias_equals_transformers(name, golden):
    weight = golden[f"t5/{name}/weight"]
    layer = RelativePositionBias(3, bidirectional=name == "bidirectional")
    layer.build()
    layer.set_weights([weight])
    np.testing.assert_array_equal(bias_of(layer, np.arange(14, 20), np.arange(20)), golden[f"t5/{name}/bias"])


@pytest.mark.parametrize("bidirectional", [True, False])
def test_equals_keras_nlp(bidirectional):
    keras_hub = pytest.importorskip("keras_hub")
    from keras_hub.src.models.t5.t5_multi_head_attention import T5MultiHeadAttention

    assert keras_hub.__version__
    theirs = T5MultiHeadAttention._relative_position_bucket(
        keras.ops.arange(-300, 301), bidirectional=bidirectional, num_buckets=32, max_distance=128
    )
    ours = relative_position_buckets(np.arange(-300, 301), bidirectional=bidirectional)
    np.testing.assert_array_equal(ours, keras.ops.convert_to_numpy(theirs))


@pytest.mark.parametrize("num_buckets, max_distance, bidirectional", [(8, 20, True), (8, 20, False), (8, 5, False)])
def test_bias_is_the_weight_of_the_bucket_of_every_distance(num_buckets, max_distance, bidirectional):
    # distances up to max_distance, where one step may change the bucket, and far beyond
    layer = RelativePositionBias(2, num_buckets, max_distance, bidirectional)
    queries, keys = np.array([0, 50, 100]), np.arange(0, 150)
    bias = bias_of(layer, queries, keys)
    buckets = relative_position_buckets(keys[None] - queries[:, None], num_buckets, max_distance, bidirectional)
    expected = keras.ops.convert_to_numpy(layer.embeddings)[buckets]
    np.testing.assert_array_equal(bias[0], expected.transpose(2, 0, 1))


def test_a_slice_is_the_slice_of_the_whole_and_rows_may_differ():
    layer = RelativePositionBias(4, bidirectional=False)
    whole = bias_of(layer, np.arange(12), np.arange(12))
    assert whole.shape == (1, 4, 12, 12)
    np.testing.assert_array_equal(bias_of(layer, [7], np.arange(8)), whole[:, :, 7:8, :8])
    rows = np.array([[4, 5], [0, 1]])
    both = bias_of(layer, rows, np.arange(12))
    np.testing.assert_array_equal(both, np.concatenate([whole[:, :, 4:6], whole[:, :, :2]]))
    left_padded = np.array([[-2, -1, 0, 1], [0, 1, 2, 3]])
    both = bias_of(layer, left_padded, left_padded)
    np.testing.assert_array_equal(both[0], both[1])


def test_float32_under_half_precision():
    layer = RelativePositionBias(4, dtype="mixed_bfloat16")
    bias = layer(np.arange(5), np.arange(5))
    assert keras.backend.standardize_dtype(bias.dtype) == "float32"
    assert keras.ops.convert_to_numpy(bias)[0, 2, 3, 3] == keras.ops.convert_to_numpy(layer.embeddings)[0, 2]


@pytest.mark.parametrize(
    "arguments, message",
    [
        ({"num_heads": 0}, "num_heads must be a positive integer, got 0"),
        ({"num_heads": 2, "num_buckets": 7}, "num_buckets must be even and at least 4 if bidirectional.*got 7"),
        ({"num_heads": 2, "num_buckets": 1, "bidirectional": False}, "num_buckets must be at least 2, got 1"),
        ({"num_heads": 2, "max_distance": 8}, "max_distance must be larger than 8.*got 8"),
        ({"num_heads": 2, "bidirectional": "yes"}, "bidirectional must be true or false, got 'yes'"),
    ],
)
def test_wrong_arguments(arguments, message):
    with pytest.raises(ValueError, match=message):
        RelativePositionBias(**arguments)


def test_wrong_positions():
    layer = RelativePositionBias(2)
    with pytest.raises(ValueError, match="query_positions must hold integers"):
        layer(np.zeros(3, "float32"), np.arange(3))
    with pytest.raises(ValueError, match=r"key_positions must have shape \(length,\) or \(batch, length\)"):
        layer(np.arange(3), np.zeros((1, 1, 3), "int32"))
