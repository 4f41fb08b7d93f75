"""Decoders of which some layers have a mixer in the place of attention."""

import keras
import numpy as np
import pytest
from keras import ops

import zoo
from zoo.backbones.backbone import default_policy
from zoo.config.checks import ChoiceError
from zoo.generation import Engine
from zoo.openvino_genai.stateful import require_stateful
from zoo.planning import Job, memory_of, model_shape, without_values
from zoo.planning.operations import forward_operations

MIXERS = {
    "short_convolution": zoo.MixerConfig("short_convolution", (True, False), kernel_size=4, use_bias=True),
    "gated_delta_rule": zoo.MixerConfig(
        "gated_delta_rule", (True, False), num_heads=4, num_key_heads=2, key_dim=4, value_dim=6
    ),
    "state_space": zoo.MixerConfig(
        "state_space", (True, False), num_heads=4, num_key_heads=2, key_dim=4, value_dim=6, use_bias=True
    ),
}


def config_of(kind, **options):
    return zoo.TransformerConfig(
        "decoder",
        vocabulary_size=50,
        hidden_dim=16,
        num_layers=3,
        max_length=32,
        attention=zoo.AttentionConfig(4, num_key_value_heads=2),
        norm=zoo.NormConfig("rms", "pre"),
        feed_forward=zoo.FeedForwardConfig(24, gated=True),
        **{"position": zoo.PositionConfig("rotary"), "mixer": MIXERS[kind], **options},
    )


@pytest.fixture(autouse=True)
def seed():
    """The delta rule makes ten times as much of the last bits with some weights as with others."""
    keras.utils.set_random_seed(0)


@pytest.fixture(scope="module", params=MIXERS)
def backbone(request):
    keras.utils.set_random_seed(0)
    backbone = zoo.Backbone.from_config(config_of(request.param))
    generator = np.random.default_rng(0)
    for weight in backbone.weights:
        weight.assign(weight + generator.normal(0, 0.3, weight.shape))
    return backbone


def test_packed_sequences_give_what_separate_ones_give(backbone):
    token_ids = np.random.default_rng(1).integers(0, 50, (1, 9))
    inputs = {"token_ids": token_ids, "padding_mask": np.ones((1, 9), "bool")}
    packed = backbone({**inputs, "sequence_ids": np.array([[1, 1, 1, 1, 2, 2, 2, 2, 2]])})
    for part in (slice(0, 4), slice(4, 9)):
        alone = backbone({name: values[:, part] for name, values in inputs.items()})
        np.testing.assert_allclose(packed[:, part], alone, rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize("kind", MIXERS)
def test_positions_that_depend_on_the_length_of_the_text(kind):
    """A text that outgrows the trained length while it is decoded is fed again, with states made anew."""
    factors = {"short_factor": [1.0, 1.3], "long_factor": [2.0, 3.0], "factor": 4.0}
    scaling = {"kind": "longrope", "original_max_position_embeddings": 4, **factors}
    backbone = zoo.Backbone.from_config(config_of(kind, position=zoo.PositionConfig("rotary", scaling=scaling)))
    token_ids = np.random.default_rng(1).integers(0, 50, (2, 6))
    mask = np.arange(6) >= np.array([[0], [3]])
    state, constants = backbone.start_decoding({"padding_mask": mask}, 6)
    _, state = backbone.advance(token_ids[:, :4], 0, state, constants)
    for end in (5, 6):
        hidden, state = backbone.advance(token_ids[:, end - 1 : end], end - 1, state, constants)
        expected = backbone({"token_ids": token_ids[:, :end], "padding_mask": mask[:, :end]})
        np.testing.assert_allclose(hidden[:, 0], expected[:, -1], rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize("kind", MIXERS)
@pytest.mark.parametrize("dtype", ["mixed_bfloat16", "mixed_float16"])
def test_cached_steps_in_half_precision(kind, dtype):
    with default_policy(dtype):
        backbone = zoo.Backbone.from_config(config_of(kind))
    token_ids, mask = np.arange(10).reshape(2, 5), np.ones((2, 5), "bool")
    empty, constants = backbone.start_decoding({"padding_mask": mask}, 5)
    whole, expected = backbone.advance(token_ids, 0, empty, constants)
    hidden, state = backbone.advance(token_ids[:, :3], 0, empty, constants)
    parts = [hidden]
    for place in (3, 4):
        hidden, state = backbone.advance(token_ids[:, place : place + 1], place, state, constants)
        parts.append(hidden)
    found = ops.cast(ops.concatenate(parts, axis=1), "float32")
    # the last of eight bits, of hidden states of a size of 1
    np.testing.assert_allclose(found, ops.cast(whole, "float32"), atol=2**-7, rtol=2**-7)
    for ours, once in zip(state["caches"], expected["caches"], strict=True):
        if "state" in ours:  # which is not rounded between steps
            assert keras.backend.standardize_dtype(ours["state"].dtype) == "float32"
            np.testing.assert_allclose(ours["state"], once["state"], atol=1e-5, rtol=1e-4)


def test_batches_of_no_rows(backbone):
    empty = {"token_ids": np.zeros((0, 5), "int32"), "padding_mask": np.ones((0, 5), "bool")}
    assert tuple(backbone(empty).shape) == (0, 5, 16)


def test_what_only_attention_has_is_refused_or_left_out(backbone):
    inputs = {"token_ids": np.ones((1, 3), "int32"), "padding_mask": np.ones((1, 3), "bool")}
    assert backbone.attention_weights(inputs) == {}
    with pytest.raises(ValueError, match="it has layers without attention"):
        require_stateful(backbone)
    with pytest.raises(ValueError, match="draft must be None with caches that cannot be rewound"):
        Engine(backbone, backbone).require_rewinding(20)


def test_low_rank_updates(backbone):
    paths = dict(backbone.adapters.candidates())
    assert {"decoder/block_0/mixer/output", "decoder/block_1/attention/output"} <= set(paths)


@pytest.mark.parametrize("kind", MIXERS)
def test_plans(kind):
    config = config_of(kind)
    shape = model_shape(without_values(config))
    assert shape.parameters == sum(np.prod(weight.shape) for weight in zoo.Backbone.from_config(config).weights)
    scores = 2 * 4 * (4 + 4) * 8  # one layer of three has attention, for 8 tokens
    products = 2 * sum(kernel.size * kernel.uses for kernel in shape.kernels)
    states = 2 * sum(layer.state_products for layer in shape.layers)
    products_of_state = {"short_convolution": 0, "gated_delta_rule": 3, "state_space": 2}[kind]
    assert states == 2 * 2 * products_of_state * 4 * 4 * 6
    assert forward_operations(shape, 1, 8) == 8 * (products + scores + states)
    assert memory_of(shape, Job(config, 2, 8)).activations > 0
    assert min(zoo.config.minimum_weight_counts(config).values()) >= 0
    assert sum(zoo.config.minimum_weight_counts(config).values()) <= shape.parameters


@pytest.mark.parametrize(
    ("choices", "message"),
    [
        ({"architecture": "encoder"}, "mixer must be None with architecture='encoder'"),
        ({"layer_groups": 1}, "layer_groups must be None with mixer"),
        ({"mixer": {"kind": "convolution"}}, "mixer.kind must be one of"),
        (
            {"mixer": {"kind": "short_convolution", "key_dim": 4}},
            "mixer.key_dim must be None with mixer.kind='short_conv",
        ),
        ({"mixer": {"kind": "gated_delta_rule", "num_heads": 4}}, "mixer.key_dim must be given with mixer.kind='gated"),
        (
            {"mixer": {"kind": "gated_delta_rule", "use_bias": True}},
            "mixer.use_bias must be False with mixer.kind='gated",
        ),
        (
            {"mixer": {"kind": "gated_delta_rule", "num_heads": 4, "key_dim": 4, "num_key_heads": 3}},
            "mixer.num_key_heads must be None or a divisor of num_heads=4",
        ),
        (
            {"mixer": {"kind": "state_space", "num_heads": 4, "key_dim": 4, "step_limit": (0.5, 0.1)}},
            "mixer.step_limit must be a number of at least 0 and a greater one",
        ),
        (
            {"feed_forward": {"intermediate_dim": 24, "layers": (False,)}},
            "feed_forward.intermediate_dim must be 2048 where feed_forward.layers has no layer",
        ),
        (
            {"feed_forward": {"num_experts": 2, "expert_layers": (True,), "layers": (True, False)}},
            "feed_forward.expert_layers must be None with feed_forward.layers",
        ),
        ({"mixer": {"kind": "short_convolution", "layers": (False,)}}, "mixer.layers must be None, or a pattern with"),
    ],
)
def test_errors(choices, message):
    values = config_of("short_convolution").to_dict()
    with pytest.raises(ChoiceError, match=message):
        zoo.config.config_from_dict(values | choices)


def test_gradients_reach_all_weights(backbone):
    tf = pytest.importorskip("tensorflow")
    inputs = {"token_ids": np.arange(10).reshape(2, 5), "padding_mask": np.ones((2, 5), "bool")}
    with tf.GradientTape() as tape:
        loss = ops.mean(ops.square(backbone.logits(backbone(inputs, training=True))))
    gradients = tape.gradient(loss, [weight.value for weight in backbone.trainable_weights])
    assert all(np.abs(tf.convert_to_tensor(gradient)).max() > 0 for gradient in gradients)
