"""Small Transformers with random weights, and inputs for them."""

import numpy as np
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
POSITIONS = ("none", "sinusoidal", "learned", "rotary", "relative_bias", "alibi", "shaw", "xpos")


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
