"""The Transformer backbone: the whole original model in NumPy, and what every configuration owes."""

import dataclasses

import keras
import numpy as np
import pytest
from keras import ops

from zoo import (
    AttentionConfig,
    Backbone,
    EmbeddingConfig,
    FeedForwardConfig,
    NormConfig,
    PositionConfig,
    TransformerConfig,
)

# float32 through two layers of three sublayers each
TOLERANCE = {"atol": 5e-5, "rtol": 5e-5}
VOCABULARY = 30
POSITIONS = ("none", "sinusoidal", "learned", "rotary", "relative_bias", "alibi", "shaw")


def config(architecture, position="sinusoidal", **options):
    return TransformerConfig(
        architecture,
        vocabulary_size=VOCABULARY,
        **{
            "max_length": 24,
            "hidden_dim": 16,
            "num_layers": 2,
            "attention": AttentionConfig(num_heads=4, num_key_value_heads=2),
            "position": position if isinstance(position, PositionConfig) else PositionConfig(position),
            "norm": NormConfig(placement="pre"),
            "feed_forward": FeedForwardConfig(24),
            "embedding": EmbeddingConfig(scale=True),
            **options,
        },
    )


def made(*arguments, **options):
    """A backbone with random weights, biases and norms included."""
    backbone = Backbone.from_config(config(*arguments, **options))
    generator = np.random.default_rng(1)
    for weight in backbone.weights:
        if "moving" not in weight.path:
            weight.assign(weight + generator.normal(0, 0.2, weight.shape))
    return backbone


def array(x):
    return ops.convert_to_numpy(x)


def token_ids(rows, length, seed=0):
    return np.random.default_rng(seed).integers(1, VOCABULARY, (rows, length)).astype("int32")


def below(lengths, longest):
    return np.arange(longest) < np.array(lengths)[:, None]


def pair(source_lengths, target_lengths):
    """Inputs of an encoder-decoder, padded with garbage."""
    source_mask, target_mask = (below(lengths, max(lengths)) for lengths in (source_lengths, target_lengths))
    return {
        "encoder_token_ids": token_ids(*source_mask.shape),
        "encoder_padding_mask": source_mask,
        "decoder_token_ids": token_ids(*target_mask.shape, seed=1),
        "decoder_padding_mask": target_mask,
    }


# The original model


def normalize(norm, x):
    mean, variance = x.mean(-1, keepdims=True), x.var(-1, keepdims=True)
    return (x - mean) / np.sqrt(variance + 1e-6) * array(norm.gamma) + array(norm.beta)


def dense(layer, x):
    return x @ array(layer.kernel).astype("float64") + array(layer.bias)


def attend(layer, x, memory, visible, num_heads):
    """Vaswani et al. 2017, section 3.2; `visible` is `(batch, queries, keys)`."""

    def heads(projection, x):
        projected = dense(projection, x)
        return projected.reshape(*x.shape[:2], num_heads, -1).transpose(0, 2, 1, 3)

    query, key = heads(layer.query_projection, x), heads(layer.key_projection, memory)
    scores = query @ key.transpose(0, 1, 3, 2) / np.sqrt(query.shape[-1])
    scores = np.where(visible[:, None], scores, -np.inf)
    weights = np.exp(scores - scores.max(-1, keepdims=True))
    weights = weights / weights.sum(-1, keepdims=True)
    context = (weights @ heads(layer.value_projection, memory)).transpose(0, 2, 1, 3)
    return dense(layer.output_projection, context.reshape(*x.shape[:2], -1))


def original_transformer(backbone, inputs, num_heads):
    """Logits of sections 3.1 to 3.5: post-norm, ReLU, sinusoids, embeddings shared three ways and scaled by sqrt(d)."""
    table = array(backbone.token_embedding.table.embeddings).astype("float64")
    width = table.shape[1]

    def embed(ids):
        x = table[ids] * np.sqrt(width)
        for position in range(ids.shape[1]):
            for i in range(width // 2):
                angle = position / 10000 ** (2 * i / width)
                x[:, position, 2 * i] += np.sin(angle)
                x[:, position, 2 * i + 1] += np.cos(angle)
        return x

    def feed_forward(layer, x):
        return dense(layer.down, np.maximum(dense(layer.up, x), 0))

    seen = np.broadcast_to(inputs["encoder_padding_mask"][:, None], (2, 1, inputs["encoder_padding_mask"].shape[1]))
    memory = embed(inputs["encoder_token_ids"])
    for block in backbone.encoder.blocks:
        memory = normalize(block.norms["attention"], memory + attend(block.attention, memory, memory, seen, num_heads))
        memory = normalize(block.norms["feed_forward"], memory + feed_forward(block.feed_forward, memory))
    x = embed(inputs["decoder_token_ids"])
    causal = np.tril(np.ones((1, x.shape[1], x.shape[1]), "bool"))
    for block in backbone.decoder.blocks:
        x = normalize(block.norms["attention"], x + attend(block.attention, x, x, causal, num_heads))
        cross = attend(block.cross_attention, x, memory, seen, num_heads)
        x = normalize(block.norms["cross_attention"], x + cross)
        x = normalize(block.norms["feed_forward"], x + feed_forward(block.feed_forward, x))
    return memory, x @ table.T


def test_original_transformer():
    backbone = made(
        "encoder_decoder", num_decoder_layers=3, norm=NormConfig(), attention=AttentionConfig(num_heads=4), dropout=0.3
    )
    inputs = pair([5, 7], [6, 4])
    memory, logits = original_transformer(backbone, inputs, 4)
    outputs = backbone(inputs)
    mask = inputs["encoder_padding_mask"]
    np.testing.assert_allclose(array(outputs["encoder_sequence_output"])[mask], memory[mask], **TOLERANCE)
    actual = array(backbone.logits(outputs["decoder_sequence_output"]))
    # sums of 16 products of a size up to 10
    np.testing.assert_allclose(actual, logits, atol=3e-4, rtol=3e-4)
    assert np.abs(logits).max() > 1


def test_embedding_shared_three_ways():
    backbone = made("encoder_decoder")
    tables = [weight for weight in backbone.weights if VOCABULARY in weight.shape]
    assert len(tables) == 1 and tables[0] is backbone.token_embedding.table.embeddings
    assert len({id(weight) for weight in backbone.weights}) == len(backbone.weights)
    untied = made("encoder_decoder", embedding=EmbeddingConfig(tie_output=False))
    assert len([weight for weight in untied.weights if VOCABULARY in weight.shape]) == 2


def test_dropout_only_at_training():
    backbone, inputs = made("encoder", dropout=0.5), {"token_ids": token_ids(2, 5), "padding_mask": below([5, 5], 5)}
    expected = array(backbone(inputs))
    np.testing.assert_array_equal(array(backbone(inputs, training=False)), expected)
    assert np.abs(array(backbone(inputs, training=True)) - expected).max() > 0.1


# Rows are independent


@pytest.mark.parametrize("position", POSITIONS)
@pytest.mark.parametrize("architecture", ["encoder", "decoder"])
def test_padded_batch_is_each_alone(architecture, position):
    backbone, lengths = made(architecture, position), [7, 3, 5]
    ids = token_ids(3, 7)
    together = array(backbone({"token_ids": ids, "padding_mask": below(lengths, 7)}))
    for row, length in enumerate(lengths):
        inputs = {"token_ids": ids[row : row + 1, :length], "padding_mask": below([length], length)}
        np.testing.assert_allclose(together[row, :length], array(backbone(inputs))[0], **TOLERANCE)


def test_padded_pairs_are_each_alone():
    backbone, lengths = made("encoder_decoder", "relative_bias"), [(7, 2), (3, 6), (5, 5)]
    inputs = pair(*map(list, zip(*lengths, strict=True)))
    together = backbone(inputs)
    for row, (source, target) in enumerate(lengths):
        alone = backbone(
            {name: value[row : row + 1, : source if "encoder" in name else target] for name, value in inputs.items()}
        )
        for name, length in (("encoder_sequence_output", source), ("decoder_sequence_output", target)):
            np.testing.assert_allclose(array(together[name])[row, :length], array(alone[name])[0], **TOLERANCE)


def test_batch_norm_ignores_padding():
    # all norms see only what is real: those of the blocks, the embedding norm and the final norm, on both sides
    options = {"norm": NormConfig("batch", "pre", embedding=True), "dropout": 0.0}
    backbone, lengths = made("encoder_decoder", **options), ([4, 7], [6, 3])
    inputs, outputs = pair(*lengths), []
    for garbage in (1, 2):
        for side, mask in zip(("encoder", "decoder"), (below(lengths[0], 7), below(lengths[1], 6)), strict=True):
            inputs[f"{side}_token_ids"] = np.where(mask, inputs[f"{side}_token_ids"], garbage)
        output = backbone(inputs, training=True)
        outputs.append(
            [
                array(output[f"{side}_sequence_output"])[inputs[f"{side}_padding_mask"]]
                for side in ("encoder", "decoder")
            ]
        )
    for first, second in zip(*outputs, strict=True):
        np.testing.assert_allclose(first, second, **TOLERANCE)


@pytest.mark.parametrize("position", POSITIONS)
@pytest.mark.parametrize("architecture", ["encoder", "decoder"])
def test_packed_is_separate(architecture, position):
    backbone, ids = made(architecture, position), token_ids(1, 9)
    sequence_ids = np.array([[1, 1, 1, 1, 2, 2, 2, 3, 3]])
    positions = np.array([[0, 1, 2, 3, 0, 1, 2, 0, 1]])
    packed = array(
        backbone(
            {
                "token_ids": ids,
                "padding_mask": np.ones((1, 9), "bool"),
                "sequence_ids": sequence_ids,
                "positions": positions,
            }
        )
    )
    for number in (1, 2, 3):
        part = sequence_ids[0] == number
        alone = backbone({"token_ids": ids[:, part], "padding_mask": np.ones((1, part.sum()), "bool")})
        np.testing.assert_allclose(packed[0, part], array(alone)[0], **TOLERANCE)


# Decoding


@pytest.mark.parametrize("position", POSITIONS)
def test_decoding_an_encoder_decoder_is_the_full_pass(position):
    backbone, inputs = made("encoder_decoder", position), pair([5, 7], [6, 6])
    expected = array(backbone.logits(backbone(inputs)["decoder_sequence_output"]))
    state, constants = backbone.start_decoding(inputs, capacity=8)
    for index in range(6):
        logits, state = backbone.decode_step(inputs["decoder_token_ids"][:, index], index, state, constants)
        np.testing.assert_allclose(array(logits), expected[:, index], **TOLERANCE)
        assert "float32" in str(logits.dtype)
    assert all(tensor.shape[0] == 2 for tensor in keras.tree.flatten((state, constants)))


@pytest.mark.parametrize("position", POSITIONS)
@pytest.mark.parametrize("window", [None, (2, 0)])
def test_decoding_ragged_prompts_is_the_full_pass_of_each(position, window):
    attention = AttentionConfig(
        num_heads=4,
        num_key_value_heads=1,
        window=window,
        window_layers=None if window is None else (True, False),
    )
    backbone, lengths = made("decoder", position, attention=attention), [4, 2, 5]
    texts = token_ids(3, 9)  # of which the first tokens are the prompts, to be padded on the left
    prompts = np.zeros((3, 5), "int32")
    for row, length in enumerate(lengths):
        prompts[row, 5 - length :] = texts[row, :length]
    mask = below(lengths, 5)[:, ::-1]
    state, constants = backbone.start_decoding({"padding_mask": mask}, capacity=9)
    held = [cache["key"].shape[2] for cache in state["caches"]]
    assert held == ([9, 9] if window is None else [3, 9])
    # the prompt but for its last token in one go, longer than the window, then token by token
    _, state = backbone.advance(prompts[:, :4], 0, state, constants)
    token, steps = prompts[:, 4], []
    for index in range(4, 8):
        logits, state = backbone.decode_step(token, index, state, constants)
        steps.append(array(logits))
        token = np.array([texts[row, length + index - 4] for row, length in enumerate(lengths)])
    for row, length in enumerate(lengths):
        total = length + 3
        hidden = backbone({"token_ids": texts[row : row + 1, :total], "padding_mask": np.ones((1, total), "bool")})
        expected = array(backbone.logits(hidden))[0, length - 1 :]
        np.testing.assert_allclose(np.stack(steps)[:, row], expected, **TOLERANCE)


def test_decoding_with_a_rotary_scaling_that_depends_on_the_length():
    scaling = {"kind": "dynamic_ntk", "factor": 4.0, "original_max_position_embeddings": 4}
    position = PositionConfig("rotary", scaling=scaling)
    backbone = made("decoder", position, attention=AttentionConfig(num_heads=4, window=(2, 0)))
    ids, mask = token_ids(2, 9), np.ones((2, 9), "bool")
    expected = array(backbone({"token_ids": ids, "padding_mask": mask}))
    # whatever the capacity, the padding and the packing, it is computed for `max_length`
    for capacity in (9, 20):
        state, constants = backbone.start_decoding({"padding_mask": mask}, capacity=capacity)
        for index in range(9):
            hidden, state = backbone.advance(ids[:, index : index + 1], index, state, constants)
            np.testing.assert_allclose(array(hidden)[:, 0], expected[:, index], **TOLERANCE)
    padded = {"token_ids": np.pad(ids, ((0, 0), (0, 7))), "padding_mask": np.pad(mask, ((0, 0), (0, 7)))}
    np.testing.assert_allclose(array(backbone(padded))[:, :9], expected, **TOLERANCE)
    shorter = made("decoder", position, attention=AttentionConfig(num_heads=4, window=(2, 0)), max_length=4)
    shorter.set_weights(backbone.get_weights())
    assert np.abs(array(shorter({"token_ids": ids, "padding_mask": mask})) - expected).max() > 1e-3


def test_decoding_with_xla_and_unknown_sizes():
    tf = pytest.importorskip("tensorflow")
    backbone = made("decoder", "rotary", attention=AttentionConfig(num_heads=4, window=(2, 0)))
    ids = token_ids(2, 6)
    expected = array(backbone.logits(backbone({"token_ids": ids, "padding_mask": np.ones((2, 6), "bool")})))

    @tf.function(jit_compile=True, autograph=False)
    def decode(prompts, token):
        state, constants = backbone.start_decoding({"padding_mask": tf.ones_like(prompts, tf.bool)}, capacity=6)
        hidden, state = backbone.advance(prompts, 0, state, constants)
        logits, _ = backbone.decode_step(token, tf.shape(prompts)[1], state, constants)
        return backbone.logits(hidden), logits

    decode = decode.get_concrete_function(tf.TensorSpec((None, None), tf.int32), tf.TensorSpec((None,), tf.int32))
    prompt_logits, logits = decode(tf.constant(ids[:, :5]), tf.constant(ids[:, 5]))
    np.testing.assert_allclose(array(prompt_logits), expected[:, :5], **TOLERANCE)
    np.testing.assert_allclose(array(logits), expected[:, 5], **TOLERANCE)


def test_encoder_does_not_decode():
    with pytest.raises(ValueError, match="architecture='encoder' does not decode"):
        made("encoder").start_decoding({"padding_mask": np.ones((1, 3), "bool")}, 4)


# Outputs


def test_logits():
    hidden = np.random.default_rng(0).normal(size=(2, 3, 16)).astype("float32")
    options = EmbeddingConfig(output_bias=True, output_scale=0.5, logit_soft_cap=2.0)
    backbone = made("decoder", embedding=options)
    table, bias = array(backbone.token_embedding.table.embeddings), array(backbone.output_bias)
    expected = 2 * np.tanh((0.5 * hidden @ table.T + bias) / 2)
    np.testing.assert_allclose(array(backbone.logits(hidden)), expected, **TOLERANCE)
    backbone = made("decoder", embedding=EmbeddingConfig(tie_output=False, output_bias=True))
    layer = backbone.output_projection
    np.testing.assert_allclose(
        array(backbone.logits(hidden)), hidden @ array(layer.kernel) + array(layer.bias), **TOLERANCE
    )


def test_deep_norm_starts_small():
    def model(residual_scale, deviation=None):
        options = {"hidden_dim": 64, "norm": NormConfig(), "feed_forward": FeedForwardConfig(64)}
        attention = AttentionConfig(num_heads=4)
        return Backbone.from_config(
            config(
                "encoder_decoder",
                attention=attention,
                residual_scale=residual_scale,
                initializer_range=deviation,
                **options,
            )
        )

    keras.utils.set_random_seed(0)
    for deviation in (None, 0.02):
        deep, plain = model("deep_norm", deviation), model(1.0, deviation)
        for stack, depth in (("encoder", (2**4 * 2) ** (1 / 16) / 0.87), ("decoder", 24**0.25)):
            blocks = [getattr(backbone, stack).blocks[0] for backbone in (deep, plain)]
            assert blocks[0].residual_scale == pytest.approx(0.81 * 0.87 * depth if stack == "encoder" else 6**0.25)
            parts = ["attention"] + ["cross_attention"] * (stack == "decoder")
            kernels = [
                {
                    **{f"{part}_{name}": getattr(block, part) for part in parts for name in ("query", "key")},
                    **{f"{part}_{name}": getattr(block, part) for part in parts for name in ("value", "output")},
                }
                for block in blocks
            ]
            for name in kernels[0]:
                projection = name.rsplit("_", 1)[1]
                one, other = (array(getattr(made[name], f"{projection}_projection").kernel).std() for made in kernels)
                # of 4,096 numbers the deviation is known to about 1 %
                assert one / other == pytest.approx(1.0 if projection in ("query", "key") else 1 / depth, rel=0.05)
            for name in ("up", "down"):
                one, other = (array(getattr(block.feed_forward, name).kernel).std() for block in blocks)
                assert one / other == pytest.approx(1 / depth, rel=0.05)


def test_residual_branches_start_small():
    keras.utils.set_random_seed(0)
    options = {"hidden_dim": 64, "feed_forward": FeedForwardConfig(64, num_experts=4), "initializer_range": 0.02}
    attention = AttentionConfig(num_heads=4)
    backbone = Backbone.from_config(
        config("encoder_decoder", attention=attention, scale_residual_initializer=True, **options)
    )
    blocks = (backbone.encoder.blocks[0], backbone.decoder.blocks[0])
    for block, branches in zip(blocks, (4, 6), strict=True):
        attention, feed_forward = block.attention, block.feed_forward
        plain = array(attention.query_projection.kernel).std()
        smaller = [attention.output_projection.kernel, feed_forward.down_kernel]
        smaller += [block.cross_attention.output_projection.kernel] if branches == 6 else []
        for kernel in smaller:
            # of 4,096 numbers the deviation is known to about 1 %
            assert array(kernel).std() / plain == pytest.approx(branches**-0.5, rel=0.05)
        for kernel in (attention.value_projection.kernel, feed_forward.up_kernel):
            assert array(kernel).std() / plain == pytest.approx(1, rel=0.05)


def test_experts():
    feed_forward = FeedForwardConfig(24, "silu", gated=True, num_experts=3, experts_per_token=1, capacity_factor=2.0)
    backbone = made("decoder", feed_forward=feed_forward)
    for block in backbone.decoder.blocks:
        options = block.feed_forward.get_config()
        assert (options["num_experts"], options["experts_per_token"], options["capacity_factor"]) == (3, 1, 2.0)
    assert array(backbone({"token_ids": token_ids(2, 5), "padding_mask": below([5, 3], 5)})).shape == (2, 5, 16)


def test_padded_batch_of_experts_is_each_alone():
    backbone, lengths = made("decoder", feed_forward=FeedForwardConfig(24, num_experts=3)), [7, 3]
    ids = token_ids(2, 7)
    together = array(backbone({"token_ids": ids, "padding_mask": below(lengths, 7)}))
    for row, length in enumerate(lengths):
        alone = backbone({"token_ids": ids[row : row + 1, :length], "padding_mask": below([length], length)})
        np.testing.assert_allclose(together[row, :length], array(alone)[0], **TOLERANCE)


def test_norm_choices():
    norm = NormConfig("layer", "pre", use_bias=False, embedding=True, first_attention=False)
    backbone = made("encoder", norm=norm)
    first, second = (set(block.norms) for block in backbone.encoder.blocks)
    assert (first, second) == ({"feed_forward"}, {"attention", "feed_forward"})
    assert not [weight.path for weight in backbone.weights if "norm" in weight.path and "beta" in weight.path]


def test_embedding_dropout():
    def rates(**options):
        stack = made("encoder", **options).encoder
        dropout = stack.embedding_dropout
        return dropout and dropout.rate, stack.blocks[0].dropout_rate

    assert rates(dropout=0.1, embedding=EmbeddingConfig()) == (0.1, 0.1)
    assert rates(dropout=0.1, embedding=EmbeddingConfig(dropout=0.3)) == (0.3, 0.1)
    assert rates(dropout=0.1, embedding=EmbeddingConfig(dropout=0.0)) == (None, 0.1)


def test_pooler():
    hidden = np.random.default_rng(0).normal(size=(2, 3, 16)).astype("float32")
    backbone = made("encoder", pooler=True)
    expected = np.tanh(hidden[:, 0] @ array(backbone.pooler.kernel) + array(backbone.pooler.bias))
    np.testing.assert_allclose(array(backbone.pool(hidden)), expected, **TOLERANCE)
    assert backbone.parameter_count() == made("encoder").parameter_count() + 16 * 16 + 16
    with pytest.raises(ValueError, match="pool.. needs a configuration with pooler=True"):
        made("encoder").pool(hidden)


def test_attention_weights():
    inputs = pair([5, 3], [4, 6])
    backbone = made("encoder_decoder", num_decoder_layers=1)
    weights = {name: [array(x) for x in blocks] for name, blocks in backbone.attention_weights(inputs).items()}
    assert {name: [x.shape for x in blocks] for name, blocks in weights.items()} == {
        "encoder": [(2, 4, 5, 5)] * 2,
        "decoder": [(2, 4, 6, 6)],
        "cross": [(2, 4, 6, 5)],
    }
    for blocks in weights.values():
        for x in blocks:
            np.testing.assert_allclose(x.sum(-1), 1, atol=1e-5)
    assert all((x[1, ..., 3:] == 0).all() for x in (*weights["encoder"], *weights["cross"]))
    assert (np.triu(weights["decoder"][0][0, 0], 1) == 0).all()
    for architecture in ("encoder", "decoder"):
        inputs = {"token_ids": token_ids(2, 5), "padding_mask": below([5, 3], 5)}
        weights = made(architecture).attention_weights(inputs)
        assert list(weights) == [architecture] and len(weights[architecture]) == 2


def test_segments():
    backbone, ids = made("encoder", embedding=EmbeddingConfig(num_segments=2)), token_ids(1, 4)
    inputs = {"token_ids": ids, "padding_mask": np.ones((1, 4), "bool")}
    segments = np.array([[0, 0, 1, 1]])
    first = array(backbone(inputs))
    np.testing.assert_array_equal(array(backbone({**inputs, "segment_ids": 0 * segments})), first)
    assert np.abs(array(backbone({**inputs, "segment_ids": segments})) - first).max() > 1e-2


def test_learned_positions_start_at_their_offset():
    backbone = made("encoder", PositionConfig("learned", offset=2))
    inputs = {"token_ids": token_ids(1, 4), "padding_mask": below([4], 4)}
    table = backbone.encoder.position_embedding.embeddings
    assert tuple(table.shape) == (26, 16)
    before = array(backbone(inputs))
    table.assign(np.concatenate([np.full((2, 16), 9.0), array(table)[2:6], np.full((20, 16), 9.0)]))
    np.testing.assert_array_equal(array(backbone(inputs)), before)


def test_windows_by_layer():
    attention = AttentionConfig(num_heads=4, window=(3, 0), window_layers=(True, False))
    position = PositionConfig("rotary", base=1e6, local_base=1e4)
    backbone = made("decoder", position, attention=attention, num_layers=4)
    assert [block.attention.window for block in backbone.decoder.blocks] == [(3, 0), None] * 2
    assert [block.attention.position.base for block in backbone.decoder.blocks] == [1e4, 1e6] * 2


def test_initializer_range():
    backbone = Backbone.from_config(
        config(
            "decoder",
            "learned",
            hidden_dim=64,
            initializer_range=0.02,
            embedding=EmbeddingConfig(num_segments=8, tie_output=False),
        )
    )
    for weight in backbone.weights:
        if len(weight.shape) == 2:
            # truncated at two standard deviations, which leaves 0.88 of the deviation; 512 numbers at least
            assert 0.015 < array(weight).std() < 0.022 and np.abs(array(weight)).max() <= 0.0401, weight.path


# Keeping


@pytest.mark.parametrize("architecture", ["encoder", "decoder", "encoder_decoder"])
@pytest.mark.parametrize("policy", ["float32", "mixed_bfloat16"])
def test_keras_file(tmp_path, architecture, policy):
    keras.config.set_dtype_policy(policy)
    try:
        backbone = made(
            architecture,
            "relative_bias",
            attention=AttentionConfig(num_heads=4, sinks=True, output_gate=True, query_key_norm="rms"),
            embedding=EmbeddingConfig(output_bias=True, factor_dim=8),
        )
    finally:
        keras.config.set_dtype_policy("float32")
    single = {"token_ids": token_ids(2, 5), "padding_mask": below([5, 3], 5)}
    inputs = pair([5, 7], [6, 4]) if architecture == "encoder_decoder" else single
    backbone.save(tmp_path / "backbone.keras")
    loaded = keras.models.load_model(tmp_path / "backbone.keras")
    assert loaded.config == backbone.config and loaded.dtype_policy.name == policy
    assert [weight.path for weight in loaded.weights] == [weight.path for weight in backbone.weights]
    for first, second in zip(keras.tree.flatten(loaded(inputs)), keras.tree.flatten(backbone(inputs)), strict=True):
        assert keras.backend.standardize_dtype(first.dtype) == policy.removeprefix("mixed_")
        np.testing.assert_array_equal(array(ops.cast(first, "float32")), array(ops.cast(second, "float32")))


@pytest.mark.parametrize("policy", ["mixed_bfloat16", "mixed_float16"])
def test_half_precision(policy):
    single = made("encoder_decoder", "rotary")
    half = Backbone.from_config({**single.get_config(), "dtype": policy})
    half.set_weights(single.get_weights())
    inputs = pair([5, 7], [6, 4])
    expected = array(single(inputs)["decoder_sequence_output"])
    actual = array(ops.cast(half(inputs)["decoder_sequence_output"], "float32"))
    # bfloat16 keeps 8 significant bits, 0.4 % per rounded operation; the outputs are normed and a dozen operations deep
    np.testing.assert_allclose(actual, expected, atol=0.15 if policy == "mixed_bfloat16" else 0.02)
    state, constants = half.start_decoding(inputs, capacity=6)
    assert keras.backend.standardize_dtype(state["caches"][0]["key"].dtype) == policy.removeprefix("mixed_")
    logits, _ = half.decode_step(inputs["decoder_token_ids"][:, 0], 0, state, constants)
    assert keras.backend.standardize_dtype(logits.dtype) == "float32"


def test_from_config():
    backbone = made("encoder")
    again = Backbone.from_config(backbone.get_config())
    assert again.config == backbone.config and again.name == backbone.name
    with pytest.raises(
        TypeError, match="config must be a RecurrentConfig or TransformerConfig or a dictionary, got str"
    ):
        Backbone.from_config("transformer_tiny")


def test_parameter_count_counts_shared_weights_once():
    backbone = made("encoder", "relative_bias")
    assert backbone.parameter_count() == sum(int(np.prod(weight.shape)) for weight in backbone.weights)
    tables = [weight for weight in backbone.weights if tuple(weight.shape) == (32, 4)]
    assert len(tables) == 1


# Wrong inputs


@pytest.mark.parametrize(
    ("architecture", "changes", "message"),
    [
        ("encoder", {"padding_mask": None}, r"must have the keys \['padding_mask', 'token_ids'\].*got \['token_ids'\]"),
        ("encoder", {"segment_ids": np.zeros((2, 5), "int32")}, "num_segments=0, got .*'segment_ids'"),
        ("encoder", {"mask": below([5, 3], 5)}, "got .*'mask'"),
        ("encoder_decoder", {}, r"must have the keys \['decoder_padding_mask', .* got \['padding_mask', 'token_ids'\]"),
    ],
)
def test_wrong_keys(architecture, changes, message):
    inputs = {"token_ids": token_ids(2, 5), "padding_mask": below([5, 3], 5), **changes}
    inputs = {name: value for name, value in inputs.items() if value is not None}
    with pytest.raises(ValueError, match=message):
        made(architecture)(inputs)


def test_wrong_mask_shape():
    with pytest.raises(ValueError, match=r"padding_mask must have shape \(2, 5\), got \(2, 4\)"):
        made("encoder")({"token_ids": token_ids(2, 5), "padding_mask": below([4, 3], 4)})


def test_configuration_is_unchanged_by_use():
    given = config("encoder")
    assert Backbone.from_config(given).config is given
    assert dataclasses.asdict(given) == dataclasses.asdict(config("encoder"))
