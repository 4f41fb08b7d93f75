import keras
import numpy as np
import pytest

from layers.positions import RotaryEmbedding
from layers.positions.rotary_scaling import LENGTH

LAYOUTS = ["half_split", "interleaved"]
LAST_DIGIT = 1e-6  # vectorised sines may differ in the last digit with the place in the array


def rotate(x, positions, *args, **kwargs):
    layer = RotaryEmbedding(x.shape[-1], *args, **kwargs)
    return keras.ops.convert_to_numpy(layer(x, np.asarray(positions)))


def rotate_with_complex_numbers(x, positions, layout, base=10000.0, rotary_dim=None):
    """Pairs as complex numbers, turned by multiplication with exp(i angle); float64."""
    rotary_dim = rotary_dim or x.shape[-1]
    half = rotary_dim // 2
    pairs = [(i, i + half) if layout == "half_split" else (2 * i, 2 * i + 1) for i in range(half)]
    positions = np.broadcast_to(positions, x.shape[:2])[..., None]
    result = x.astype("float64").copy()
    for i, (first, second) in enumerate(pairs):
        turned = (x[..., first] + 1j * x[..., second]) * np.exp(1j * positions * base ** (-2 * i / rotary_dim))
        result[..., first], result[..., second] = turned.real, turned.imag
    return result


def test_numeric_example():
    rotated = rotate(np.array([[[[1.0, 0.0, 1.0, 0.0]]]], "float32"), [1], layout="interleaved")
    np.testing.assert_allclose(rotated[0, 0, 0], [0.54, 0.84, 1.00, 0.01], atol=0.005)


@pytest.mark.parametrize("layout", LAYOUTS)
@pytest.mark.parametrize("rotary_dim", [None, 4, 2])
def test_formula(layout, rotary_dim, numbers):
    x = numbers.normal(size=(2, 9, 3, 12)).astype("float32")
    positions = np.stack([np.arange(9), np.arange(9) + 40])
    expected = rotate_with_complex_numbers(x, positions, layout, base=500.0, rotary_dim=rotary_dim)
    # angles up to 48 in float32 are off by up to 4e-6, times features of up to 4
    np.testing.assert_allclose(
        rotate(x, positions, base=500.0, layout=layout, rotary_dim=rotary_dim), expected, atol=2e-5
    )


@pytest.mark.parametrize("layout", LAYOUTS)
def test_the_product_depends_on_the_distance_only(layout, numbers):
    query, key = numbers.normal(size=(2, 1, 1, 1, 16)).astype("float32")

    def product(query_position, key_position):
        return np.sum(rotate(query, [query_position], layout=layout) * rotate(key, [key_position], layout=layout))

    near = [product(start + 7, start) for start in (0, 3, 50, 200)]
    np.testing.assert_allclose(near, near[0], atol=2e-4)  # angles of 200 in float32 are off by 1e-5, summed over 16
    assert abs(product(9, 0) - near[0]) > 1e-2
    assert abs(product(0, 7) - near[0]) > 1e-2  # and on its sign


@pytest.mark.parametrize("layout", LAYOUTS)
def test_length_is_kept_and_position_zero_changes_nothing(layout, numbers):
    x = numbers.normal(size=(1, 5, 2, 8)).astype("float32")
    rotated = rotate(x, np.arange(5) * 30, layout=layout)
    np.testing.assert_allclose(np.linalg.norm(rotated, axis=-1), np.linalg.norm(x, axis=-1), rtol=1e-5)
    np.testing.assert_array_equal(rotated[:, 0], x[:, 0])


@pytest.mark.parametrize("layout", LAYOUTS)
def test_a_slice_is_the_slice_of_the_whole_and_rows_may_differ(layout, numbers):
    x = numbers.normal(size=(2, 12, 2, 8)).astype("float32")
    whole = rotate(x, np.arange(12), layout=layout)
    np.testing.assert_allclose(rotate(x[:, 5:6], [5], layout=layout), whole[:, 5:6], atol=LAST_DIGIT)
    rows = np.array([[4, 5, 6], [0, 1, 2]])
    shifted = rotate(np.stack([x[0, 4:7], x[1, :3]]), rows, layout=layout)
    np.testing.assert_allclose(shifted, np.stack([whole[0, 4:7], whole[1, :3]]), atol=LAST_DIGIT)


def test_packed_texts_are_rotated_like_separate_ones(numbers):
    first, second = numbers.normal(size=(1, 4, 2, 8)), numbers.normal(size=(1, 3, 2, 8))
    packed = rotate(np.concatenate([first, second], axis=1), [0, 1, 2, 3, 0, 1, 2])
    separate = np.concatenate([rotate(first, np.arange(4)), rotate(second, np.arange(3))], axis=1)
    np.testing.assert_allclose(packed, separate, atol=LAST_DIGIT)


def test_angles_can_be_computed_once_for_queries_and_keys(numbers):
    query = numbers.normal(size=(2, 5, 4, 8)).astype("float32")
    key = numbers.normal(size=(2, 5, 1, 8)).astype("float32")  # one key head for four query heads
    layer = RotaryEmbedding(8, rotary_dim=4)
    cos, sin = layer.cos_sin(np.arange(5))
    assert cos.shape == sin.shape == (5, 4)
    for x in (query, key):
        rotated = layer.rotate(keras.ops.convert_to_tensor(x), cos, sin)
        np.testing.assert_allclose(rotated, layer(x, np.arange(5)), atol=LAST_DIGIT)


@pytest.mark.parametrize("name", ["default", "yarn", "interleaved_half"])
def test_equals_transformers(name, golden):
    cases = golden["cases"]
    options = {"scaling": cases["rotary"][name][2]} if name in cases["rotary"] else {}
    if name == "interleaved_half":
        options = {"layout": "interleaved", "rotary_dim": cases["head_dim"] // 2}
    # angles of up to 200 in float32, on both sides
    np.testing.assert_allclose(
        rotate(golden["rotated/x"], cases["positions"], **options), golden[f"rotated/{name}"], atol=2e-4
    )


@pytest.mark.parametrize("scaling_factor", [1.0, 4.0])
def test_equals_keras_nlp(scaling_factor, numbers):
    keras_nlp = pytest.importorskip("keras_nlp")
    x = numbers.normal(size=(2, 10, 3, 8)).astype("float32")
    theirs = keras_nlp.layers.RotaryEmbedding(scaling_factor=scaling_factor)(x, start_index=6)
    ours = rotate(x, np.arange(6, 16), scaling={"kind": "linear", "factor": scaling_factor})
    np.testing.assert_allclose(ours, keras.ops.convert_to_numpy(theirs), atol=1e-5)


@pytest.mark.parametrize("policy", ["mixed_bfloat16", "mixed_float16"])
@pytest.mark.parametrize("layout", LAYOUTS)
def test_half_precision_rounds_only_the_result(policy, layout, numbers):
    half = policy.removeprefix("mixed_")
    x = keras.ops.cast(numbers.normal(size=(1, 6, 2, 16)).astype("float32"), half)
    positions = np.arange(4000, 4006)  # bfloat16 knows only multiples of 16 here
    rotated = RotaryEmbedding(16, layout=layout, dtype=policy)(x, positions)
    assert keras.backend.standardize_dtype(rotated.dtype) == half
    exact = RotaryEmbedding(16, layout=layout)(keras.ops.cast(x, "float32"), positions)
    np.testing.assert_array_equal(
        keras.ops.convert_to_numpy(keras.ops.cast(rotated, "float32")),
        keras.ops.convert_to_numpy(keras.ops.cast(keras.ops.cast(exact, half), "float32")),
    )


@pytest.mark.skipif(keras.backend.backend() == "jax", reason="JAX has no float64 unless jax_enable_x64 is set")
def test_float64_policy_computes_angles_in_float64(numbers):
    x = numbers.normal(size=(1, 3, 1, 8))
    positions = np.array([100_000, 100_001, 100_002])
    expected = rotate_with_complex_numbers(x, positions, "half_split")
    np.testing.assert_allclose(rotate(x, positions, dtype="float64"), expected, atol=1e-9)


def test_rounded_frequencies():
    rotated = rotate(np.array([[[[0.0, 1.0, 0.0, 0.0]]]], "float32"), [900], frequency_dtype="float16", base=1000.0)
    angle = 900 * np.float64(np.float16(1000.0**-0.5))  # 0.05 more than the exact one
    np.testing.assert_allclose(rotated[0, 0, 0], [0, np.cos(angle), 0, np.sin(angle)], atol=1e-5)


LONGROPE = {"kind": "longrope", "short_factor": [1.0], "long_factor": [2.0], "factor": 2.0}


@pytest.mark.parametrize(
    "arguments, message",
    [
        (
            {"head_dim": 2, "frequency_dtype": "float16", "scaling": LONGROPE | {LENGTH: 8}},
            "frequency_dtype must be None with scaling of kind 'longrope', got 'float16'",
        ),
        ({"head_dim": 7}, "head_dim must be even.*got 7"),
        ({"head_dim": 8, "rotary_dim": 3}, "rotary_dim must be even.*got 3"),
        ({"head_dim": 8, "rotary_dim": 10}, "rotary_dim must not exceed head_dim = 8, got 10"),
        ({"head_dim": 8, "layout": "half"}, "layout must be one of 'half_split', 'interleaved', got 'half'"),
        ({"head_dim": 8, "base": 0}, "base must be a number above zero, got 0"),
        ({"head_dim": 8, "scaling": {"kind": "ntk"}}, "'kind' is one of 'linear', .*got {'kind': 'ntk'}"),
    ],
)
def test_wrong_arguments(arguments, message):
    with pytest.raises(ValueError, match=message):
        RotaryEmbedding(**arguments)


def test_wrong_calls():
    layer = RotaryEmbedding(8)
    with pytest.raises(ValueError, match=r"x must have shape \(batch, length, heads, head_dim = 8\), got \(1, 2, 8\)"):
        layer(np.zeros((1, 2, 8), "float32"), np.arange(2))
    with pytest.raises(ValueError, match=r"got \(1, 2, 3, 6\)"):
        layer(np.zeros((1, 2, 3, 6), "float32"), np.arange(2))
    with pytest.raises(ValueError, match="positions must hold integers"):
        layer(np.zeros((1, 2, 3, 8), "float32"), np.zeros(2, "float32"))
    with pytest.raises(ValueError, match=r"positions must have shape \(length,\) or \(batch, length\), got shape \(\)"):
        layer(np.zeros((1, 2, 3, 8), "float32"), np.array(2))


def test_start(numbers):
    x = numbers.normal(size=(2, 5, 3, 8)).astype("float32")
    layer = RotaryEmbedding(8, rotary_dim=4, rotary_start=3)
    turned = keras.ops.convert_to_numpy(layer(x, np.arange(5)))
    np.testing.assert_array_equal(turned[..., [0, 1, 2, 7]], x[..., [0, 1, 2, 7]])
    expected = keras.ops.convert_to_numpy(RotaryEmbedding(4)(x[..., 3:7], np.arange(5)))
    np.testing.assert_allclose(turned[..., 3:7], expected, atol=1e-6)
    assert RotaryEmbedding.from_config(layer.get_config()).rotary_start == 3
    with pytest.raises(ValueError, match="rotary_start must be from 0 to head_dim - rotary_dim = 4, got 5"):
        RotaryEmbedding(8, rotary_dim=4, rotary_start=5)
