import keras
import numpy as np
import pytest

from layers.positions import LearnedPositionEmbedding


def test_picks_the_vector_of_each_position():
    layer = LearnedPositionEmbedding(6, 4)
    rows = np.array([[2, 3, 4], [0, 1, 0]])
    vectors = keras.ops.convert_to_numpy(layer(rows))
    table = keras.ops.convert_to_numpy(layer.embeddings)
    assert table.shape == (6, 4)
    np.testing.assert_array_equal(vectors, table[rows])
    np.testing.assert_array_equal(keras.ops.convert_to_numpy(layer(np.arange(6))), table)


def test_equals_keras_nlp():
    keras_nlp = pytest.importorskip("keras_nlp")
    layer, theirs = LearnedPositionEmbedding(12, 4), keras_nlp.layers.PositionEmbedding(12)
    layer.build()
    theirs.build((None, 5, 4))
    theirs.set_weights(layer.get_weights())
    expected = theirs(np.zeros((1, 5, 4), "float32"), start_index=6)[0]
    np.testing.assert_array_equal(
        keras.ops.convert_to_numpy(layer(np.arange(6, 11))), keras.ops.convert_to_numpy(expected)
    )


@pytest.mark.parametrize("positions, found", [([0, 6], "0 to 6"), ([-1, 3], "-1 to 3")])
def test_positions_out_of_range(positions, found):
    layer = LearnedPositionEmbedding(6, 4)
    with pytest.raises(ValueError, match=f"between 0 and max_length - 1 = 5, got positions from {found}"):
        layer(np.array(positions))


def test_positions_out_of_range_are_not_silent_when_compiled():
    layer = LearnedPositionEmbedding(6, 4)
    layer.build()
    compiled = compile_function(layer)
    if compiled is None:
        pytest.skip("needs a compiler: TensorFlow or JAX")
    vectors = keras.ops.convert_to_numpy(compiled(np.array([5, 6, -1])))
    np.testing.assert_array_equal(np.isnan(vectors).any(-1), [False, True, True])
    np.testing.assert_array_equal(vectors[0], keras.ops.convert_to_numpy(layer.embeddings)[5])


def compile_function(function):
    if keras.backend.backend() == "tensorflow":
        import tensorflow as tf

        return tf.function(function, jit_compile=True)
    if keras.backend.backend() == "jax":
        import jax

        return jax.jit(function)
    return None


def test_wrong_arguments():
    with pytest.raises(ValueError, match="max_length must be a positive integer, got 0"):
        LearnedPositionEmbedding(0, 4)
    with pytest.raises(ValueError, match="dim must be a positive integer, got 2.5"):
        LearnedPositionEmbedding(4, 2.5)
    with pytest.raises(ValueError, match="must hold integers"):
        LearnedPositionEmbedding(4, 4)(np.zeros(2, "float32"))
