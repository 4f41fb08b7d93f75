"""Weights of a layer that share an initializer with a seed start different, and the same again and again."""

import keras
import numpy as np
import pytest

from layers import FeedForward, MixtureOfExperts, MultiHeadAttention, ShawRelativePositions
from layers.attention.latents import Latents

SEEDED = keras.initializers.RandomNormal(seed=3)
KEPT = {"kernel_initializer": SEEDED, "bias_initializer": keras.initializers.RandomNormal(seed=1000)}


def latent_attention():
    latents = Latents(8, 8, query_dim=8, use_bias=True, kernel_initializer=SEEDED)
    return MultiHeadAttention(2, 16, value_head_dim=8, latents=latents, output_gate=True, **KEPT)


LAYERS = {
    "attention": lambda: MultiHeadAttention(2, 8, output_gate=True, **KEPT),
    "latents": latent_attention,
    "feed-forward": lambda: FeedForward(16, "silu", gated=True, **KEPT),
    "experts": lambda: MixtureOfExperts(3, 16, shared_intermediate_dim=16, gated=True, **KEPT),
    "shaw": lambda: ShawRelativePositions(8, 4, embeddings_initializer=SEEDED),
}


@pytest.mark.parametrize("name", LAYERS)
def test_each_weight_has_numbers_of_its_own(name):
    def drawn():
        layer = LAYERS[name]()
        layer.build((None, 5, 16) if name != "shaw" else None)
        return {weight.path: keras.ops.convert_to_numpy(weight).ravel() for weight in layer.trainable_weights}

    first, again = drawn(), drawn()
    seeded = {path: values for path, values in first.items() if np.std(values) > 0 and "router" not in path}
    assert len(seeded) > 1
    # a sequence of random numbers that starts the same is the same, whatever the shape
    starts = [tuple(values[:2]) for values in seeded.values()]
    assert len(set(starts)) == len(starts), dict(zip(seeded, starts, strict=True))
    for (path, values), other in zip(first.items(), again.values(), strict=True):
        if path in seeded:
            np.testing.assert_array_equal(values, other)
