import keras
import numpy as np
import pytest

from layers.positions import ALiBi, alibi_slopes


def bias_of(layer, query_positions, key_positions):
    return keras.ops.convert_to_numpy(layer(np.asarray(query_positions), np.asarray(key_positions)))


def softmax(scores):
    scores = np.exp(scores - scores.max(-1, keepdims=True))
    return scores / scores.sum(-1, keepdims=True)


def test_slopes_of_the_paper():
    np.testing.assert_allclose(alibi_slopes(8), [1 / 2**i for i in range(1, 9)])
    np.testing.assert_allclose(alibi_slopes(16), [2 ** (-i / 2) for i in range(1, 17)])
    np.testing.assert_allclose(alibi_slopes(12), [*alibi_slopes(8), *alibi_slopes(16)[:8:2]])
    np.testing.assert_allclose(alibi_slopes(4, bias_max=16), [2.0**-4, 2.0**-8, 2.0**-12, 2.0**-16])


def test_slopes_equal_bloom_in_transformers(golden):
    # Theirs is slope * key position: the same within each row of scores up to a constant, which softmax ignores.
    for num_heads in golden["cases"]["alibi_heads"]:
        theirs = golden[f"alibi/{num_heads}"]
        np.testing.assert_allclose(theirs[:, 1], alibi_slopes(num_heads), rtol=1e-6)
        ours = bias_of(ALiBi(num_heads), np.arange(9), np.arange(9))[0]
        for query in range(9):  # a causal mask leaves keys up to the query
            np.testing.assert_allclose(softmax(ours[:, query, : query + 1]), softmax(theirs[:, : query + 1]), rtol=1e-5)


@pytest.mark.parametrize("num_heads", [4, 6])
def test_last_row_equals_keras_nlp(num_heads):
    keras_nlp = pytest.importorskip("keras_nlp")
    theirs = keras_nlp.layers.AlibiBias()(np.zeros((1, num_heads, 1, 7), "float32"))
    np.testing.assert_allclose(
        bias_of(ALiBi(num_heads), [6], np.arange(7)), keras.ops.convert_to_numpy(theirs), rtol=1e-6
    )


@pytest.mark.parametrize("slope_scale", [1.0, 0.5])
def test_formula_is_symmetric(slope_scale):
    bias = bias_of(ALiBi(3, slope_scale=slope_scale), [2, 7], np.arange(9))
    assert bias.shape == (1, 3, 2, 9)
    for head, slope in enumerate(alibi_slopes(3)):
        for row, query in enumerate([2, 7]):
            expected = [-slope_scale * slope * abs(key - query) for key in range(9)]
            np.testing.assert_allclose(bias[0, head, row], expected, rtol=1e-6)


def test_rows_may_differ():
    layer = ALiBi(2)
    whole = bias_of(layer, np.arange(9), np.arange(9))
    both = bias_of(layer, [[4, 5], [0, 1]], np.arange(9))
    np.testing.assert_array_equal(both, np.concatenate([whole[:, :, 4:6], whole[:, :, :2]]))


def test_float32_under_half_precision():
    bias = ALiBi(8, dtype="mixed_float16")(np.array([5001]), np.arange(5002))
    assert keras.backend.standardize_dtype(bias.dtype) == "float32"
    assert keras.ops.convert_to_numpy(bias)[0, 0, 0, 0] == -2500.5


def test_wrong_arguments():
    with pytest.raises(ValueError, match="num_heads must be a positive integer, got 2.0"):
        ALiBi(2.0)
    with pytest.raises(ValueError, match="bias_max must be a number above zero, got 0"):
        ALiBi(2, bias_max=0)
    with pytest.raises(ValueError, match="slope_scale must be a number above zero, got -1"):
        ALiBi(2, slope_scale=-1)
    with pytest.raises(ValueError, match="query_positions must hold integers"):
        ALiBi(2)(np.zeros(3, "float32"), np.arange(3))
