import keras
import numpy as np
import pytest

from layers.positions import ShawRelativePositions

BATCH, HEADS, QUERIES, KEYS, HEAD_DIM, VALUE_DIM = 4, 3, 5, 8, 6, 10
POSITIONS = {
    "shared": (np.arange(3, 8), np.arange(8)),
    "per_row": (np.arange(5) + np.array([[0], [3], [1], [9]]), np.tile(np.arange(8), (4, 1))),
    "mixed": (np.arange(5) + np.array([[0], [3], [1], [9]]), np.arange(8)),
    "packed": (np.array([0, 1, 2, 0, 1]), np.array([0, 1, 2, 0, 1, 2, 3, 0])),
}


def add_vectors_to_keys_and_values(query, key, value, key_table, value_table, query_positions, key_positions, limit):
    """Equations 3 and 4 of the paper as they stand, query by query and key by key."""
    query_positions = np.broadcast_to(query_positions, (BATCH, QUERIES))
    key_positions = np.broadcast_to(key_positions, (BATCH, KEYS))
    scores = np.zeros((BATCH, HEADS, QUERIES, KEYS))
    for index in np.ndindex(BATCH, HEADS, QUERIES, KEYS):
        b, h, q, k = index
        number = np.clip(key_positions[b, k] - query_positions[b, q], -limit, limit) + limit
        scores[index] = query[b, h, q] @ (key[b, h, k] + key_table[number]) / np.sqrt(HEAD_DIM)
    weights = np.exp(scores) / np.exp(scores).sum(-1, keepdims=True)
    output = np.zeros((BATCH, HEADS, QUERIES, VALUE_DIM))
    for b, h, q, k in np.ndindex(BATCH, HEADS, QUERIES, KEYS):
        number = np.clip(key_positions[b, k] - query_positions[b, q], -limit, limit) + limit
        output[b, h, q] += weights[b, h, q, k] * (value[b, h, k] + value_table[number])
    return output, weights


def built(limit, **kwargs):
    layer = ShawRelativePositions(HEAD_DIM, limit, value_dim=VALUE_DIM, **kwargs)
    layer.build()
    return layer


@pytest.mark.parametrize("limit", [1, 3, 20])
@pytest.mark.parametrize("positions", POSITIONS)
def test_formula_of_the_paper(limit, positions, numbers):
    query_positions, key_positions = POSITIONS[positions]
    query = numbers.normal(size=(BATCH, HEADS, QUERIES, HEAD_DIM)).astype("float32")
    key = numbers.normal(size=(BATCH, HEADS, KEYS, HEAD_DIM)).astype("float32")
    value = numbers.normal(size=(BATCH, HEADS, KEYS, VALUE_DIM)).astype("float32")
    layer = built(limit)
    tables = [keras.ops.convert_to_numpy(table) for table in (layer.key_embeddings, layer.value_embeddings)]
    assert [table.shape for table in tables] == [(2 * limit + 1, HEAD_DIM), (2 * limit + 1, VALUE_DIM)]
    expected, weights = add_vectors_to_keys_and_values(query, key, value, *tables, *POSITIONS[positions], limit)

    query, key, value = map(keras.ops.convert_to_tensor, (query, key, value))
    scores = keras.ops.matmul(query, keras.ops.swapaxes(key, -1, -2))
    scores = (scores + layer.key_bias(query, query_positions, key_positions)) / np.sqrt(HEAD_DIM)
    ours = keras.ops.softmax(scores)
    output = keras.ops.matmul(ours, value) + layer.value_context(ours, query_positions, key_positions)
    np.testing.assert_allclose(keras.ops.convert_to_numpy(ours), weights, atol=1e-6)
    np.testing.assert_allclose(keras.ops.convert_to_numpy(output), expected, atol=1e-5)


def test_the_two_tables_start_differently():
    layer = ShawRelativePositions(HEAD_DIM, 2)
    layer.build()
    first, second = layer.get_weights()
    assert first.shape == second.shape and np.abs(first - second).max() > 0.01


def test_weights_of_zero_add_nothing():
    layer = built(2)
    context = layer.value_context(keras.ops.zeros((BATCH, HEADS, QUERIES, KEYS)), np.arange(5), np.arange(8))
    assert not keras.ops.convert_to_numpy(context).any()


def test_half_precision(numbers):
    layer = built(2)
    query = numbers.normal(size=(BATCH, HEADS, QUERIES, HEAD_DIM)).astype("float32")
    weights = numbers.dirichlet(np.ones(KEYS), size=(BATCH, HEADS, QUERIES)).astype("float32")
    # what is added to the scores is not rounded
    for call, tensor, dtype in ((layer.key_bias, query, "float32"), (layer.value_context, weights, "bfloat16")):
        half = call(keras.ops.cast(tensor, "bfloat16"), *POSITIONS["mixed"])
        assert keras.backend.standardize_dtype(half.dtype) == dtype
        exact = keras.ops.convert_to_numpy(call(keras.ops.convert_to_tensor(tensor), *POSITIONS["mixed"]))
        # inputs, table and the second result are each rounded by up to 2 ** -9
        np.testing.assert_allclose(keras.ops.convert_to_numpy(keras.ops.cast(half, "float32")), exact, atol=0.03)


def test_many_small_weights_are_summed_in_float32():
    # In bfloat16 a sum of steps of 1 / 4096 gets stuck at 1 / 16.
    keys = 4096
    layer = built(1)
    weights = keras.ops.full((1, 1, 1, keys), 1 / keys, dtype="bfloat16")
    context = layer.value_context(weights, np.array([keys + 5]), np.arange(keys))
    expected = keras.ops.convert_to_numpy(keras.ops.cast(layer.value_embeddings, "float32"))[0]
    context = keras.ops.convert_to_numpy(keras.ops.cast(context, "float32"))
    np.testing.assert_allclose(context[0, 0, 0], expected, rtol=2**-7)


def test_wrong_arguments_and_calls():
    with pytest.raises(ValueError, match="max_distance must be a positive integer, got 0"):
        ShawRelativePositions(8, 0)
    with pytest.raises(ValueError, match="value_dim must be a positive integer, got -1"):
        ShawRelativePositions(8, 2, value_dim=-1)
    layer = built(2)
    with pytest.raises(ValueError, match=r"query must have shape .*head_dim = 6\), got \(1, 2, 3, 4\)"):
        layer.key_bias(keras.ops.zeros((1, 2, 3, 4)), np.arange(3), np.arange(3))
    with pytest.raises(ValueError, match=r"weights must have shape .*key_length\), got \(2, 3, 4\)"):
        layer.value_context(keras.ops.zeros((2, 3, 4)), np.arange(3), np.arange(4))
    with pytest.raises(ValueError, match="key_positions must hold integers"):
        layer.key_bias(keras.ops.zeros((1, 2, 3, 6)), np.arange(3), np.zeros(4, "float32"))
