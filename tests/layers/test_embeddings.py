import keras
import numpy as np
import pytest
from keras import ops

from layers.embeddings import SegmentEmbedding, TokenEmbedding, with_token_dropout


@pytest.fixture
def rng():
    return np.random.default_rng(0)


IDS = np.array([[3, 0, 3], [10, 1, 2]], "int32")


@pytest.mark.parametrize("scale", [False, True])
def test_lookup_and_projection(scale, rng):
    layer = TokenEmbedding(11, 6, scale=scale)
    layer.build((None, None))
    (table,) = layer.get_weights()
    assert table.shape == (11, 6)
    np.testing.assert_allclose(layer(IDS), table[IDS] * (np.sqrt(6) if scale else 1), rtol=1e-6)
    hidden = rng.normal(size=(2, 3, 6)).astype("float32")
    np.testing.assert_allclose(layer.project(hidden), hidden @ table.T, rtol=1e-5, atol=1e-6)


@pytest.mark.parametrize(("bias", "scale"), [(False, True), (True, 12.5)])
def test_factorised(bias, scale, rng):
    layer = TokenEmbedding(11, 6, factor_dim=2, factor_bias=bias, scale=scale)
    layer.build((None, None))
    layer.set_weights([rng.normal(size=weight.shape) for weight in layer.weights])
    table, factor, *rest = layer.get_weights()
    assert table.shape == (11, 2) and factor.shape == (2, 6) and len(rest) == bias
    assert layer.count_params() == 11 * 2 + 2 * 6 + 6 * bias
    vectors = (table[IDS] @ factor + (rest[0] if bias else 0)) * (np.sqrt(6) if scale is True else scale)
    np.testing.assert_allclose(layer(IDS), vectors, rtol=1e-5, atol=1e-5)
    hidden = rng.normal(size=(2, 3, 6)).astype("float32")
    np.testing.assert_allclose(layer.project(hidden), hidden @ factor.T @ table.T, rtol=1e-5, atol=1e-5)
    narrow = rng.normal(size=(2, 3, 2)).astype("float32")
    np.testing.assert_allclose(layer.score(narrow), narrow @ table.T, rtol=1e-5, atol=1e-5)


def test_three_way_sharing_is_one_variable(gradients):
    """The gradient of the shared table is the sum of those of a copy per use."""
    layer = TokenEmbedding(11, 6, scale=True)
    layer.build((None, None))
    (table,) = layer.get_weights()

    def loss(source_table, target_table, output_table):
        source = ops.sum(ops.take(source_table, IDS, axis=0), axis=1, keepdims=True) * np.sqrt(6)
        target = ops.take(target_table, IDS, axis=0) * np.sqrt(6)
        return ops.sum(ops.tanh((source + target) @ ops.transpose(output_table)))

    expected = sum(gradients(loss, table, table, table))

    def layer_loss(variables, *_):
        hidden = ops.sum(layer(IDS), axis=1, keepdims=True) + layer(IDS)
        return ops.sum(ops.tanh(layer.project(hidden)))

    if keras.backend.backend() == "jax":
        import jax

        def stateless(value):
            with keras.StatelessScope([(layer.weights[0], value)]):
                return layer_loss(value)

        actual = jax.grad(stateless)(ops.convert_to_tensor(table))
    else:
        tf = pytest.importorskip("tensorflow")
        with tf.GradientTape() as tape:
            value = layer_loss(layer.weights)
        actual = tf.convert_to_tensor(tape.gradient(value, layer.weights[0].value))
    assert len(layer.trainable_weights) == 1
    np.testing.assert_allclose(actual, expected, rtol=1e-4, atol=1e-4)


def test_scaled_vectors_start_with_unit_variance():
    keras.utils.set_random_seed(0)
    layer = TokenEmbedding(2000, 64, scale=True)
    vectors = ops.convert_to_numpy(layer(np.arange(2000)))
    assert abs(vectors.std() - 1) < 0.02  # 128,000 numbers
    hidden = np.random.default_rng(0).normal(size=(50, 64)).astype("float32")
    assert abs(ops.convert_to_numpy(layer.project(hidden)).std() - 1) < 0.05


def test_quantization_and_low_rank_adaptation(rng):
    layer = TokenEmbedding(50, 32)
    inputs = keras.Input((None,), dtype="int32")
    vectors = layer(inputs)
    model = keras.Model(inputs, vectors)
    expected = ops.convert_to_numpy(model(IDS))
    model.quantize("int8")
    error = np.abs(ops.convert_to_numpy(model(IDS)) - expected).max() / np.abs(expected).max()
    assert 0 < error < 0.01  # 8 bits
    layer = TokenEmbedding(50, 32)
    layer.build((None, None))
    layer.table.enable_lora(2)
    assert [tuple(weight.shape) for weight in layer.trainable_weights] == [(50, 2), (2, 32)]


@pytest.mark.parametrize("mode", ["int8", "int4"])
def test_quantized_factor_in_both_directions(mode, rng):
    layer = TokenEmbedding(50, 32, factor_dim=16, factor_bias=True)
    layer.build((None, None))
    layer.factor.set_weights([weight + 0.3 for weight in layer.factor.get_weights()])
    hidden = rng.normal(size=(2, 3, 32)).astype("float32")
    expected = ops.convert_to_numpy(layer.project(hidden))
    layer.factor.quantize(mode)
    error = np.abs(ops.convert_to_numpy(layer.project(hidden)) - expected).max() / np.abs(expected).max()
    assert 0 < error < {"int8": 0.02, "int4": 0.3}[mode]


@pytest.mark.parametrize("mode", ["int8", "int4"])
def test_gradient_of_logits_of_a_quantized_table(mode, rng, gradients):
    """The table that the gradient passes is the one of which the logits are computed."""
    layer = TokenEmbedding(50, 32)
    layer.build((None, None))
    layer.table.quantize(mode)
    table = ops.convert_to_numpy(layer.look_up(np.arange(50)))
    vectors = rng.normal(size=(2, 3, 32)).astype("float32")
    factors = rng.normal(size=(2, 3, 50)).astype("float32")
    (gradient,) = gradients(lambda vectors: ops.sum(factors * layer.score(vectors)), vectors)
    np.testing.assert_allclose(gradient, factors @ table, rtol=1e-4, atol=1e-5)


def test_token_dropout(rng):
    x = rng.normal(size=(2, 5, 3)).astype("float32")
    ids = np.array([[7, 9, 9, 4, 9], [1, 2, 3, 4, 5]], "int32")
    real = np.array([[True] * 4 + [False], [True] * 5])
    # two of four tokens are masked; none of five
    factors = 0.88 * np.array([[2, 0, 0, 2, 0], [1, 1, 1, 1, 1]])
    np.testing.assert_allclose(with_token_dropout(x, ids, 9, real), x * factors[..., None], rtol=1e-6)
    # packed texts have what each has alone: one of two tokens, one of one
    packed = with_token_dropout(x[:1, :3], ids[:1, :3], 9, sequence_ids=np.array([[0, 0, 1]]))
    np.testing.assert_allclose(packed, x[:1, :3] * (0.88 * np.array([2, 0, 0]))[:, None], rtol=1e-6)


def test_segment_embedding(rng):
    layer = SegmentEmbedding(2, 6)
    layer.build((None, None))
    (table,) = layer.get_weights()
    segments = np.array([[0, 0, 1], [0, 1, 1]], "int32")
    np.testing.assert_allclose(layer(segments), table[segments])


@pytest.mark.parametrize(
    "layer",
    [
        TokenEmbedding(11, 6, scale=True, name="plain"),
        TokenEmbedding(11, 6, factor_dim=3, factor_bias=True, kernel_initializer="normal", name="factorised"),
        SegmentEmbedding(11, 6, name="segment"),
    ],
    ids=lambda layer: layer.name,
)
def test_layer_contract(layer, check_layer):
    check_layer(layer, IDS)


@pytest.mark.parametrize("dtype", ["mixed_bfloat16", "mixed_float16"])
def test_projection_in_half_precision(dtype, rng):
    layer = TokenEmbedding(11, 6, factor_dim=3, dtype=dtype)
    layer.build((None, None))
    table, factor = layer.get_weights()
    hidden = rng.normal(size=(2, 3, 6)).astype("float32")
    logits = layer.project(ops.cast(hidden, layer.compute_dtype))
    assert keras.backend.standardize_dtype(logits.dtype) == layer.compute_dtype
    # three roundings of 2^-9 each on sums of numbers of size 1
    np.testing.assert_allclose(ops.cast(logits, "float32"), hidden @ factor.T @ table.T, atol=0.03)


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda: TokenEmbedding(0, 4), "vocabulary_size must be at least 1, got 0"),
        (lambda: TokenEmbedding(4, -1), "dim must be at least 1, got -1"),
        (lambda: TokenEmbedding(4, 4, factor_dim=0), "factor_dim must be at least 1, got 0"),
        (lambda: TokenEmbedding(4, 4, scale=0.0), "scale must be True, False or a number above 0, got 0.0"),
        (lambda: TokenEmbedding(4, 4, factor_bias=True), "factor_bias must be False without factor_dim, got True"),
        (lambda: TokenEmbedding(4, 6, factor_dim=3).project(np.ones((2, 5))), r"hidden must have 6.*\(2, 5\)"),
        (lambda: TokenEmbedding(4, 6, factor_dim=3).score(np.ones((2, 6))), r"vectors must have 3.*\(2, 6\)"),
        (lambda: SegmentEmbedding(0, 4), "num_segments must be at least 1, got 0"),
    ],
)
def test_errors(make, message):
    with pytest.raises(ValueError, match=message):
        make()
