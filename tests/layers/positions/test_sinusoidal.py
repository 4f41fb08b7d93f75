import keras
import numpy as np
import pytest

from layers.positions import SinusoidalPositionEncoding


def encode(positions, *args, **kwargs):
    return keras.ops.convert_to_numpy(SinusoidalPositionEncoding(*args, **kwargs)(np.asarray(positions)))


def test_numbers_of_the_paper_for_four_features():
    expected = [[0, 1, 0, 1], [np.sin(2), np.cos(2), np.sin(0.02), np.cos(0.02)]]
    np.testing.assert_allclose(encode([0, 2], 4), expected, atol=1e-7)


@pytest.mark.parametrize("base", [10000.0, 100.0])
def test_formula(base):
    dim, positions = 6, np.arange(50)
    expected = np.zeros((50, dim))
    for position in positions:
        for i in range(dim // 2):
            expected[position, 2 * i] = np.sin(position / base ** (2 * i / dim))
            expected[position, 2 * i + 1] = np.cos(position / base ** (2 * i / dim))
    # angles up to 50 in float32 are off by up to 4e-6
    np.testing.assert_allclose(encode(positions, dim, base=base), expected, atol=5e-6)


def test_a_shift_of_the_position_is_a_rotation_of_the_encoding():
    dim, shift = 8, 5
    matrix = np.zeros((dim, dim))
    for i in range(dim // 2):
        angle = shift * 10000.0 ** (-2 * i / dim)
        matrix[2 * i : 2 * i + 2, 2 * i : 2 * i + 2] = [
            [np.cos(angle), np.sin(angle)],
            [-np.sin(angle), np.cos(angle)],
        ]
    before, after = encode(np.arange(20), dim), encode(np.arange(20) + shift, dim)
    np.testing.assert_allclose(before @ matrix.T, after, atol=1e-5)


def test_concatenated_layout_equals_marian_in_transformers(golden):
    length, dim = golden["marian"].shape
    np.testing.assert_allclose(encode(np.arange(length), dim, layout="concatenated"), golden["marian"], atol=5e-6)


def test_frequencies_of_tensor2tensor_and_positions_of_fairseq():
    dim, last = 8, 10000.0
    frequencies = last ** -(np.arange(4) / 3)  # from 1 to 1 / 10,000
    angles = (np.arange(20) + 2)[:, None] * frequencies
    expected = np.concatenate([np.sin(angles), np.cos(angles)], axis=-1)
    base = last ** (dim / (dim - 2))
    np.testing.assert_allclose(encode(np.arange(20), dim, base, "concatenated", offset=2), expected, atol=5e-6)


def test_equals_keras_nlp():
    keras_nlp = pytest.importorskip("keras_nlp")
    theirs = keras_nlp.layers.SinePositionEncoding()(np.zeros((1, 30, 16), "float32"), start_index=3)
    np.testing.assert_allclose(encode(np.arange(3, 33), 16), keras.ops.convert_to_numpy(theirs)[0], atol=5e-6)


def test_positions_of_any_shape_and_a_slice_is_the_slice_of_the_whole():
    last_digit = 2e-7  # vectorised sines may differ in it with the place in the array
    whole = encode(np.arange(20), 6)
    np.testing.assert_allclose(encode(np.arange(7, 12), 6), whole[7:12], atol=last_digit)
    rows = np.array([[3, 4, 5], [0, 1, 0]])  # an offset, and two texts packed in a row
    np.testing.assert_allclose(encode(rows, 6), whole[rows], atol=last_digit)
    np.testing.assert_allclose(encode(9, 6), whole[9], atol=last_digit)


def test_half_precision_is_the_rounded_float32_result():
    # Angles in bfloat16 would already be wrong by several radians at these positions.
    positions = np.arange(3000, 3010)
    exact = encode(positions, 16)
    rounded = SinusoidalPositionEncoding(16, dtype="mixed_bfloat16")(positions)
    assert keras.backend.standardize_dtype(rounded.dtype) == "bfloat16"
    expected = keras.ops.convert_to_numpy(keras.ops.cast(exact, "bfloat16"))
    np.testing.assert_array_equal(keras.ops.convert_to_numpy(rounded), expected)


@pytest.mark.parametrize(
    "arguments, message",
    [
        ({"dim": 5}, "dim must be even.*got 5"),
        ({"dim": 0}, "dim must be a positive integer, got 0"),
        ({"dim": 4, "base": -1.0}, "base must be a number above zero, got -1.0"),
        ({"dim": 4, "offset": -1}, "offset must be an integer of at least 0, got -1"),
        ({"dim": 4, "layout": "mixed"}, "layout must be one of 'interleaved', 'concatenated', got 'mixed'"),
    ],
)
def test_wrong_arguments(arguments, message):
    with pytest.raises(ValueError, match=message):
        SinusoidalPositionEncoding(**arguments)


def test_positions_must_be_integers():
    with pytest.raises(ValueError, match="positions must hold integers, got dtype float32"):
        SinusoidalPositionEncoding(4)(np.array([0.5], "float32"))
