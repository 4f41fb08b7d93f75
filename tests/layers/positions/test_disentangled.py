import numpy as np
import pytest
from keras import ops

from layers import DisentangledPositions, MultiHeadAttention
from layers.positions.base import Projections
from layers.positions.disentangled import log_buckets


def test_buckets():
    # each distance up to half of the buckets for itself, then wider and wider ones, the same on both sides
    distance = np.arange(64)
    buckets = log_buckets(distance, 8, 33)
    np.testing.assert_array_equal(buckets[:5], distance[:5])
    np.testing.assert_array_equal(log_buckets(-distance, 8, 33), -buckets)
    assert buckets[32] == 7 and np.all(buckets[33:] >= 8) and np.all(np.diff(buckets) >= 0)
    expected = [4 + np.ceil(3 * np.log(d / 4) / np.log(8)) for d in (5, 7, 9, 15, 20, 31)]
    np.testing.assert_array_equal(buckets[[5, 7, 9, 15, 20, 31]], expected)


def test_without_one_of_the_terms():
    x = np.random.default_rng(0).normal(size=(2, 6, 8)).astype("float32")
    both = MultiHeadAttention(2, 4, position=DisentangledPositions(8, 4, 8))
    both(x)
    biases = []
    for terms in ((True, True), (True, False), (False, True)):
        options = dict(zip(("content_to_position", "position_to_content"), terms, strict=True))
        layer = MultiHeadAttention(2, 4, position=DisentangledPositions(8, 4, 8, **options))
        layer(x)
        layer.set_weights([10 * weight for weight in both.get_weights()])
        query, key = (
            ops.transpose(ops.reshape(projection(x), (2, 6, 2, 4)), (0, 2, 1, 3))
            for projection in (layer.query_projection, layer.key_projection)
        )
        projections = Projections(layer._queries_of, layer._keys_of)
        bias = layer.position.score_bias(query, key, np.arange(6), np.arange(6), 0.5, projections)
        biases.append(ops.convert_to_numpy(bias))
    np.testing.assert_allclose(biases[0], biases[1] + biases[2], rtol=1e-4, atol=1e-4)
    assert np.abs(biases[1] - biases[2]).max() > 0.1


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"num_buckets": 5}, "num_buckets must be even .* got num_buckets=5"),
        ({"num_buckets": 16}, "max_distance larger than half of it and one, got num_buckets=16 and max_distance=8"),
        ({"content_to_position": False, "position_to_content": False}, "must be True, got False for both"),
        ({"hidden_dim": 0}, "hidden_dim must be a positive integer, got 0"),
    ],
)
def test_wrong_arguments(options, message):
    with pytest.raises(ValueError, match=message):
        DisentangledPositions(**{"hidden_dim": 8, "num_buckets": 4, "max_distance": 8, **options})
