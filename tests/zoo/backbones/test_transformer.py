"""The Transformer backbone: the whole original model in NumPy, its choices and its files."""

import dataclasses

import keras
import numpy as np
import pytest
from keras import ops
from small_transformers import TOLERANCE, VOCABULARY, array, below, config, made, pair, token_ids

from zoo import (
    AttentionConfig,
    Backbone,
    EmbeddingConfig,
    FeedForwardConfig,
    NormConfig,
    PositionConfig,
)
from zoo.config import minimum_weight_counts


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


def original_transformer(backbone, inputs, num_heads, num_decoder_heads=None):
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
        heads = num_decoder_heads or num_heads
        x = normalize(block.norms["attention"], x + attend(block.attention, x, x, causal, heads))
        cross = attend(block.cross_attention, x, memory, seen, heads)
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


def test_decoder_with_other_heads_and_networks():
    backbone = made(
        "encoder_decoder",
        norm=NormConfig(),
        attention=AttentionConfig(num_heads=4),
        dropout=0.0,
        decoder_num_heads=2,
        decoder_intermediate_dim=40,
    )
    stacks = (backbone.encoder, backbone.decoder)
    assert [stack.blocks[0].feed_forward.intermediate_dim for stack in stacks] == [24, 40]
    block = backbone.decoder.blocks[1]
    assert {(part.num_heads, part.head_dim) for part in (block.attention, block.cross_attention)} == {(2, 8)}
    inputs = pair([5, 7], [6, 6])
    memory, logits = original_transformer(backbone, inputs, 4, 2)
    outputs = backbone(inputs)
    mask = inputs["encoder_padding_mask"]
    np.testing.assert_allclose(array(outputs["encoder_sequence_output"])[mask], memory[mask], **TOLERANCE)
    actual = array(backbone.logits(outputs["decoder_sequence_output"]))
    np.testing.assert_allclose(actual, logits, atol=3e-4, rtol=3e-4)  # sums of 16 products of a size up to 10
    state, constants = backbone.start_decoding(inputs, capacity=6)
    for index in range(6):
        step, state = backbone.decode_step(inputs["decoder_token_ids"][:, index], index, state, constants)
        np.testing.assert_allclose(array(step), actual[:, index], atol=3e-4, rtol=3e-4)
    counted = sum(minimum_weight_counts(backbone.config).values())
    assert 0.7 * backbone.parameter_count() < counted < backbone.parameter_count()


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


@pytest.mark.parametrize("tied", [True, False])
def test_logits_of_factorised_embeddings(tied):
    """Lan et al. 2020, section 3.1, also where the factor is as wide as the model; OPT's published code."""
    hidden = np.random.default_rng(0).normal(size=(2, 3, 16)).astype("float32")
    for factor_dim in (6, 16):
        backbone = made(
            "encoder", embedding=EmbeddingConfig(factor_dim=factor_dim, factor_output=True, tie_output=tied)
        )
        vectors = hidden @ array(backbone.output_factor.kernel)
        table = array(backbone.token_embedding.table.embeddings).T if tied else array(backbone.output_projection.kernel)
        np.testing.assert_allclose(array(backbone.logits(hidden)), vectors @ table, **TOLERANCE)
        np.testing.assert_allclose(array(backbone.score(vectors)), vectors @ table, **TOLERANCE)
        backbone = made("encoder", embedding=EmbeddingConfig(factor_dim=factor_dim, tie_output=tied))
        if tied:
            table, factor = (array(backbone.token_embedding.weights[index]) for index in (0, 1))
            np.testing.assert_allclose(array(backbone.logits(hidden)), hidden @ factor.T @ table.T, **TOLERANCE)
            np.testing.assert_allclose(array(backbone.score(vectors)), vectors @ table.T, **TOLERANCE)
        else:
            expected = hidden @ array(backbone.output_projection.kernel)
            np.testing.assert_allclose(array(backbone.logits(hidden)), expected, **TOLERANCE)


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


def test_padding_takes_no_capacity_of_the_experts_of_a_decoder():
    experts = FeedForwardConfig(24, num_experts=3, experts_per_token=1, capacity_factor=1.0)
    backbone = made("encoder_decoder", feed_forward=experts, dropout=0.0)
    inputs = {
        "encoder_token_ids": token_ids(2, 6),
        "encoder_padding_mask": below([6, 4], 6),
        "decoder_token_ids": token_ids(2, 12),
        "decoder_padding_mask": below([4, 3], 12),
    }
    others = {**inputs, "decoder_token_ids": np.where(below([4, 3], 12), token_ids(2, 12), 5)}
    outputs = [
        array(backbone(x, training=True)["decoder_sequence_output"])[inputs["decoder_padding_mask"]]
        for x in (inputs, others)
    ]
    np.testing.assert_allclose(*outputs, **TOLERANCE)
    losses = [[float(loss) for loss in backbone.losses] for x in (inputs, others) if backbone(x, training=True)]
    np.testing.assert_allclose(*losses, rtol=1e-5)


def test_norm_choices():
    norm = NormConfig("layer", "pre", use_bias=False, embedding=True, first_attention=False)
    backbone = made("encoder", norm=norm)
    first, second = (set(block.norms) for block in backbone.encoder.blocks)
    assert (first, second) == ({"feed_forward"}, {"attention", "feed_forward"})
    assert not [weight.path for weight in backbone.weights if "norm" in weight.path and "beta" in weight.path]


def test_choices_of_the_residual_branches_reach_the_blocks():
    backbone = made(
        "decoder", num_layers=3, layer_scale=0.1, drop_path=0.4, remat=True, norm=NormConfig("rms", "res_post")
    )
    options = [block.get_config() for block in backbone.decoder.blocks]
    assert [option["drop_path"] for option in options] == [0.0, 0.2, 0.4]
    assert made("decoder", num_layers=1, drop_path=0.4).decoder.blocks[0].drop_path == 0.4
    for option in options:
        assert (option["layer_scale"], option["remat"], option["placement"]) == (0.1, True, "res_post")
    assert backbone.decoder.final_norm is not None
    block = made("decoder", norm=NormConfig("layer", "parallel", shared=False)).decoder.blocks[0]
    assert set(block.norms) == {"attention", "feed_forward"}


def test_choices_of_the_experts_reach_them():
    options = {"scoring": "sigmoid", "bias_update_rate": 0.01, "weight_scale": 2.0, "z_loss_weight": 0.1}
    experts = FeedForwardConfig(24, num_experts=3, shared_intermediate_dim=20, **options)
    layer = made("decoder", feed_forward=experts).decoder.blocks[0].feed_forward.get_config()
    assert {name: layer[name] for name in options} == options and layer["shared_intermediate_dim"] == 20


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
    with pytest.raises(ValueError, match="pooler of the configuration must be True for pool.., got False"):
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
    table = backbone.encoder.position.embeddings
    assert tuple(table.shape) == (26, 16)
    before = array(backbone(inputs))
    table.assign(np.concatenate([np.full((2, 16), 9.0), array(table)[2:6], np.full((20, 16), 9.0)]))
    np.testing.assert_array_equal(array(backbone(inputs)), before)


def test_positions_that_skip_padding():
    backbone = made("decoder", PositionConfig("learned", skips_padding=True))
    ids = token_ids(1, 6)
    alone = array(backbone({"token_ids": ids, "padding_mask": np.ones((1, 6), "bool")}))
    padded = np.concatenate([np.zeros((1, 3), ids.dtype), ids], axis=1)
    outputs = array(backbone({"token_ids": padded, "padding_mask": np.arange(9)[None] >= 3}))
    np.testing.assert_allclose(outputs[:, 3:], alone, **TOLERANCE)
    with pytest.raises(ValueError, match="position.skips_padding must be False with position.kind='rotary'"):
        PositionConfig("rotary", skips_padding=True)


def test_windows_by_layer():
    attention = AttentionConfig(num_heads=4, window=(3, 0), window_layers=(True, False))
    position = PositionConfig("rotary", base=1e6, local_base=1e4)
    backbone = made("decoder", position, attention=attention, num_layers=4)
    assert [block.attention.window for block in backbone.decoder.blocks] == [(3, 0), None] * 2
    assert [block.attention.position.base for block in backbone.decoder.blocks] == [1e4, 1e6] * 2


@pytest.mark.skipif(keras.backend.backend() != "tensorflow", reason="other backends know the lengths that they trace")
def test_windows_of_short_models_are_not_cut_into_chunks():
    options = {"attention": AttentionConfig(num_heads=4, window=(16, 0)), "num_layers": 1}
    # chunks are of 32 queries at least, which see 48 keys: few of 128, most of 64
    paths = {
        length: made("decoder", max_length=length, **options).decoder.blocks[0].attention.preferred_path
        for length in (64, 128)
    }
    assert paths == {64: "plain", 128: "auto"}


def test_groups_of_layers_share_their_weights():
    backbone, inputs = made("encoder_decoder", num_layers=4, layer_groups=2, num_decoder_layers=3), pair([5, 7], [6, 4])
    alone = made("encoder_decoder", num_layers=4, num_decoder_layers=3)
    for side, numbers in (("encoder", (0, 0, 1, 1)), ("decoder", (0, 0, 1))):
        shared, separate = getattr(backbone, side), getattr(alone, side)
        assert len(shared.blocks) == 2
        for number, block in zip(numbers, separate.blocks, strict=True):
            block.set_weights(shared.blocks[number].get_weights())
        separate.final_norm.set_weights(shared.final_norm.get_weights())
    alone.token_embedding.set_weights(backbone.token_embedding.get_weights())
    for first, second in zip(keras.tree.flatten(backbone(inputs)), keras.tree.flatten(alone(inputs)), strict=True):
        np.testing.assert_array_equal(array(first), array(second))
    per_block = [sum(block.count_params() for block in stack.blocks) for stack in (backbone.encoder, backbone.decoder)]
    counts = [sum(block.count_params() for block in stack.blocks) for stack in (alone.encoder, alone.decoder)]
    assert counts[0] == 2 * per_block[0] and 2 * counts[1] == 3 * per_block[1]
    assert len(backbone.attention_weights(inputs)["encoder"]) == 4
    state, constants = backbone.start_decoding(inputs, capacity=6)
    assert len(state["caches"]) == len(constants["memory"]) == 3


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


def test_quantized_backbone_is_not_saved_alone(tmp_path):
    backbone = made("encoder")
    backbone.quantize("int8")
    with pytest.raises(ValueError, match=r"save\(\) needs a backbone whose weights are not quantized"):
        backbone.save(tmp_path / "backbone.keras")
    assert not list(tmp_path.iterdir())


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
