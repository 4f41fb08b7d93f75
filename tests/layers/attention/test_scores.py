import warnings

import keras
import numpy as np
import pytest
from keras import ops

from layers.attention.scores import (
    AdditiveAttention,
    BilinearAttention,
    DistanceKernelAttention,
    DotAttention,
    make_scored_attention,
)

KINDS = {"additive": {"units": 7}, "dot": {}, "scaled_dot": {}, "bilinear": {}, "distance": {"bandwidth": 2.0}}


@pytest.fixture
def rng():
    return np.random.default_rng(0)


@pytest.fixture
def inputs(rng):
    """Queries, keys, values, and a mask that hides everything from the second row of the batch."""
    mask = np.array([[True, True, False, True], [False] * 4, [True, False, False, False]])
    shapes = [(3, 5, 6), (3, 4, 6), (3, 4, 2)]
    return (*[rng.normal(size=shape).astype("float32") for shape in shapes], mask)


def make(kind, dtype="float32"):
    layer = make_scored_attention(kind, **KINDS[kind], dtype=dtype, name=kind)
    layer.build(query_shape=(None, None, 6), keys_shape=(None, None, 6))
    return layer


def score(layer, q, k):
    """The score of one query vector and one key vector, by the formula of the paper."""
    weights = {weight.path.split("/", 1)[1]: ops.convert_to_numpy(weight) for weight in layer.weights}
    match layer:
        case AdditiveAttention():
            hidden = q @ weights["query_projection/kernel"] + k @ weights["key_projection/kernel"]
            return np.tanh(hidden) @ weights["score_projection/kernel"][:, 0]
        case DotAttention():
            return q @ k / (np.sqrt(len(q)) if layer.scaled else 1)
        case BilinearAttention():
            return q @ weights["key_projection/kernel"].T @ k
        case DistanceKernelAttention():
            return -np.sum((q - k) ** 2) / layer.bandwidth


def reference(layer, queries, keys, values, mask):
    """Context and weights, one row, one query and one visible key at a time."""
    batch, query_length, _ = queries.shape
    weights = np.zeros((batch, query_length, keys.shape[1]))
    for row in range(batch):
        visible = np.flatnonzero(mask[row])
        for step in range(query_length):
            exponentials = np.exp([score(layer, queries[row, step], keys[row, index]) for index in visible])
            weights[row, step, visible] = exponentials / np.sum(exponentials)
    return weights @ values, weights


@pytest.mark.parametrize("kind", KINDS)
def test_formula(kind, inputs):
    layer = make(kind)
    queries, keys, values, mask = inputs
    context, weights = layer(queries, keys, values, mask=mask)
    expected_context, expected_weights = reference(layer, *inputs)
    np.testing.assert_allclose(weights, expected_weights, atol=1e-5)
    np.testing.assert_allclose(context, expected_context, atol=1e-5)
    assert np.all(ops.convert_to_numpy(context)[1] == 0) and np.all(ops.convert_to_numpy(weights)[1] == 0)


@pytest.mark.parametrize("kind", KINDS)
def test_one_step_and_keys_projected_once(kind, inputs):
    layer = make(kind)
    queries, keys, values, mask = inputs
    expected_context, expected_weights = layer(queries, keys, values, mask=mask)
    projected_keys = layer.project_keys(ops.convert_to_tensor(keys))
    for step in range(queries.shape[1]):
        context, weights = layer(queries[:, step], values=values, mask=mask, projected_keys=projected_keys)
        assert context.shape == (3, 2) and weights.shape == (3, 4)
        np.testing.assert_allclose(context, expected_context[:, step], atol=1e-6)
        np.testing.assert_allclose(weights, expected_weights[:, step], atol=1e-6)


@pytest.mark.parametrize("kind", KINDS)
def test_mask_per_query_and_values_by_default(kind, inputs):
    layer = make(kind)
    queries, keys, _, _ = inputs
    causal = np.tril(np.ones((5, 4), bool))
    context, weights = layer(queries, keys, mask=np.repeat(causal[None], 3, axis=0))
    for step in range(5):
        mask = np.repeat(causal[None, step], 3, axis=0)
        expected_context, expected_weights = layer(queries[:, step], keys, mask=mask)
        np.testing.assert_allclose(weights[:, step], expected_weights, atol=1e-6)
        np.testing.assert_allclose(context[:, step], expected_context, atol=1e-6)
    assert context.shape == (3, 5, 6)


@pytest.mark.parametrize("kind", KINDS)
def test_masks_of_keras(kind, inputs):
    """What `Masking` says of keys and values holds, together with `mask`; queries that are padding see nothing."""
    layer, masking = make(kind), keras.layers.Masking()
    queries, keys, values, _ = inputs
    mask = np.array([[1, 1, 0, 1], [1, 1, 1, 1], [1, 0, 1, 1]], "bool")
    real_queries = np.arange(5) < np.array([[5], [3], [4]])
    real_keys = np.array([[1, 1, 1, 0], [1, 0, 1, 1], [1, 1, 1, 1]], "bool")
    real_values = np.array([[1, 1, 1, 1], [0, 1, 1, 1], [1, 1, 1, 1]], "bool")
    queries, keys, values = (
        np.where(real[..., None], x, 0).astype("float32")
        for x, real in ((queries, real_queries), (keys, real_keys), (values, real_values))
    )

    def check(outputs, visible, rows=slice(None)):
        for output, expected in zip(outputs, reference(layer, queries[:, rows], keys, values, visible), strict=True):
            output = ops.convert_to_numpy(output)
            np.testing.assert_allclose(output[real_queries[:, rows]], expected[real_queries[:, rows]], atol=1e-5)
            assert np.all(output[~real_queries[:, rows]] == 0)

    with warnings.catch_warnings():
        warnings.simplefilter("error")
        context, weights = layer(masking(queries), masking(keys), masking(values), mask=mask)
    check((context, weights), real_keys & real_values & mask)
    np.testing.assert_array_equal(ops.convert_to_numpy(context._keras_mask), real_queries)
    assert getattr(weights, "_keras_mask", None) is None
    check(layer(masking(queries), masking(keys), values), real_keys)
    check(layer(masking(queries), keys, masking(values)), real_values)
    # one step at a time, the keys projected beforehand
    projected_keys = layer.project_keys(masking(keys))
    context, weights = layer(queries[:, 1], values=masking(values), projected_keys=projected_keys)
    check((context[:, None], weights[:, None]), real_keys & real_values, slice(1, 2))


def test_masks_of_keras_in_a_model():
    """A mask of an `Embedding` in a functional model, compared with Keras's own layers."""
    ids = np.array([[3, 5, 2, 0], [1, 4, 0, 0]], "int32")
    inputs = keras.Input((None,), dtype="int32")
    x = keras.layers.Embedding(6, 8, mask_zero=True)(inputs)
    model = keras.Model(inputs, [DotAttention()(x, x), keras.layers.Attention()([x, x], return_attention_scores=True)])
    (context, weights), (expected, expected_weights) = model(ids)
    np.testing.assert_allclose(context, expected, atol=1e-6)
    real = ids != 0
    np.testing.assert_allclose(
        ops.convert_to_numpy(weights)[real], ops.convert_to_numpy(expected_weights)[real], atol=1e-6
    )
    np.testing.assert_array_equal(context._keras_mask, real)


def test_keys_hidden_do_not_matter(inputs):
    queries, keys, values, mask = inputs
    layer = make("additive")
    changed = np.where(mask[..., None], keys, 1e4).astype("float32")
    expected = layer(queries, keys, values, mask=mask)
    for first, second in zip(layer(queries, changed, values, mask=mask), expected, strict=True):
        np.testing.assert_allclose(first, second, atol=1e-6)


@pytest.mark.parametrize("dtype", ["bfloat16", "float16"])
@pytest.mark.parametrize("kind", KINDS)
def test_scores_are_not_rounded_to_half(kind, dtype):
    """Queries, keys and projected keys are exact in half precision, scores near 20 and their differences are not."""
    layer = make(kind, dtype=f"mixed_{dtype}")
    queries = np.full((1, 1, 6), 1.5, "float32")
    keys = np.full((1, 8, 6), 2.0, "float32")
    keys[..., 0] += np.arange(8) / 64
    match kind:
        case "additive":  # hidden features are +1 or -1
            keys = 100 * np.sign(0.5 - (np.arange(8)[:, None] >> np.arange(6)) % 2)[None].astype("float32")
            fit = np.concatenate([np.eye(6), np.zeros((6, 1))], axis=1)
            layer.set_weights([0 * fit, fit, np.array([16, 2.125, 2 + 1 / 64, 1 / 32, 1, 1, 1.0])[:, None]])
        case "bilinear":
            layer.set_weights([np.eye(6)])
        case "distance":
            queries, keys = 8 * np.eye(6)[None, :1], keys - 2
    expected, _ = reference(layer, queries, keys, 4 * np.eye(8)[None], np.ones((1, 8), bool))
    context, weights = layer(*(ops.cast(x, dtype) for x in (queries, keys, 4 * np.eye(8)[None])))
    assert keras.backend.standardize_dtype(context.dtype) == keras.backend.standardize_dtype(weights.dtype) == dtype
    context = ops.convert_to_numpy(ops.cast(context, "float32"))
    tolerance = 0.006 if dtype == "bfloat16" else 0.001
    np.testing.assert_allclose(context, expected, rtol=tolerance, atol=1e-6)


def test_mean_of_values_is_not_summed_in_half():
    keys, values = ops.zeros((1, 3000, 4), "bfloat16"), ops.ones((1, 3000, 1), "bfloat16")
    context, _ = make_scored_attention("dot", dtype="mixed_bfloat16")(ops.ones((1, 4), "bfloat16"), keys, values)
    np.testing.assert_allclose(ops.convert_to_numpy(ops.cast(context, "float32")), 1, atol=0.005)


def test_trouser_size_by_distance():
    """The three sizes known are those of waists of 56, 58 and 60 cm; 59 cm is as near to 58 as to 60."""
    waists = np.array([56, 58, 60], "float32").reshape(1, 3, 1)
    sizes = np.array([36, 37, 38], "float32").reshape(1, 3, 1)
    size, weights = DistanceKernelAttention(bandwidth=1.0)(np.array([[59]], "float32"), waists, sizes)
    weights = ops.convert_to_numpy(weights)[0]
    assert weights[1] == weights[2]
    np.testing.assert_allclose(weights, np.exp([-9, -1, -1]) / np.sum(np.exp([-9, -1, -1])), rtol=1e-5)
    assert 37 < float(size[0, 0]) < 38


def test_distance_of_close_long_vectors():
    """Expanding the square of (q - k) would leave nothing of these differences in float32."""
    keys = np.array([[[10000.0], [10001.0]]], "float32")
    _, weights = DistanceKernelAttention()(np.array([[10000.0]], "float32"), keys)
    np.testing.assert_allclose(weights, [[1 / (1 + np.exp(-1)), 1 / (1 + np.exp(1))]], rtol=1e-5)


def test_dot_products_agree_with_keras(inputs):
    queries, keys, values, mask = inputs
    mask[1] = True  # Keras gives the mean where everything is hidden
    context, weights = make("dot")(queries, keys, values, mask=mask)
    expected = keras.layers.Attention()([queries, values, keys], mask=[None, mask], return_attention_scores=True)
    np.testing.assert_allclose(context, expected[0], atol=1e-5)
    np.testing.assert_allclose(weights, expected[1], atol=1e-5)


def test_additive_scores_agree_with_keras(inputs):
    """Keras's layer has no projections: it gets projected queries and keys, and v as its scale."""
    queries, keys, values, mask = inputs
    mask[1] = True
    layer = make("additive")
    keras_layer = keras.layers.AdditiveAttention()
    projected = [ops.matmul(queries, layer.query_projection.kernel), ops.matmul(keys, layer.key_projection.kernel)]
    keras_layer.build([(None, None, 7), (None, None, 2), (None, None, 7)])
    # its width follows the values'
    keras_layer.scale = layer.score_projection.kernel[:, 0]
    expected = keras_layer([projected[0], values, projected[1]], mask=[None, mask], return_attention_scores=True)
    for output, value in zip(layer(queries, keys, values, mask=mask), expected, strict=True):
        np.testing.assert_allclose(output, value, atol=1e-5)


@pytest.mark.parametrize("kind", KINDS)
def test_gradients_in_float64(kind, inputs, rng, check_gradients):
    layer = make(kind, dtype="float64")
    queries, keys, values, mask = inputs
    factors = rng.normal(size=(3, 2, 2))

    def function(queries, keys, values):
        return ops.sum(layer(queries, keys, values, mask=mask)[0] * factors)

    check_gradients(function, queries[:, :2], keys, values)


@pytest.mark.parametrize("kind", KINDS)
def test_layer_contract(kind, inputs, check_layer):
    queries, keys, values, mask = inputs
    layer = make(kind)
    check_layer(layer, queries, keys, values, mask)
    check_layer(layer, queries[:, 0], keys, values, mask)


def test_softmax_in_float32_under_half_precision():
    """Scores of 300 * 300 are infinite in float16 unless they are scaled before the product."""
    keys = np.zeros((1, 3, 4), "float32")
    keys[:, 0] = 150.0
    context, weights = DotAttention(scaled=True, dtype="mixed_float16")(np.full((1, 4), 150.0, "float32"), keys)
    np.testing.assert_array_equal(weights, [[1, 0, 0]])
    assert np.all(np.isfinite(context))


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda q, k: make_scored_attention("general"), "kind must be one of 'additive'.*got 'general'"),
        (lambda q, k: AdditiveAttention(0), "units must be at least 1, got 0"),
        (lambda q, k: DistanceKernelAttention(0.0), "bandwidth must be above 0, got 0.0"),
        (lambda q, k: DotAttention()(q), "exactly one of keys and projected_keys.*got neither"),
        (lambda q, k: DotAttention()(q, k, projected_keys=k), "exactly one of.*got both"),
        (lambda q, k: DotAttention()(q, projected_keys=k), "values must be given"),
        (lambda q, k: DotAttention()(q, k[..., :4]), r"same width.*query \(2, 3, 6\), keys \(2, 5, 4\)"),
        (lambda q, k: DotAttention()(q[..., None], k[..., None]), r"query must have rank 2 or 3.*\(2, 3, 6, 1\)"),
        (lambda q, k: DotAttention()(q[:, 0], k, mask=np.ones((2, 3, 5))), r"mask must have rank 2.*\(2, 3, 5\)"),
        (lambda q, k: BilinearAttention().project_keys(k), r"build\(query_shape, keys_shape\) must be called"),
        (lambda q, k: AdditiveAttention(3)(q, values=k, projected_keys=k), "keys must be given in the first call"),
    ],
)
def test_errors(call, message):
    with pytest.raises(ValueError, match=message):
        call(np.ones((2, 3, 6), "float32"), np.ones((2, 5, 6), "float32"))


@pytest.mark.parametrize("kind", KINDS)
def test_a_single_key_gives_no_warning(kind, inputs):
    queries, keys, values, _ = inputs
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        context, weights = make(kind)(queries, keys[:, :1], values[:, :1])
    np.testing.assert_array_equal(weights, np.ones((3, 5, 1)))
    np.testing.assert_allclose(context, np.repeat(values[:, :1], 5, axis=1), rtol=1e-6)
