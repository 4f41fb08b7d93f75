import keras
import numpy as np
import pytest

from layers.positions import ROTARY_SCALINGS, RotaryEmbedding
from layers.positions.rotary_scaling import LENGTH_DEPENDENT, check_rotary_scaling, inverse_frequencies

NAMES = [
    "linear",
    "dynamic_ntk",
    "yarn",
    "yarn_half_rotated",
    "yarn_attention_factor",
    "yarn_magnitudes",
    "yarn_not_truncated",
    "yarn_every_pair_turns",
    "llama3",
    "llama3_half_rotated",
    "longrope",
    "longrope_attention_factor",
    "proportional",
]
YARN = {"kind": "yarn", "factor": 4.0, "original_max_position_embeddings": 64}
DYNAMIC = {"kind": "dynamic_ntk", "factor": 2.0, "original_max_position_embeddings": 8}
LONGROPE = {
    "kind": "longrope",
    "short_factor": [1.0, 1.0, 1.5, 2.0],
    "long_factor": [1.0, 2.0, 4.0, 8.0],
    "factor": 4.0,
    "original_max_position_embeddings": 8,
}


def golden_case(golden, name):
    base, proportion, scaling = golden["cases"]["rotary"][name]
    head_dim = golden["cases"]["head_dim"]
    return base, head_dim if name == "proportional" else int(head_dim * proportion), scaling


@pytest.mark.parametrize("name", ["default", "large_base"])
def test_unscaled_frequencies_equal_transformers(name, golden):
    base, rotary_dim, _ = golden_case(golden, name)
    np.testing.assert_allclose(inverse_frequencies(base, rotary_dim), golden[f"rotary/{name}/frequencies"], rtol=1e-6)


@pytest.mark.parametrize("name", NAMES)
def test_equals_transformers(name, golden):
    base, rotary_dim, scaling = golden_case(golden, name)
    lengths = golden["cases"]["lengths"] if scaling["kind"] in LENGTH_DEPENDENT else [None]
    expected = golden[f"rotary/{name}/frequencies"].reshape(len(lengths), -1)
    scaling = check_rotary_scaling(scaling, rotary_dim)
    for length, frequencies in zip(lengths, expected, strict=True):
        ours, attention_scaling = ROTARY_SCALINGS[scaling["kind"]](base, rotary_dim, scaling, length)
        # theirs is computed in float32; llama3 and yarn subtract numbers of the same size
        np.testing.assert_allclose(ours, frequencies, rtol=1e-5)
        np.testing.assert_allclose(attention_scaling, golden[f"rotary/{name}/attention_scaling"], rtol=1e-6)


def test_every_method_is_compared_with_transformers(golden):
    assert {golden["cases"]["rotary"][name][2]["kind"] for name in NAMES} == set(ROTARY_SCALINGS)


@pytest.mark.parametrize("scaling", [DYNAMIC, LONGROPE])
def test_a_tensor_of_lengths_gives_what_numbers_give(scaling):
    function = ROTARY_SCALINGS[scaling["kind"]]
    lengths = np.array([3, 8, 9, 30], "float32")
    together = keras.ops.convert_to_numpy(function(100.0, 8, scaling, keras.ops.convert_to_tensor(lengths))[0])
    assert together.shape == (4, 4)
    for length, row in zip(lengths, together, strict=True):
        np.testing.assert_allclose(row, function(100.0, 8, scaling, float(length))[0], rtol=1e-5)


def test_linear_scaling_is_a_fraction_of_the_position(numbers):
    x = numbers.normal(size=(1, 5, 2, 8)).astype("float32")
    scaled = RotaryEmbedding(8, scaling={"kind": "linear", "factor": 3.0})(x, np.arange(5) * 3)
    np.testing.assert_allclose(scaled, RotaryEmbedding(8)(x, np.arange(5)), atol=1e-6)


def test_attention_scaling_multiplies_the_rotated_features(numbers):
    x = numbers.normal(size=(1, 5, 2, 8)).astype("float32")
    plain = RotaryEmbedding(8, scaling={**YARN, "attention_factor": 1.0})(x, np.arange(5))
    scaled = RotaryEmbedding(8, scaling={**YARN, "attention_factor": 1.5})(x, np.arange(5))
    np.testing.assert_allclose(scaled, 1.5 * np.asarray(plain), rtol=1e-5, atol=1e-6)


@pytest.mark.parametrize("scaling", [DYNAMIC, LONGROPE])
class TestLengthDependent:
    def test_the_length_is_that_of_the_row_not_of_the_batch(self, scaling, numbers):
        x = numbers.normal(size=(2, 6, 2, 8)).astype("float32")
        rows = np.stack([np.arange(6), np.arange(6) + 20])
        layer = RotaryEmbedding(8, scaling=scaling)
        together = np.asarray(layer(x, rows))
        for row in range(2):
            np.testing.assert_allclose(together[row], layer(x[row : row + 1], rows[row])[0], atol=1e-5)
        as_if_short = np.asarray(layer(x, rows, sequence_length=6))
        assert np.abs(together[1] - as_if_short[1]).max() > 0.1

    def test_given_lengths_scalar_per_row_and_per_token(self, scaling, numbers):
        x = numbers.normal(size=(2, 6, 2, 8)).astype("float32")
        layer, positions = RotaryEmbedding(8, scaling=scaling), np.arange(6)
        long, short = np.asarray(layer(x, positions, sequence_length=30)), np.asarray(layer(x, positions))
        assert np.abs(long - short).max() > 0.1
        np.testing.assert_allclose(layer(x, positions, np.array([30, 6])), [long[0], short[1]], atol=1e-6)
        per_token = np.array([[30, 30, 30, 6, 6, 6], [6] * 6])
        mixed = np.stack([np.concatenate([long[0, :3], short[0, 3:]]), short[1]])
        np.testing.assert_allclose(layer(x, np.tile(positions, (2, 1)), per_token), mixed, atol=1e-6)

    def test_with_a_given_length_a_slice_is_the_slice_of_the_whole(self, scaling, numbers):
        x = numbers.normal(size=(1, 20, 2, 8)).astype("float32")
        layer = RotaryEmbedding(8, scaling=scaling)
        whole = np.asarray(layer(x, np.arange(20)))
        np.testing.assert_allclose(layer(x[:, 4:5], np.array([4]), sequence_length=20), whole[:, 4:5], atol=1e-6)

    def test_a_length_of_its_own(self, scaling, numbers):
        x, positions = numbers.normal(size=(2, 6, 2, 8)).astype("float32"), np.arange(6)
        layer = RotaryEmbedding(8, scaling=scaling, sequence_length=30)
        expected = RotaryEmbedding(8, scaling=scaling)(x, positions, sequence_length=30)
        for given in (None, 6):
            np.testing.assert_array_equal(layer(x, positions, sequence_length=given), expected)
        assert RotaryEmbedding.from_config(layer.get_config()).sequence_length == 30
        with pytest.raises(ValueError, match="sequence_length must be a positive integer, got 0"):
            RotaryEmbedding(8, scaling=scaling, sequence_length=0)


LONG = {"original_max_position_embeddings": 64}
LLAMA3 = {"kind": "llama3", "factor": 8.0, "low_freq_factor": 1.0, "high_freq_factor": 4.0, **LONG}


@pytest.mark.parametrize(
    "scaling, message",
    [
        ("linear", "must be a dict whose 'kind'"),
        ({"factor": 2.0}, "must be a dict whose 'kind'"),
        ({"kind": "linear"}, r"scaling\['factor'\] must be given with the kind 'linear', got None"),
        ({"kind": "linear", "factor": None}, r"scaling\['factor'\] must be given"),
        ({"kind": "linear", "factor": 0.5}, r"\['factor'\] must be a number of at least 1, .* got 0.5"),
        (
            {"kind": "linear", "factor": 2.0, "beta_fast": 32},
            r"\['beta_fast'\] must be left out .*, got 32",
        ),
        ({"kind": "dynamic_ntk", "factor": 2.0}, r"scaling\['original_max_position_embeddings'\] must be given"),
        ({**YARN, "short_mscale": 1.0}, r"scaling\['short_mscale'\] must be left out .*, got 1.0"),
        ({**YARN, "beta_fast": 1, "beta_slow": 2}, r"\['beta_fast'\] .* must be at least .*'beta_slow'.*, got 1 and 2"),
        ({**YARN, "truncate": 1}, r"\['truncate'\] must be true or false, with the kind 'yarn', got 1"),
        ({**YARN, "attention_factor": -1.0}, r"\['attention_factor'\] must be a number above zero, .* got -1.0"),
        ({**YARN, "mscale": -1.0}, r"\['mscale'\] must be a number of at least 0, .* got -1.0"),
        ({**YARN, "original_max_position_embeddings": 0}, "must be a number of positions, at least 2, .* got 0"),
        ({**LLAMA3, "high_freq_factor": 1.0}, r"\['high_freq_factor'\] must be above scaling\['low_freq_factor'\]"),
        ({**LONGROPE, "short_factor": [1.0, 2.0]}, r"\['short_factor'\] must be a list of rotary_dim / 2 = 4 numbers"),
        ({**LONGROPE, "long_factor": [1.0, 0.0, 1.0, 1.0]}, r"\['long_factor'\] must be a list"),
        ({**LONGROPE, "factor": None}, r"\['factor'\] or scaling\['attention_factor'\] must be given"),
        ({"kind": "proportional", "proportion": 2}, r"\['proportion'\] must be a number above 0 and up to 1, .* got 2"),
    ],
)
def test_wrong_scalings_name_the_key(scaling, message):
    with pytest.raises(ValueError, match=message):
        RotaryEmbedding(8, scaling=scaling)


def test_dynamic_scaling_needs_more_than_one_pair():
    layer = RotaryEmbedding(2, scaling=DYNAMIC)
    with pytest.raises(ValueError, match="rotary_dim must be above 2"):
        layer(np.zeros((1, 3, 1, 2), "float32"), np.arange(3))
