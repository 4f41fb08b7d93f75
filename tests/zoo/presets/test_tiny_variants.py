"""Every published design, made tiny: rows do not depend on each other, and cached decoding gives the full pass."""

import dataclasses

import keras
import numpy as np
import pytest
from keras import ops

from zoo import Backbone, FeedForwardConfig, TransformerConfig, list_presets
from zoo.storage.deferred import deferred

VOCABULARY = 30
# float32, other orders of summation, two or three layers deep
TOLERANCE = {"atol": 5e-5, "rtol": 5e-5}


def shrunk(config):
    """The same choices with small numbers."""
    attention, position = config.attention, config.position
    has_groups = attention.num_key_value_heads not in (None, attention.num_heads)
    window = attention.window and tuple(side and 2 for side in attention.window)
    if position.scaling:
        scaling = {**position.scaling, "original_max_position_embeddings": 16}
        position = dataclasses.replace(position, scaling=scaling)
    if position.kind == "relative_bias":
        position = dataclasses.replace(position, num_buckets=8, max_distance=6)
    return dataclasses.replace(
        config,
        vocabulary_size=VOCABULARY,
        hidden_dim=16,
        num_layers=len(attention.window_layers or (0, 0)),
        max_length=24,
        attention=dataclasses.replace(
            attention,
            num_heads=4,
            num_key_value_heads=2 if has_groups else None,
            head_dim=attention.head_dim and 6,
            window=window,
        ),
        position=position,
        feed_forward=dataclasses.replace(config.feed_forward, intermediate_dim=24),
    )


def designs():
    """One configuration for each design, by the name of its first preset."""
    found = {}
    for name, preset in list_presets().items():
        if isinstance(preset.config, TransformerConfig):
            config = shrunk(preset.config)
            if config not in found.values():
                found[name] = config
    return found


DESIGNS = designs()


def made(config):
    backbone = Backbone.from_config(config)
    generator = np.random.default_rng(1)
    for weight in backbone.weights:
        weight.assign(weight + generator.normal(0, 0.2, weight.shape))
    return backbone


def array(x):
    return ops.convert_to_numpy(x)


def rows(lengths, seed):
    mask = np.arange(max(lengths)) < np.array(lengths)[:, None]
    return np.random.default_rng(seed).integers(1, VOCABULARY, mask.shape).astype("int32"), mask


def inputs_of(architecture, lengths, other_lengths):
    ids, mask = rows(lengths, 0)
    if architecture != "encoder_decoder":
        return {"token_ids": ids, "padding_mask": mask}
    decoder_ids, decoder_mask = rows(other_lengths, 1)
    return {
        "encoder_token_ids": ids,
        "encoder_padding_mask": mask,
        "decoder_token_ids": decoder_ids,
        "decoder_padding_mask": decoder_mask,
    }


@pytest.mark.sampled(8)
@pytest.mark.parametrize("name", DESIGNS)
def test_rows_and_decoding(name):
    config = DESIGNS[name]
    backbone, lengths, other_lengths = made(config), (7, 4), (3, 6)
    inputs = inputs_of(config.architecture, lengths, other_lengths)

    def outputs(inputs):
        result = backbone(inputs)
        return array(result["decoder_sequence_output"] if isinstance(result, dict) else result)

    expected = outputs(inputs)
    side = other_lengths if config.architecture == "encoder_decoder" else lengths
    assert expected.shape == (2, max(side), 16) and np.isfinite(expected).all()
    second = {key: value[1:, : other_lengths[1] if "decoder" in key else lengths[1]] for key, value in inputs.items()}
    np.testing.assert_allclose(outputs(second)[0], expected[1, : side[1]], **TOLERANCE)
    if config.architecture == "encoder":
        return
    # the capacity is larger than the text, as it usually is
    prefix = "decoder_" if config.architecture == "encoder_decoder" else ""
    start = inputs if prefix else {"padding_mask": np.ones((2, 7), "bool")}
    state, constants = backbone.start_decoding(start, capacity=20)
    logits = array(backbone.logits(expected))
    for index in range(max(side)):
        step, state = backbone.decode_step(inputs[f"{prefix}token_ids"][:, index], index, state, constants)
        real = inputs[f"{prefix}padding_mask"][:, index]
        np.testing.assert_allclose(array(step)[real], logits[real, index], atol=2e-4, rtol=2e-4)


@pytest.mark.sampled(8)
@pytest.mark.parametrize("name", [*DESIGNS, "experts"])
def test_initial_weights_do_not_depend_on_when_they_are_made(name):
    """Models that several devices share are made without values, and get them at the end."""
    config = DESIGNS.get(name) or dataclasses.replace(
        DESIGNS["gpt2_small"], feed_forward=FeedForwardConfig(24, num_experts=3)
    )
    keras.utils.set_random_seed(0)
    expected = Backbone.from_config(config).get_weights()
    keras.utils.set_random_seed(0)
    with deferred():
        backbone = Backbone.from_config(config)
    for weight, value in zip(backbone.weights, expected, strict=True):
        np.testing.assert_array_equal(array(weight), value, err_msg=weight.path)


def test_designs_differ():
    # those that only differ in size are one
    assert len(DESIGNS) > 12 and {"gpt2_small", "bart_base", "modernbert_base", "gemma_2_2b"} <= set(DESIGNS)
    assert "gpt2_xl" not in DESIGNS and "bert_large_cased" not in DESIGNS
