import dataclasses

import numpy as np
import pytest

from zoo import (
    AttentionConfig,
    EmbeddingConfig,
    FeedForwardConfig,
    NormConfig,
    PositionConfig,
    TransformerConfig,
)

RICH = TransformerConfig(
    "encoder_decoder",
    vocabulary_size=100,
    hidden_dim=48,
    num_layers=2,
    num_decoder_layers=3,
    max_length=64,
    attention=AttentionConfig(
        num_heads=6,
        num_key_value_heads=2,
        head_dim=10,
        use_bias=("query", "output"),
        scale=0.2,
        logit_soft_cap=30.0,
        query_key_norm="rms",
        sinks=True,
        output_gate=True,
        window=(8, None),
        window_layers=(True, False),
        dropout=0.1,
    ),
    position=PositionConfig("rotary", base=5e5, local_base=1e4, scaling={"kind": "linear", "factor": 2.0}),
    norm=NormConfig("rms", "sandwich", epsilon=1e-5, unit_offset=True, final=False, embedding=True),
    feed_forward=FeedForwardConfig(96, "silu", gated=True, use_bias=False, dropout=0.2),
    embedding=EmbeddingConfig(scale=True, factor_dim=16, num_segments=2, tie_output=False, output_bias=True),
    dropout=0.3,
    initializer_range=0.02,
)


@pytest.mark.parametrize("config", [TransformerConfig("decoder", vocabulary_size=7), RICH])
def test_json_round_trip(config):
    text = config.to_json()
    assert TransformerConfig.from_json(text) == config
    assert TransformerConfig.from_json(text).to_json() == text
    assert TransformerConfig.from_dict(config.to_dict()) == config


def test_json_names_every_choice():
    values = RICH.to_dict()
    assert values.pop("kind") == "transformer"
    assert set(values) == {field.name for field in dataclasses.fields(TransformerConfig)}
    assert values["attention"]["window"] == (8, None) and values["position"]["scaling"]["factor"] == 2.0


def test_left_out_choices_have_their_defaults():
    config = TransformerConfig.from_dict({"architecture": "encoder", "vocabulary_size": 7, "norm": {"kind": "rms"}})
    assert config == TransformerConfig("encoder", 7, norm=NormConfig("rms"))


def test_head_dim():
    assert TransformerConfig("encoder", 7, hidden_dim=64, attention=AttentionConfig(4)).head_dim == 16
    assert TransformerConfig("encoder", 7, hidden_dim=64, attention=AttentionConfig(5, head_dim=3)).head_dim == 3


def test_embedding_factor():
    factors = [
        TransformerConfig("encoder", 7, 64, embedding=EmbeddingConfig(x)).embedding_factor for x in (False, True, 12)
    ]
    assert factors == [1.0, 8.0, 12.0]


def test_deep_norm():
    def scales(architecture, *layers):
        config = TransformerConfig(architecture, 7, 512, *layers, residual_scale="deep_norm")
        return np.array(
            [(config.residual_factor(stack), config.initial_gains(stack).output) for stack in ("encoder", "decoder")]
        )

    # Wang et al. 2022, figure 2: alpha and beta of N encoder and M decoder layers
    np.testing.assert_allclose(scales("encoder", 8)[0], [16**0.25, 64**-0.25])
    np.testing.assert_allclose(scales("decoder", 8)[1], [16**0.25, 64**-0.25])
    root = (8.0**4 * 27) ** (1 / 16)
    expected = [[0.81 * root, 0.87 / root], [81**0.25, 324**-0.25]]
    np.testing.assert_allclose(scales("encoder_decoder", 8, 27), expected)
    assert TransformerConfig("encoder", 7, residual_scale=2.5).residual_factor("encoder") == 2.5


def test_initial_gains():
    # GPT-2: one over the square root of the number of residual branches, on the projections that end them
    decoder = TransformerConfig("decoder", 7, num_layers=8, scale_residual_initializer=True)
    assert decoder.initial_gains("decoder") == (1.0, 1.0, 0.25)
    both = TransformerConfig("encoder_decoder", 7, num_layers=2, num_decoder_layers=3, scale_residual_initializer=True)
    assert both.initial_gains("encoder") == (1.0, 1.0, 0.5)
    assert both.initial_gains("decoder").output == pytest.approx(1 / 3)
    assert TransformerConfig("encoder", 7).initial_gains("encoder") == (1.0, 1.0, 1.0)
    with pytest.raises(ValueError, match="scale_residual_initializer must be False with residual_scale='deep_norm'"):
        TransformerConfig("encoder", 7, residual_scale="deep_norm", scale_residual_initializer=True)


def test_configs_do_not_change():
    with pytest.raises(dataclasses.FrozenInstanceError):
        RICH.dropout = 0.0


@pytest.mark.parametrize(
    ("values", "message"),
    [
        ({"hiden_dim": 8}, "must be known ones, got 'hiden_dim'. Did you mean 'hidden_dim'?.*vocabulary_size"),
        (
            {"attention": {"heads": 3, "num_head": 8}},
            "must be known ones, got 'attention.heads'.*Known: .*num_key_value_heads",
        ),
        ({"attention": {"num_head": 8}}, "'attention.num_head'. Did you mean 'attention.num_heads'?"),
        ({"kind": "recurrent"}, "kind must be 'transformer', got 'recurrent'"),
        ({"attention": 5}, "attention must be a dictionary, got 5"),
        ({"attention_position": 5}, "attention_position must be a dictionary, got 5"),
        ({"attention_position": {"knd": 5}}, "'attention_position.knd'. Did you mean 'attention_position.kind'?"),
        ({"num_layers": "6"}, "num_layers must be of type int, got '6'"),
        ({"attention": {"window": [1, 2, 3]}}, r"attention.window must be of type tuple.* got \(1, 2, 3\)"),
    ],
)
def test_wrong_dictionaries(values, message):
    with pytest.raises(ValueError, match=message):
        TransformerConfig.from_dict({"architecture": "decoder", "vocabulary_size": 10, **values})


def test_missing_keys():
    with pytest.raises(ValueError, match="The configuration must have architecture, vocabulary_size, got only"):
        TransformerConfig.from_dict({})


@pytest.mark.parametrize(("text", "message"), [("[1]", r"must be a dictionary, got \[1\]"), ("{", "Expecting")])
def test_wrong_json(text, message):
    with pytest.raises(ValueError, match=message):
        TransformerConfig.from_json(text)


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda: TransformerConfig("both", 10), "architecture must be one of .*'encoder_decoder'.* got 'both'"),
        (lambda: TransformerConfig("decoder", 0), "vocabulary_size must be above 0, got 0"),
        (lambda: TransformerConfig("decoder", 10.0), "vocabulary_size must be of type int, got 10.0"),
        (lambda: TransformerConfig("decoder", 10, num_layers=True), "num_layers must be of type int, got True"),
        (lambda: TransformerConfig("decoder", 10, dropout=1.0), r"dropout must be in \[0, 1\), got 1.0"),
        (lambda: TransformerConfig("decoder", 10, dropout="high"), "dropout must be of type float, got 'high'"),
        (lambda: TransformerConfig("decoder", 10, num_decoder_layers=2), "num_decoder_layers must be None .* got 2"),
        (lambda: TransformerConfig("encoder_decoder", 10, num_decoder_layers=0), "num_decoder_layers must be above 0"),
        (lambda: TransformerConfig("decoder", 10, pooler=True), "pooler must be False with architecture='decoder'"),
        (lambda: TransformerConfig("decoder", 10, hidden_dim=20), "attention.num_heads must be a divisor .*20.* got 8"),
        (
            lambda: TransformerConfig("decoder", 10, norm=NormConfig(placement="pre"), residual_scale=2.0),
            "residual_scale must be 1.0 with norm.placement='pre'.* got 2.0",
        ),
        (
            lambda: TransformerConfig("decoder", 10, position=PositionConfig("rotary", local_base=1e4)),
            "position.local_base must be None without attention.window",
        ),
        (lambda: TransformerConfig("decoder", 10, initializer_range=0.0), "initializer_range must be above 0"),
        (lambda: AttentionConfig(num_heads=0), "attention.num_heads must be above 0, got 0"),
        (lambda: AttentionConfig(num_heads=8, num_key_value_heads=3), "must be .*divisor of num_heads=8, got 3"),
        (lambda: AttentionConfig(head_dim=0), "attention.head_dim must be above 0, got 0"),
        (lambda: AttentionConfig(dropout=-0.1), "attention.dropout must be in"),
        (lambda: AttentionConfig(query_key_norm="batch"), "query_key_norm must be a norm of each position for itself"),
        (lambda: AttentionConfig(query_key_norm_scope="width"), "query_key_norm_scope must be one of .*got 'width'"),
        (
            lambda: AttentionConfig(query_key_norm="scale", query_key_norm_scope="per_head"),
            "query_key_norm_scope must be 'head' or 'width' with .*'scale'",
        ),
        (lambda: AttentionConfig(weighting="softpick"), "attention.weighting must be a name .* got 'softpick'"),
        (lambda: AttentionConfig(window=(-1, 0)), r"attention.window must be a pair .* got \(-1, 0\)"),
        (lambda: AttentionConfig(window_layers=(True,)), "window_layers must be None where there is no window"),
        (lambda: AttentionConfig(window=(1, 0), window_layers=()), "attention.window_layers must be None or not empty"),
        (lambda: AttentionConfig(use_bias="query"), "attention.use_bias must be of type bool | tuple"),
        (lambda: PositionConfig("spiral"), "position.kind must be one of .*'rotary'.* got 'spiral'"),
        (lambda: PositionConfig("alibi", base=500.0), "position.base must be 10000.0 with .*'alibi'.*'rotary'"),
        (lambda: PositionConfig("sinusoidal", rotary_dim=8), "position.rotary_dim must be None with"),
        (lambda: PositionConfig("rotary", max_distance=8), "position.max_distance must be 128 with .*'shaw'"),
        (lambda: PositionConfig("learned", local_base=5.0), "position.local_base must be None .*'rotary', 'xpos'"),
        (
            lambda: TransformerConfig("encoder", 10, attention_position=PositionConfig("learned")),
            "attention_position.kind must be that of an encoding that acts in attention alone, got 'learned'",
        ),
        (
            lambda: TransformerConfig(
                "encoder", 10, position=PositionConfig("rotary"), attention_position=PositionConfig("alibi")
            ),
            "position.kind must be that of an encoding of the embeddings alone .* got 'rotary'",
        ),
        (
            lambda: TransformerConfig("encoder", 10, attention_position=PositionConfig("rotary", local_base=5.0)),
            "attention_position.local_base must be None without attention.window, got 5.0",
        ),
        (lambda: PositionConfig("learned", layers=(True,)), "position.layers must be None .*'rotary'"),
        (lambda: PositionConfig("rotary", layers=()), "position.layers must be None or not empty"),
        (lambda: PositionConfig("rotary", layers=(1, 0)), "position.layers must be of type"),
        (lambda: PositionConfig("rotary", local_scaling=False), "local_scaling must be True without position.scaling"),
        (
            lambda: TransformerConfig(
                "decoder",
                10,
                position=PositionConfig("rotary", scaling={"kind": "linear", "factor": 2.0}, local_scaling=False),
            ),
            "position.local_scaling must be True without attention.window",
        ),
        (
            lambda: PositionConfig("xpos", options={"gama": 1.0}),
            r"position.options\['gama'\] must be left out .*'gamma'",
        ),
        (lambda: PositionConfig("alibi", shared=False), "position.shared must be True with .*'relative_bias'"),
        (lambda: PositionConfig("rotary", base=0), "position.base must be above 0, got 0"),
        (lambda: PositionConfig("learned", offset=-1), "position.offset must be at least 0, got -1"),
        (lambda: NormConfig("median"), "norm.kind must be one of .*'rms'.* got 'median'"),
        (lambda: NormConfig(placement="inside"), "norm.placement must be one of .*'sandwich'.* got 'inside'"),
        (lambda: NormConfig("scale", unit_offset=True), "norm.unit_offset must be False with norm.kind='scale'"),
        (lambda: NormConfig(epsilon=0.0), "norm.epsilon must be above 0, got 0.0"),
        (lambda: NormConfig("rms", use_bias=False), "norm.use_bias must be True with norm.kind='rms'"),
        (lambda: NormConfig(first_attention=False), "norm.first_attention must be True with norm.placement='post'"),
        (
            lambda: FeedForwardConfig(experts_per_token=1),
            "experts_per_token must be 2 without feed_forward.num",
        ),
        (lambda: FeedForwardConfig(num_experts=2, experts_per_token=3), "must be from 1 to num_experts=2, got 3"),
        (lambda: AttentionConfig(projection_limit=-1.0), "attention.projection_limit must be above 0, got -1.0"),
        (
            lambda: AttentionConfig(2, head_dim=8, latent_dim=4, shared_key_dim=2, projection_limit=8.0),
            "attention.projection_limit must be None with latent_dim, got 8.0",
        ),
        (lambda: FeedForwardConfig(gate_limit=7.0), "feed_forward.gate_limit must be None without feed_forward.gated"),
        (lambda: FeedForwardConfig(up_offset=1.0), "feed_forward.up_offset must be 0.0 without feed_forward.gated"),
        (lambda: FeedForwardConfig(expert_layers=(True,)), "expert_layers must be None without feed_forward.num_exp"),
        (lambda: FeedForwardConfig(num_experts=2, expert_layers=()), "expert_layers must be None or not empty"),
        (
            lambda: FeedForwardConfig(num_experts=2, shared_gate=True),
            "shared_gate must be False without feed_forward.shared_intermediate_dim, got True",
        ),
        (
            lambda: FeedForwardConfig(num_experts=2, dense_intermediate_dim=8),
            "dense_intermediate_dim must be None without feed_forward.expert_layers, got 8",
        ),
        (lambda: FeedForwardConfig(num_experts=2, capacity_factor=0.0), "capacity_factor must be above 0, got 0.0"),
        (lambda: FeedForwardConfig(load_balance_weight=-1.0), "load_balance_weight must be at least 0, got -1.0"),
        (
            lambda: TransformerConfig("encoder", 10, layer_groups=7),
            "layer_groups must be None or from 1 to the 6",
        ),
        (
            lambda: TransformerConfig("encoder", 10, layer_groups=0),
            "layer_groups must be None or from 1 to the 6",
        ),
        (
            lambda: TransformerConfig("encoder", 10, layer_groups=2, drop_path=0.1),
            "must be None with drop_path: .*2",
        ),
        (lambda: TransformerConfig("decoder", 10, decoder_num_heads=2), "decoder_num_heads must be None .* got 2"),
        (
            lambda: TransformerConfig("encoder_decoder", 10, decoder_num_heads=7),
            "decoder_num_heads must be a divisor of hidden_dim=512 .* got 7",
        ),
        (
            lambda: TransformerConfig("encoder_decoder", 10, attention=AttentionConfig(8, 4), decoder_num_heads=2),
            "decoder_num_heads must be a multiple of attention.num_key_value_heads=4, got 2",
        ),
        (lambda: EmbeddingConfig(scale=-2.0), "embedding.scale must be True, False or a number above 0, got -2.0"),
        (lambda: TransformerConfig("encoder", 10, branch_scale=0.0), "branch_scale must be above 0, got 0.0"),
        (lambda: EmbeddingConfig(dropout=1.0), r"embedding.dropout must be None or in \[0, 1\), got 1.0"),
        (lambda: TransformerConfig("encoder", 10, residual_scale="deep"), "must be above 0 or 'deep_norm', got 'deep'"),
        (lambda: FeedForwardConfig(0), "feed_forward.intermediate_dim must be above 0, got 0"),
        (lambda: FeedForwardConfig(dropout=1.0), r"feed_forward.dropout must be in \[0, 1\), got 1.0"),
        (
            lambda: AttentionConfig(global_tokens="given"),
            "attention.window must be a pair of numbers with attention.global_tokens, got None",
        ),
        (
            lambda: AttentionConfig(global_tokens="last", window=(2, 2)),
            "attention.global_tokens must be one of .None, 'given', 'first'., got 'last'",
        ),
        (
            lambda: TransformerConfig("decoder", 9, attention=AttentionConfig(global_tokens="first", window=(2, 2))),
            "attention.global_tokens must be None with architecture='decoder', got 'first'",
        ),
        (
            lambda: TransformerConfig(
                "encoder",
                9,
                attention=AttentionConfig(global_tokens="first", window=(2, 2)),
                position=PositionConfig("rotary"),
            ),
            "attention.global_tokens must be None with position.kind='rotary', which acts in attention",
        ),
        (lambda: EmbeddingConfig(output_dim=8), "embedding.output_dim must be None with embedding.tie_output or"),
        (
            lambda: TransformerConfig("decoder", 9, embedding=EmbeddingConfig(token_dropout=3)),
            "embedding.token_dropout must be None with architecture='decoder', got 3",
        ),
        (
            lambda: TransformerConfig("encoder", 9, embedding=EmbeddingConfig(token_dropout=9)),
            "embedding.token_dropout must be below vocabulary_size=9, got 9",
        ),
        (lambda: EmbeddingConfig(factor_bias=True), "embedding.factor_bias must be False without embedding.factor_dim"),
        (lambda: EmbeddingConfig(factor_output=True), "factor_output must be False without embedding.factor_dim"),
        (
            lambda: EmbeddingConfig(scale=True, factor_dim=4, factor_after_norm=True),
            "embedding.scale must be False with embedding.factor_after_norm, got True",
        ),
        (lambda: EmbeddingConfig(factor_dim=0), "embedding.factor_dim must be above 0, got 0"),
        (lambda: EmbeddingConfig(num_segments=-1), "embedding.num_segments must be at least 0, got -1"),
        (lambda: EmbeddingConfig(logit_soft_cap=0), "embedding.logit_soft_cap must be above 0, got 0"),
    ],
)
def test_wrong_choices(make, message):
    with pytest.raises(ValueError, match=message):
        make()
