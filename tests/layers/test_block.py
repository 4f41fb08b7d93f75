"""The Transformer block against its formulas, composed in NumPy from what its sublayers and norms give."""

import keras
import numpy as np
import pytest
from tensorflow_backend import require_tensorflow

from layers import (
    ConvolutionMixer,
    DynamicTanh,
    FeedForward,
    MaskedBatchNorm,
    MixtureOfExperts,
    MultiHeadAttention,
    PositionEncoding,
    RecurrentEncoder,
    RelativePositionBias,
    RMSNorm,
    RotaryEmbedding,
    TransformerBlock,
)

# float32 sums of a few dozen terms of size one, through three sublayers
TOLERANCE = {"atol": 5e-5, "rtol": 5e-5}
PLACEMENTS = ("post", "pre", "sandwich", "res_post", "parallel")


def normal(*shape, seed=0):
    return np.random.default_rng(seed).normal(size=shape).astype("float32")


def array(x):
    return keras.ops.convert_to_numpy(x)


def made(cross=False, attention=None, memory=8, **options):
    """A built block of width 8 whose weights are random."""
    block = TransformerBlock(
        MultiHeadAttention(2, 4, **{"causal": True, **(attention or {})}),
        FeedForward(16, activation="gelu"),
        MultiHeadAttention(2, 4) if cross else None,
        **options,
    )
    block.build((None, None, 8), (None, None, memory) if cross else None)
    generator = np.random.default_rng(5)
    for weight in block.weights:
        if "moving" not in weight.path and "seed" not in weight.path:
            weight.assign(weight + generator.normal(0, 0.3, weight.shape))
    return block


def layer_norm(norm, x):
    deviation = x - x.mean(-1, keepdims=True)
    variance = (deviation**2).mean(-1, keepdims=True)
    return deviation / np.sqrt(variance + 1e-6) * array(norm.gamma) + array(norm.beta)


def rms_norm(norm, x):
    return x / np.sqrt((x**2).mean(-1, keepdims=True) + 1e-6) * (1 + array(norm.weights[0]))


def formula(block, x, norm, memory=None, mask=None):
    sublayers = {"attention": lambda x: array(block.attention(x.astype("float32")))}
    if memory is not None:
        sublayers["cross_attention"] = lambda x: array(
            block.cross_attention(x.astype("float32"), memory, padding_mask=mask)
        )
    sublayers["feed_forward"] = lambda x: array(block.feed_forward(x.astype("float32")))
    if block.placement == "parallel":
        normed = norm(block.norms["attention"], x)
        return x + sum(function(normed) for function in sublayers.values())
    for name, function in sublayers.items():
        if block.placement == "res_post":
            x = x + norm(block.norms_after[name], function(x))
        elif block.placement == "post":
            x = norm(block.norms[name], block.residual_scale * x + function(x))
        elif block.placement == "pre":
            x = x + function(norm(block.norms[name], x))
        else:
            x = x + norm(block.norms_after[name], function(norm(block.norms[name], x)))
    return x


@pytest.mark.parametrize("placement", PLACEMENTS)
@pytest.mark.parametrize("cross", [False, True])
def test_placements(placement, cross):
    block, x = made(cross, placement=placement), normal(2, 5, 8)
    memory, mask = normal(2, 3, 8, seed=1), np.array([[True, True, False], [True, True, True]])
    if cross:
        output = block(x, memory, memory_padding_mask=mask)
        expected = formula(block, x, layer_norm, memory, mask)
    else:
        output, expected = block(x), formula(block, x, layer_norm)
    np.testing.assert_allclose(array(output), expected, **TOLERANCE)
    norms = {"post": 1, "pre": 1, "sandwich": 2, "res_post": 1}.get(placement, 0) * (3 if cross else 2) or 1
    assert len({weight.path for weight in block.weights if "norm" in weight.path}) == 2 * norms


@pytest.mark.parametrize("placement", ["pre", "sandwich"])
def test_norm_with_options(placement):
    block, x = made(placement=placement, norm=RMSNorm(1e-6, unit_offset=True)), normal(2, 5, 8)
    np.testing.assert_allclose(array(block(x)), formula(block, x, rms_norm), **TOLERANCE)


def test_without_a_norm_before_the_attention():
    block, x = made(placement="pre", attention_norm=False), normal(2, 5, 8)
    normed = x + array(block.attention(x))
    feed_forward = layer_norm(block.norms["feed_forward"], normed).astype("float32")
    np.testing.assert_allclose(array(block(x)), normed + array(block.feed_forward(feed_forward)), **TOLERANCE)
    assert {weight.path.split("/")[-2] for weight in block.weights if "norm" in weight.path} == {"feed_forward_norm"}
    assert TransformerBlock.from_config(block.get_config()).get_config() == block.get_config()


def test_a_norm_is_copied_or_made():
    norm = DynamicTanh(0.3)
    for given in (norm, lambda: norm, DynamicTanh):
        block = made(norm=given, dtype="mixed_bfloat16")
        copies = list(block.norms.values())
        assert [type(copy) for copy in copies] == [DynamicTanh] * 2 and norm not in copies
        assert [copy.name for copy in copies] == ["attention_norm", "feed_forward_norm"]
        assert {copy.compute_dtype for copy in copies} == {"bfloat16"}
        assert copies[0].initial_alpha == (0.5 if given is DynamicTanh else 0.3)
        assert TransformerBlock.from_config(block.get_config()).get_config() == block.get_config()
    keras_norm = made(norm=keras.layers.LayerNormalization(epsilon=1e-6))
    x = normal(2, 5, 8)
    np.testing.assert_allclose(array(keras_norm(x)), formula(keras_norm, x, layer_norm), **TOLERANCE)


def test_what_counts_padding():
    assert not made().counts_padding and made(norm=MaskedBatchNorm()).counts_padding
    assert TransformerBlock(MultiHeadAttention(2, 4), MixtureOfExperts(2, 8)).counts_padding


def test_parallel_sublayers_with_a_norm_each():
    block, x = made(placement="parallel", shared_norm=False), normal(2, 5, 8)
    attention, feed_forward = (layer_norm(norm, x).astype("float32") for norm in block.norms.values())
    expected = x + array(block.attention(attention)) + array(block.feed_forward(feed_forward))
    np.testing.assert_allclose(array(block(x)), expected, **TOLERANCE)
    assert list(block.norms) == ["attention", "feed_forward"]


@pytest.mark.parametrize("placement", ["pre", "post"])
def test_layer_scale(placement):
    block, x = made(placement=placement, layer_scale=0.1), normal(2, 5, 8)
    fresh = TransformerBlock(MultiHeadAttention(2, 4), FeedForward(16), layer_scale=0.1)
    fresh.build((None, None, 8))
    assert all(np.all(array(scale) == np.float32(0.1)) for scale in fresh.scales.values())
    expected = x
    for name in ("attention", "feed_forward"):
        sublayer, norm, scale = getattr(block, name), block.norms[name], array(block.scales[name])
        if placement == "pre":
            expected = expected + scale * array(sublayer(layer_norm(norm, expected).astype("float32")))
        else:
            expected = layer_norm(norm, expected + scale * array(sublayer(expected.astype("float32"))))
    np.testing.assert_allclose(array(block(x)), expected, **TOLERANCE)
    assert len(block.trainable_weights) == len(made(placement=placement).trainable_weights) + 2


@pytest.mark.parametrize("placement", PLACEMENTS)
def test_branch_scale(placement):
    """A factor on the output of each sublayer is that factor on what the sublayer, or the norm after it, ends with."""
    block, plain = made(placement=placement, branch_scale=0.3), made(placement=placement)
    plain.set_weights(block.get_weights())
    for name in ("attention", "feed_forward"):
        if name in block.norms_after:
            last = [plain.norms_after[name].gamma, plain.norms_after[name].beta]
        else:
            layer = plain.attention.output_projection if name == "attention" else plain.feed_forward.down
            last = [layer.kernel, layer.bias]
        for weight in last:
            weight.assign(0.3 * weight)
    x = normal(2, 5, 8)
    np.testing.assert_allclose(array(block(x)), array(plain(x)), **TOLERANCE)


def test_drop_path_leaves_branches_out_row_by_row():
    block, x = made(placement="pre", drop_path=0.25), normal(400, 3, 8)
    np.testing.assert_allclose(array(block(x)), formula(block, x, layer_norm), **TOLERANCE)

    def branches(x):
        x = x + kept * array(block.attention(layer_norm(block.norms["attention"], x).astype("float32")))
        after = array(block.feed_forward(layer_norm(block.norms["feed_forward"], x).astype("float32")))
        return x, x + kept * after

    kept = 1 / 0.75
    output, skipped = array(block(x, training=True)), 0
    attended, both = branches(x)
    neither, without_attention = (
        x,
        x + kept * array(block.feed_forward(layer_norm(block.norms["feed_forward"], x).astype("float32"))),
    )
    for row, choices in enumerate(zip(neither, attended, without_attention, both, strict=True)):
        fits = [np.allclose(output[row], choice, atol=1e-3) for choice in choices]
        assert sum(fits) == 1
        skipped += fits[0] * 2 + fits[1] + fits[2]
    assert 150 < skipped < 250  # of 800 branches, 200 with a deviation of 12


@pytest.mark.parametrize("graph", ["eager", *(pytest.param(kind, marks=pytest.mark.slow) for kind in ("graph", "xla"))])
def test_rematerialization_changes_nothing(graph):
    """Outputs, gradients, losses and what layers write, with dropout in the second computation as in the first."""
    tf = require_tensorflow()

    def block(remat):
        return TransformerBlock(
            MultiHeadAttention(2, 4, dropout=0.3),
            MixtureOfExperts(3, 8, dropout=0.3, bias_update_rate=0.1, capacity_factor=1.0),
            MultiHeadAttention(2, 4),
            norm=MaskedBatchNorm(),
            placement="pre",
            dropout=0.3,
            drop_path=0.2,
            remat=remat,
        )

    blocks, x, memory = [block(False), block(True)], normal(3, 5, 8), normal(3, 4, 8, seed=1)
    mask, memory_mask = np.arange(5) < np.array([[5], [3], [4]]), np.arange(4) < np.array([[4], [2], [1]])
    results = []
    for block in blocks:
        block.build((None, None, 8), (None, None, 8))
        for variable, source in zip(block.variables, blocks[0].variables, strict=True):
            variable.assign(source)
    for block in blocks:

        def step(x, memory, block=block):
            with tf.GradientTape() as tape:
                tape.watch([x, memory])
                output = block(x, memory, padding_mask=mask, memory_padding_mask=memory_mask, training=True)
                loss = tf.reduce_sum(output**2) + sum(block.losses)
            assert len(block.losses) == 1
            return [loss, *tape.gradient(loss, [x, memory, *[weight.value for weight in block.trainable_weights]])]

        if graph != "eager":
            step = tf.function(step, jit_compile=graph == "xla")
        results.append([array(value) for value in step(tf.constant(x), tf.constant(memory))])
        results[-1] += [array(variable) for variable in block.variables]
    for value, expected in zip(results[1], results[0], strict=True):
        np.testing.assert_allclose(value, expected, rtol=1e-4, atol=1e-4)


@keras.saving.register_keras_serializable("test_block")
class Recalled(MultiHeadAttention):
    """A mixer with an argument of its own, a floating-point tensor."""

    def call(self, inputs, *, recalled=None, **arguments):
        return super().call(inputs, **arguments) + recalled


@pytest.mark.parametrize("placement", ["post", "pre", "sandwich", "res_post", "parallel"])
def test_rematerialization_keeps_gradients_of_what_was_computed_before(placement):
    """Those of a projected memory, and with it of the projections; of tensors that are for a sublayer; of positions."""
    tf = require_tensorflow()
    position = {"position": RelativePositionBias(2, num_buckets=4, max_distance=6)}
    blocks = [
        TransformerBlock(
            Recalled(2, 4, **position), FeedForward(8), MultiHeadAttention(2, 4), placement=placement, remat=remat
        )
        for remat in (False, True)
    ]
    x, memory, recalled = (tf.constant(normal(2, 3, 8, seed=seed)) for seed in range(3))
    results = []
    for block in blocks:
        block.build((None, None, 8), (None, None, 8))
        for variable, source in zip(block.variables, blocks[0].variables, strict=True):
            variable.assign(source)
        with tf.GradientTape() as tape:
            tape.watch([x, memory, recalled])
            projected = block.cross_attention.project_memory(memory)
            loss = tf.reduce_sum(block(x, projected_memory=projected, recalled=recalled, training=True) ** 3)
        found = tape.gradient(loss, [x, memory, recalled, *[weight.value for weight in block.trainable_weights]])
        assert all(gradient is not None for gradient in found)
        results.append([array(tf.convert_to_tensor(gradient)) for gradient in found])
    for value, expected in zip(*results, strict=True):
        np.testing.assert_allclose(value, expected, rtol=1e-4, atol=1e-5)


class Shifted(PositionEncoding):
    """An encoding of one's own whose preparation, which is made before the layer runs, reads a weight."""

    def build(self, input_shape=None):
        self.shift = self.add_weight(shape=(8, 4), initializer="ones", name="shift")
        super().build(input_shape)

    def prepare(self, positions, sequence_length=None):
        return keras.ops.expand_dims(keras.ops.take(self.shift, positions, axis=0), -2)

    def on_queries(self, query, prepared):
        return query + prepared


def test_rematerialization_keeps_gradients_of_prepared_positions():
    tf = require_tensorflow()
    gradients, x = [], tf.constant(normal(2, 3, 8))
    blocks = [
        TransformerBlock(MultiHeadAttention(2, 4, position=Shifted()), FeedForward(8), remat=remat)
        for remat in (False, True)
    ]
    for block in blocks:
        block.build((None, None, 8))
        for variable, source in zip(block.variables, blocks[0].variables, strict=True):
            variable.assign(source)
        with tf.GradientTape() as tape:
            loss = tf.reduce_sum(block(x, training=True) ** 3)
        gradients.append(array(tape.gradient(loss, block.attention.position.shift.value)))
    assert np.abs(gradients[0]).max() > 1e-3
    np.testing.assert_allclose(gradients[1], gradients[0], rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize("policy", ["mixed_bfloat16", "mixed_float16"])
def test_rematerialization_in_half_precision(policy):
    """Weights are read in their own type: gradients are those without, and what is written is not rounded."""
    tf = require_tensorflow()
    options = {"norm": keras.layers.LayerNormalization(), "placement": "pre", "dtype": policy}
    experts = [MixtureOfExperts(3, 8, bias_update_rate=0.001, scoring="sigmoid", dtype=policy) for _ in range(2)]
    blocks = [
        TransformerBlock(MultiHeadAttention(2, 4, dtype=policy), experts[remat], remat=bool(remat), **options)
        for remat in range(2)
    ]
    results, x = [], tf.constant(normal(3, 5, 8), policy.removeprefix("mixed_"))
    for block in blocks:
        block.build((None, None, 8))
        for variable, source in zip(block.variables, blocks[0].variables, strict=True):
            variable.assign(source)
    for block in blocks:
        with tf.GradientTape() as tape:
            loss = tf.reduce_sum(tf.cast(block(x, training=True), tf.float32) ** 2)
        weights = [weight.value for weight in block.trainable_weights]
        results.append([array(value) for value in [loss, *tape.gradient(loss, weights)]])
        results[-1] += [array(variable) for variable in block.variables]
    for value, expected in zip(results[1], results[0], strict=True):
        assert value.dtype == np.float32
        np.testing.assert_allclose(value, expected, rtol=1e-6, atol=1e-7)


def test_rematerialization_in_fit():
    """Losses and weights after some steps, with dropout, are those of a model that stores its activations."""
    histories, models = [], []
    keras.utils.set_random_seed(1)
    for remat in (False, True):
        block = TransformerBlock(MultiHeadAttention(2, 4, dropout=0.2), FeedForward(16), remat=remat, dropout=0.2)
        models.append(keras.Sequential([keras.Input((None, 8)), block, keras.layers.Dense(1)]))
        for variable, source in zip(models[-1].variables, models[0].variables, strict=True):
            variable.assign(source)
    for model in models:
        model.compile(keras.optimizers.Adam(0.01), "mse", jit_compile=False)
        history = model.fit(normal(8, 5, 8), np.ones((8, 5, 1)), epochs=3, batch_size=4, shuffle=False, verbose=0)
        histories.append(history.history["loss"])
    assert histories[0][-1] < histories[0][0]
    np.testing.assert_allclose(histories[1], histories[0], rtol=1e-5)
    for variable, expected in zip(models[1].variables, models[0].variables, strict=True):
        np.testing.assert_allclose(array(variable), array(expected), rtol=1e-4, atol=1e-5)


def masked_block(attention=None, **options):
    block = TransformerBlock(attention or MultiHeadAttention(2, 4), FeedForward(16), norm=MaskedBatchNorm(), **options)
    block.build((None, None, 8), (None, None, 8))
    return block


@pytest.mark.parametrize("mixer", [None, ConvolutionMixer(3), RecurrentEncoder()], ids=["attention", "conv", "gru"])
def test_masks_of_keras_are_padding_masks(mixer):
    """`Masking` says which positions are real; what stands in the others reaches nothing."""
    block = masked_block(mixer)
    real = np.arange(6) < np.array([[6], [3]])
    x = np.where(real[..., None], normal(2, 6, 8), np.float32(0))
    expected = array(block(x, padding_mask=real, training=True))
    inputs = keras.Input((None, 8))
    model = keras.Model(inputs, block(keras.layers.Masking()(inputs)))
    np.testing.assert_allclose(array(model(x, training=True))[real], expected[real], **TOLERANCE)
    output = block(keras.layers.Masking()(keras.ops.convert_to_tensor(x)), training=True)
    np.testing.assert_allclose(array(output)[real], expected[real], **TOLERANCE)
    np.testing.assert_array_equal(array(output._keras_mask), real)
    alone = array(block(x[1:, :3]))
    np.testing.assert_allclose(array(model(x))[1:, :3], alone, **TOLERANCE)


def test_masks_of_keras_on_the_memory():
    block = masked_block(cross_attention=MultiHeadAttention(2, 4))
    x, memory, real = normal(2, 5, 8), normal(2, 6, 8, seed=1), np.arange(6) < np.array([[6], [3]])
    memory = np.where(real[..., None], memory, np.float32(0))
    masked = keras.layers.Masking()(keras.ops.convert_to_tensor(memory))
    np.testing.assert_allclose(array(block(x, masked))[1:], array(block(x[1:], memory[1:, :3])), **TOLERANCE)


@pytest.mark.parametrize(
    ("options", "name"),
    [
        ({"attention_mask": np.ones((5, 5), bool)}, "attention_mask"),
        ({"prefix_length": np.array([2, 0])}, "prefix_length"),
        ({"segment_ids": np.zeros((2, 5), "int32")}, "segment_ids"),
        ({"positions": np.arange(5)}, "positions"),
        ({"return_weights": True}, "return_weights"),
    ],
)
def test_a_mixer_refuses_what_it_does_not_take(options, name):
    block = TransformerBlock(ConvolutionMixer(3), FeedForward(16))
    with pytest.raises(ValueError, match=f"{name} must be None with attention=<ConvolutionMixer"):
        block(normal(2, 5, 8), **options)
    made()(normal(2, 5, 8), memory_padding_mask=None)
    with pytest.raises(ValueError, match="memory_segment_ids must be None without cross_attention"):
        made()(normal(2, 5, 8), memory_segment_ids=np.zeros((2, 5), "int32"))


def test_deep_norm_scales_the_residual():
    block, x = made(residual_scale=2.5), normal(2, 5, 8)
    np.testing.assert_allclose(array(block(x)), formula(block, x, layer_norm), **TOLERANCE)
    assert np.abs(array(block(x)) - array(made()(x))).max() > 0.01


@pytest.mark.parametrize("placement", PLACEMENTS)
def test_cached_is_the_full_pass(placement):
    position = {"position": RotaryEmbedding(4)}
    block, x, memory = made(True, position, placement=placement), normal(2, 6, 8), normal(2, 3, 8, seed=1)
    cache, index, outputs = block.attention.make_cache(2, 8), 0, []
    projected = block.cross_attention.project_memory(keras.ops.convert_to_tensor(memory))
    for count in (3, 1, 1, 1):
        output, cache = block(x[:, index : index + count], projected_memory=projected, cache=cache, cache_index=index)
        outputs.append(array(output))
        index += count
    np.testing.assert_allclose(np.concatenate(outputs, axis=1), array(block(x, memory)), **TOLERANCE)


def test_cached_cross_attention_with_positions_is_the_full_pass():
    def block_with_positions():
        block = TransformerBlock(
            MultiHeadAttention(2, 4, causal=True),
            FeedForward(16),
            MultiHeadAttention(2, 4, position=RotaryEmbedding(4)),
        )
        block.build((None, None, 8), (None, None, 8))
        return block

    block, x, memory = block_with_positions(), normal(2, 5, 8), normal(2, 3, 8, seed=1)
    cache, outputs = block.attention.make_cache(2, 5), []
    for index in range(5):
        output, cache = block(x[:, index : index + 1], memory, cache=cache, cache_index=index)
        outputs.append(array(output))
    np.testing.assert_allclose(np.concatenate(outputs, axis=1), array(block(x, memory)), **TOLERANCE)
    later = array(block(x, memory, positions=np.arange(5) + 7))
    assert np.abs(later - array(block(x, memory))).max() > 1e-3  # the memory stays where it is


def test_arguments_of_the_attention_reach_it():
    block, x = made(), normal(2, 5, 8)
    attention = block.attention
    options = {
        "padding_mask": np.array([[True] * 4 + [False], [True] * 5]),
        "attention_mask": np.random.default_rng(0).random((2, 5, 5)) < 0.7,
        "segment_ids": np.array([[0, 0, 1, 1, 1], [0, 1, 1, 1, 1]]),
        "prefix_length": np.array([2, 0]),
    }
    expected = layer_norm(block.norms["attention"], x + array(attention(x, **options)))
    feed_forward = array(block.feed_forward(expected.astype("float32")))
    expected = layer_norm(block.norms["feed_forward"], expected + feed_forward)
    np.testing.assert_allclose(array(block(x, **options)), expected, **TOLERANCE)
    assert all(
        np.abs(array(block(x, **{name: option})) - array(block(x))).max() > 1e-3 for name, option in options.items()
    )


def test_what_is_returned():
    plain, cross = made(), made(True)
    x, memory, cache = normal(2, 5, 8), normal(2, 3, 8), plain.attention.make_cache(2, 7)
    assert tuple(plain(x).shape) == plain.compute_output_shape(x.shape) == (2, 5, 8)
    output, written = plain(x, cache=cache, cache_index=0)
    assert tuple(output.shape) == (2, 5, 8) and tuple(written["key"].shape) == (2, 2, 7, 4)
    output, weights = cross(x, memory, return_weights=True)
    assert {name: tuple(value.shape) for name, value in weights.items()} == {
        "attention": (2, 2, 5, 5),
        "cross_attention": (2, 2, 5, 3),
    }
    output, written, weights = cross(x, memory, cache=cache, cache_index=0, return_weights=True)
    assert tuple(weights["attention"].shape) == (2, 2, 5, 7) and set(written) == {"key", "value"}
    _, weights = plain(x, return_weights=True)
    assert list(weights) == ["attention"]


def test_parts_that_are_built_keep_their_weights():
    attention, feed_forward, x = MultiHeadAttention(2, 4), FeedForward(16), normal(2, 5, 8)
    attention(x), feed_forward(x)
    weights = [array(weight) for weight in (*attention.weights, *feed_forward.weights)]
    TransformerBlock(attention, feed_forward)(x)
    for weight, before in zip((*attention.weights, *feed_forward.weights), weights, strict=True):
        np.testing.assert_array_equal(array(weight), before)


def test_dropout_only_at_training():
    block, x = made(True, dropout=0.4), normal(2, 5, 8)
    memory = normal(2, 3, 8)
    expected = formula(block, x, layer_norm, memory)
    np.testing.assert_allclose(array(block(x, memory, training=False)), expected, **TOLERANCE)
    outputs = [array(block(x, memory, training=True)) for _ in range(2)]
    assert all(np.abs(output - expected).max() > 0.1 for output in outputs)
    assert np.abs(outputs[0] - outputs[1]).max() > 0.1
    assert set(block.dropouts) == {"attention", "cross_attention", "feed_forward"}


def test_batch_norm_ignores_padding():
    x, mask = normal(2, 4, 8), np.array([[True, True, False, False], [True] * 4])
    block = made(placement="pre", norm=MaskedBatchNorm(1e-6))
    outputs = [
        array(block(np.where(mask[..., None], x, garbage), padding_mask=mask, training=True))[mask]
        for garbage in (np.float32(0), np.float32(100))
    ]
    np.testing.assert_allclose(*outputs, **TOLERANCE)
    # two steps with a momentum of 0.99
    moving_mean = (0.01 + 0.99 * 0.01) * x[mask].mean(0)
    np.testing.assert_allclose(array(block.norms["attention"].moving_mean), moving_mean, rtol=1e-4, atol=1e-6)


@pytest.mark.parametrize("placement", PLACEMENTS)
def test_functional_model_and_keras_file(tmp_path, placement):
    attention = {"position": RotaryEmbedding(4), "num_key_value_heads": 1}
    block = made(True, attention, memory=6, placement=placement, dropout=0.1, name="block")
    inputs, memory = keras.Input((None, 8)), keras.Input((None, 6))
    output, weights = block(inputs, memory, return_weights=True)
    model = keras.Model([inputs, memory], [output, weights["cross_attention"]])
    model.save(tmp_path / "model.keras")
    loaded = keras.models.load_model(tmp_path / "model.keras")
    arrays = [normal(2, 5, 8), normal(2, 3, 6)]
    for value, expected in zip(loaded(arrays), model(arrays), strict=True):
        np.testing.assert_allclose(array(value), array(expected), rtol=1e-6, atol=1e-6)
    # without weights the attention may take another path, with roundings of its own
    np.testing.assert_allclose(array(loaded(arrays)[0]), array(block(*arrays)), **TOLERANCE)
    again = TransformerBlock.from_config(block.get_config())
    assert again.get_config() == block.get_config()
    again(*arrays)
    again.set_weights(block.get_weights())
    np.testing.assert_allclose(array(again(*arrays)), array(block(*arrays)), rtol=1e-6, atol=1e-6)


@pytest.mark.parametrize("dtype", ["bfloat16", "float16"])
def test_half_precision(dtype):
    def block(policy):
        options = {"dtype": policy}
        return TransformerBlock(
            MultiHeadAttention(2, 4, **options), FeedForward(16, **options), placement="pre", **options
        )

    single, half, x = block("float32"), block(f"mixed_{dtype}"), normal(2, 5, 8)
    single(x), half(x)
    half.set_weights(single.get_weights())
    assert keras.backend.standardize_dtype(half(x).dtype) == dtype
    # bfloat16 keeps 8 significant bits: 0.4 % per rounded operation of values up to 4, a handful of which add up
    np.testing.assert_allclose(array(keras.ops.cast(half(x), "float32")), array(single(x)), atol=0.05)


def test_weights_of_positions_in_half_precision():
    """A hook is no call of a layer: the weights that it reads are cast by the block, also within another layer."""

    class Scaled(PositionEncoding):
        def build(self, *shapes):
            self.scale = self.add_weight(shape=(4,), initializer="ones", name="scale")

        def on_queries(self, query, prepared):
            return query * self.scale

    class Outer(keras.layers.Layer):
        def __init__(self, block, **options):
            super().__init__(**options)
            self.block = block

        def call(self, inputs):
            return self.block(inputs)

    options = {"dtype": "mixed_bfloat16"}
    attention = MultiHeadAttention(2, 4, position=Scaled(**options), **options)
    block, x = TransformerBlock(attention, FeedForward(16, **options), **options), normal(2, 5, 8)
    for layer in (block, Outer(block, **options)):
        assert keras.backend.standardize_dtype(layer(x).dtype) == "bfloat16"


def test_xla(with_xla):
    block, x = made(placement="sandwich"), normal(2, 5, 8)
    np.testing.assert_allclose(with_xla(lambda x: block(x))(x), array(block(x)), **TOLERANCE)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"placement": "middle"}, "placement must be one of .*'parallel'.* got 'middle'"),
        ({"placement": "pre", "residual_scale": 2.0}, "residual_scale must be 1.0 with placement='pre', got 2.0"),
        ({"attention_norm": False}, "attention_norm must be True with placement='post', got False"),
        ({"residual_scale": 0.0}, "residual_scale must be above 0, got 0.0"),
        ({"dropout": 1.0}, "dropout must be at least 0 and below 1, got 1.0"),
        ({"norm": "median"}, "norm must be a norm layer or a callable that makes one, got 'median'"),
        ({"drop_path": 1.0}, "drop_path must be at least 0 and below 1, got 1.0"),
        ({"shared_norm": False}, "shared_norm must be True with placement='post', got False"),
    ],
)
def test_wrong_arguments(options, message):
    with pytest.raises(ValueError, match=message):
        TransformerBlock(MultiHeadAttention(2, 4), FeedForward(16), **options)


def test_memory_exactly_with_cross_attention():
    x, memory = normal(2, 5, 8), normal(2, 3, 8)
    with pytest.raises(ValueError, match="got memory=None and projected_memory=None with cross_attention=<Multi"):
        made(True)(x)
    with pytest.raises(ValueError, match="projected_memory=None with cross_attention=None"):
        made()(x, memory)


def test_mixers_and_experts_take_the_places_of_attention_and_feed_forward():
    generator = np.random.default_rng(3)
    x = generator.normal(size=(2, 6, 8)).astype("float32")
    mask = np.array([[True] * 6, [True] * 4 + [False] * 2])
    mixer, experts = ConvolutionMixer(3), MixtureOfExperts(4, 16)
    block = TransformerBlock(mixer, experts, placement="pre")
    outputs = block(x, padding_mask=mask)
    mixed = x + np.asarray(mixer(block.norms["attention"](x), mask=mask))
    expected = mixed + np.asarray(experts(block.norms["feed_forward"](mixed), mask=mask))
    np.testing.assert_allclose(outputs, expected, atol=1e-5)
    alone = np.asarray(block(x[1:, :4], padding_mask=mask[1:, :4]))
    np.testing.assert_allclose(np.asarray(outputs)[1:, :4], alone, atol=1e-5)
    with pytest.raises(ValueError, match="cache"):
        block(x, cache={}, cache_index=0)


@pytest.mark.parametrize("placement", ["pre", "post"])
def test_a_block_without_a_feed_forward_network(placement):
    x = np.random.default_rng(3).normal(size=(2, 6, 8)).astype("float32")
    block = TransformerBlock(ConvolutionMixer(3), None, placement=placement, norm=RMSNorm(1e-3))
    outputs, norm = block(x), block.norms["attention"]
    expected = x + np.asarray(block.attention(norm(x))) if placement == "pre" else norm(x + block.attention(x))
    np.testing.assert_allclose(outputs, expected, atol=1e-5)
    assert list(block.norms) == ["attention"]
    again = TransformerBlock.from_config(block.get_config())
    assert again.feed_forward is None


@pytest.mark.parametrize("by", ["positions", "padding_mask"])
@pytest.mark.parametrize("training", [False, True])
def test_experts_of_a_cached_block_do_not_see_left_padding(by, training):
    """Alone and in a row padded on the left; in training the experts have a capacity that padding could take."""
    x = normal(1, 4, 8)
    experts = MixtureOfExperts(4, 16, experts_per_token=1, capacity_factor=1.0, load_balance_weight=0.0)
    block = TransformerBlock(MultiHeadAttention(2, 4, causal=True), experts)
    block.build((None, None, 8))
    experts.router.kernel.assign(5 * normal(8, 4, seed=1))
    padded = np.concatenate([np.repeat(x[:, :1], 20, axis=1), x], axis=1)
    options = {"positions": np.arange(-20, 4)[None]}
    if by == "padding_mask":
        options = {"padding_mask": np.arange(30)[None] >= 20}
    capacity = experts.capacity_factor
    experts.capacity_factor = None  # alone, nothing is dropped
    alone, _ = block(x, cache=block.attention.make_cache(1, 10), cache_index=0)
    experts.capacity_factor = capacity
    output, cache = block(padded, cache=block.attention.make_cache(1, 30), cache_index=0, training=training, **options)
    np.testing.assert_allclose(array(output)[:, 20:], array(alone), **TOLERANCE)
    step = {"positions": np.array([[4]])} if by == "positions" else options
    if by == "padding_mask":
        _, alone_cache = block(x, cache=block.attention.make_cache(1, 10), cache_index=0)
        alone, _ = block(x[:, :1], cache=alone_cache, cache_index=4)
        output, _ = block(x[:, :1], cache=cache, cache_index=24, **step)
        np.testing.assert_allclose(array(output), array(alone), **TOLERANCE)


def test_facts_beside_a_view_are_refused():
    """A view says them: beside it they would not be read."""
    block, x = TransformerBlock(MultiHeadAttention(2, 4), FeedForward(8)), normal(2, 3, 8)
    expected = block(x)
    view = block.look(x)
    np.testing.assert_array_equal(array(block(x, view=view)), array(expected))
    with pytest.raises(ValueError, match=r"padding_mask must be None with a view.*shape \(2, 3\)"):
        block(x, view=view, padding_mask=np.ones((2, 3), "bool"))
    with pytest.raises(ValueError, match=r"segment_ids must be None with a view"):
        block(x, view=view, segment_ids=np.zeros((2, 3), "int32"))
    attention = block.attention
    with pytest.raises(ValueError, match=r"lengths must be None with a view.*shape \(2,\)"):
        attention(x, view=attention.look(x), lengths=np.array([2, 3]))
