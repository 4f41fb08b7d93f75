"""Encoders whose windows have global tokens: which ones without any that are given."""

import numpy as np
import pytest

import zoo
from zoo.planning import Job, memory_of, model_shape, without_values

LENGTH = 7
MASK = np.arange(LENGTH) < np.array([[LENGTH], [5]])
TOKEN_IDS = np.random.default_rng(0).integers(0, 20, (2, LENGTH))


def config_of(architecture, kind):
    return zoo.TransformerConfig(
        architecture,
        vocabulary_size=20,
        hidden_dim=8,
        num_layers=2,
        max_length=LENGTH,
        attention=zoo.AttentionConfig(2, window=(1, 1), global_tokens=kind),
        feed_forward=zoo.FeedForwardConfig(16),
    )


def outputs(backbone, global_mask=None, segments=None):
    inputs, side = {"token_ids": TOKEN_IDS, "padding_mask": MASK}, ""
    if segments is not None:
        inputs["sequence_ids"] = segments
    if backbone.config.architecture == "encoder_decoder":
        side = "encoder_"
        inputs = {f"{side}{name}": values for side in ("encoder_", "decoder_") for name, values in inputs.items()}
    if global_mask is not None:
        inputs[f"{side}global_mask"] = global_mask
    results = backbone(inputs)
    return np.asarray(results["decoder_sequence_output"] if side else results)


@pytest.mark.parametrize("architecture", ["encoder", "encoder_decoder"])
@pytest.mark.parametrize("is_packed", [False, True])
def test_the_first_token_of_each_text_is_global_by_default(architecture, is_packed):
    segments = np.array([[1, 1, 1, 2, 2, 2, 2], [1, 1, 2, 2, 2, 0, 0]]) if is_packed else None
    first = np.zeros((2, LENGTH), "bool")
    first[:, 0] = True
    if is_packed:
        first[0, 3] = first[1, 2] = True
    default, given = (zoo.Backbone.from_config(config_of(architecture, kind)) for kind in ("first", "given"))
    generator = np.random.default_rng(1)
    for weight, other in zip(default.weights, given.weights, strict=True):
        weight.assign(generator.normal(0, 0.5, weight.shape))
        other.assign(weight)
    wanted = outputs(given, first, segments)[MASK]
    np.testing.assert_allclose(outputs(default, segments=segments)[MASK], wanted, rtol=1e-5, atol=1e-6)
    # they count, and one that is given comes first
    assert np.abs(outputs(given, segments=segments)[MASK] - wanted).max() > 0.01
    second = np.roll(first, 1, axis=1)
    np.testing.assert_allclose(
        outputs(default, second, segments)[MASK], outputs(given, second, segments)[MASK], rtol=1e-5, atol=1e-6
    )


def test_plans_count_their_projections():
    configs = [config_of("encoder", kind) for kind in (None, "first")]
    plain, with_global = (
        memory_of(model_shape(without_values(config)), Job(config, 4, LENGTH, dtype="float32")).activations
        for config in configs
    )
    # queries, keys and values of eight features in two layers
    assert with_global - plain == 4 * LENGTH * 2 * 3 * 8 * 4
