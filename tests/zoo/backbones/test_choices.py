"""Choices that model families differ in: against NumPy, alone and padded, step by step, saved and quantized."""

import dataclasses

import keras
import numpy as np
import pytest
from numpy_transformer import hidden_states
from small_transformers import TOLERANCE, array, below, made, token_ids

from zoo import (
    AttentionConfig,
    Backbone,
    CausalLM,
    EmbeddingConfig,
    FeedForwardConfig,
    NormConfig,
    PositionConfig,
    TextEmbedder,
    TransformerConfig,
)

ROTARY = PositionConfig("rotary", base=100.0)
WINDOW = AttentionConfig(num_heads=4, num_key_value_heads=1, head_dim=6, window=(2, 0), window_layers=(True, False))
CHOICES = {
    "positions_in_some_layers": {
        "position": PositionConfig("rotary", base=100.0, layers=(True, False)),
        "attention": WINDOW,
        "num_layers": 3,
        "embedding": EmbeddingConfig(scale=3.5),
        "branch_scale": 0.4,
    },
    "local_layers_without_scaling": {
        "position": PositionConfig(
            "rotary", base=100.0, local_base=20.0, scaling={"kind": "linear", "factor": 4.0}, local_scaling=False
        ),
        "attention": dataclasses.replace(WINDOW, query_key_norm="rms"),
        "norm": NormConfig("rms", "pre", unit_offset=True),
    },
    "norms_with_weights_for_each_head": {
        "position": ROTARY,
        "attention": AttentionConfig(
            num_heads=4, num_key_value_heads=2, query_key_norm="layer", query_key_norm_scope="per_head"
        ),
        "norm": NormConfig("layer", "pre", use_bias=False, unit_offset=True),
        "layer_groups": 2,
        "num_layers": 3,
    },
    "narrow_embedding_with_norm": {
        "architecture": "encoder",
        "position": PositionConfig("learned"),
        "embedding": EmbeddingConfig(factor_dim=6, factor_bias=True, factor_after_norm=True, num_segments=2),
        "norm": NormConfig("layer", "post", embedding=True),
        "layer_groups": 1,
        "attention_position": PositionConfig("relative_bias"),
    },
    "outputs_with_a_factor_of_their_own": {
        "position": PositionConfig("learned"),
        "embedding": EmbeddingConfig(factor_dim=6, factor_output=True),
    },
    "disentangled_positions": {
        "architecture": "encoder",
        "position": PositionConfig("learned"),
        "attention_position": PositionConfig(
            "disentangled", num_buckets=4, max_distance=8, options={"norm_epsilon": 1e-3}
        ),
        "attention": AttentionConfig(num_heads=4, scale=0.3),
    },
    "disentangled_positions_of_a_decoder": {
        "position": PositionConfig(
            "disentangled", max_distance=3, options={"buckets": False, "position_to_content": True}
        ),
        "attention": AttentionConfig(num_heads=4, num_key_value_heads=2, head_dim=6, window=(4, 0)),
    },
    "experts_in_some_layers": {
        "position": ROTARY,
        "feed_forward": FeedForwardConfig(
            6,
            "quick_gelu",
            gated=True,
            gate_limit=0.8,
            up_offset=1.0,
            num_experts=4,
            router_bias=True,
            shared_intermediate_dim=5,
            shared_gate=True,
            expert_layers=(False, True),
            dense_intermediate_dim=10,
        ),
    },
}


def inputs_of(lengths):
    mask = below(lengths, max(lengths))
    return {"token_ids": token_ids(*mask.shape), "padding_mask": mask}


@pytest.fixture(params=CHOICES, scope="module")
def backbone(request):
    return made(**{"architecture": "decoder", "dropout": 0.0, **CHOICES[request.param]})


def copy(backbone, **changes):
    again = Backbone.from_config(dataclasses.replace(backbone.config, **changes))
    again.set_weights(backbone.get_weights())
    return again


def test_formula(backbone):
    inputs = inputs_of([7])
    expected = hidden_states(backbone, inputs["token_ids"][0])
    np.testing.assert_allclose(array(backbone(inputs))[0], expected, **TOLERANCE)


def test_padded_batch_is_each_alone(backbone):
    inputs = inputs_of([7, 3])
    together = array(backbone(inputs))
    alone = array(backbone({name: value[1:, :3] for name, value in inputs.items()}))
    np.testing.assert_allclose(together[1, :3], alone[0], **TOLERANCE)


def test_decoding_prompts_padded_on_the_left_is_the_full_pass(backbone):
    if backbone.config.architecture == "encoder":
        return
    texts, lengths = token_ids(2, 7), [4, 2]
    prompts = np.stack([np.roll(row[:4], 4 - length) for row, length in zip(texts, lengths, strict=True)])
    state, constants = backbone.start_decoding({"padding_mask": below(lengths, 4)[:, ::-1]}, capacity=9)
    _, state = backbone.advance(prompts[:, :3], 0, state, constants)
    token, steps = prompts[:, 3], []
    for index in range(3, 6):
        logits, state = backbone.decode_step(token, index, state, constants)
        steps.append(array(logits))
        token = texts[np.arange(2), np.array(lengths) + index - 3]
    for row, length in enumerate(lengths):
        total = length + 2
        hidden = backbone({"token_ids": texts[row : row + 1, :total], "padding_mask": np.ones((1, total), "bool")})
        expected = array(backbone.logits(hidden))[0, length - 1 :]
        np.testing.assert_allclose(np.stack(steps)[:, row], expected, **TOLERANCE)


def test_file_and_configuration(backbone, tmp_path):
    assert TransformerConfig.from_json(backbone.config.to_json()) == backbone.config
    backbone.save(tmp_path / "backbone.keras")
    loaded, inputs = keras.models.load_model(tmp_path / "backbone.keras"), inputs_of([5])
    np.testing.assert_array_equal(array(loaded(inputs)), array(backbone(inputs)))


def test_computing_again_in_training(backbone):
    again, inputs = copy(backbone, remat=True), inputs_of([5])
    np.testing.assert_allclose(array(again(inputs, training=True)), array(backbone(inputs)), **TOLERANCE)


def test_low_rank_updates_and_integers(backbone):
    adapted, inputs = copy(backbone), inputs_of([5])
    task = (TextEmbedder if adapted.config.architecture == "encoder" else CausalLM)(adapted)
    task.enable_lora(rank=2)
    expected = array(backbone(inputs))
    np.testing.assert_allclose(array(adapted(inputs)), expected, **TOLERANCE)  # they begin at zero
    task.merge_lora()
    adapted.quantize("int8")
    # an eighth bit of each weight and of each input, through four sublayers
    difference = np.abs(array(adapted(inputs)) - expected)
    assert 0 < difference.max() < 0.15 * np.abs(expected).max()
