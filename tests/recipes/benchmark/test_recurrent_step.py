"""The benchmark of recurrent steps compares models that are the same: with equal weights they give equal logits."""

import numpy as np
import pytest

from recipes.benchmark import recurrent_step
from recipes.benchmark.step_data import make_batch
from recipes.common.errors import ConfigError


@pytest.mark.parametrize("kind", ["fixed context", "attention"])
def test_models_are_the_same(kind):
    config = recurrent_step.Config(batch_size=3, length=6, vocabulary_size=20, width=4)
    ours, theirs = recurrent_step.make_zoo_model(config, kind), recurrent_step.make_keras_model(config, kind)
    encoder, decoder = ours.backbone.encoder, ours.backbone.decoder
    parts = [ours.backbone.source_embedding, ours.backbone.target_embedding]
    parts += [layer for directions in encoder.layers_by_direction for layer in directions]
    parts += [*decoder.bridges[0], decoder.recurrent_layers[0], decoder.readout, ours.backbone.output_projection]
    weights = [weight for part in parts for weight in part.get_weights()]
    # in Keras' model the layers stand in the order in which they depend on each other
    for layer in theirs.layers:
        values = layer.get_weights()
        for place, value in enumerate(values):
            match = next(index for index, weight in enumerate(weights) if weight.shape == value.shape)
            values[place] = weights.pop(match)
        layer.set_weights(values)
    assert not weights
    inputs, _, mask = make_batch(config.batch_size, config.length, config.vocabulary_size)
    np.testing.assert_allclose(
        np.asarray(theirs(inputs)) * mask[..., None], np.asarray(ours(inputs)) * mask[..., None], atol=1e-5
    )


def test_a_policy_that_there_is_not():
    with pytest.raises(ConfigError, match="dtypes: .*float17"):
        recurrent_step.main(recurrent_step.Config(dtypes=["float32", "float17"]))
