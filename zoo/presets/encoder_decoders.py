"""Encoder-decoders after the original one: T5 and BART."""

from zoo.config import (
    AttentionConfig,
    EmbeddingConfig,
    FeedForwardConfig,
    NormConfig,
    PositionConfig,
    TransformerConfig,
)
from zoo.presets.catalogue import register_listed


def t5_config(
    hidden_dim: int,
    intermediate_dim: int,
    num_layers: int,
    num_heads: int,
    *,
    gated: bool = False,
    vocabulary_size: int = 32128,
    head_dim: int = 64,
    dropout: float = 0.1,
) -> TransformerConfig:
    """Returns the configuration of a T5: RMS pre-norm, no biases, relative position bias, scores without a scale.

    Args:
        hidden_dim, num_layers, vocabulary_size, dropout: See `TransformerConfig`.
        intermediate_dim: Width of the inner layer.
        num_heads, head_dim: Number and width of heads.
        gated: Whether it is version 1.1: a network gated by GELU, the output not tied to the embedding.

    Example:

    >>> t5_config(512, 2048, 6, 8).embedding.output_scale == 512**-0.5
    True
    """
    return TransformerConfig(
        "encoder_decoder",
        vocabulary_size,
        hidden_dim=hidden_dim,
        num_layers=num_layers,
        max_length=512,
        attention=AttentionConfig(num_heads, head_dim=head_dim, use_bias=False, scale=1.0, dropout=dropout),
        position=PositionConfig("relative_bias", num_buckets=32, max_distance=128),
        norm=NormConfig("rms", "pre", epsilon=1e-6),
        feed_forward=FeedForwardConfig(
            intermediate_dim, "gelu_tanh" if gated else "relu", gated=gated, use_bias=False, dropout=dropout
        ),
        embedding=EmbeddingConfig(tie_output=not gated, output_scale=None if gated else hidden_dim**-0.5),
        dropout=dropout,
    )


register_listed("t5_small", t5_config(512, 2048, 6, 8))
register_listed("t5_base", t5_config(768, 3072, 12, 12))
register_listed("flan_t5_small", t5_config(512, 1024, 8, 6, gated=True))
register_listed(
    "bart_base",
    TransformerConfig(
        "encoder_decoder",
        50265,
        hidden_dim=768,
        num_layers=6,
        max_length=1024,
        attention=AttentionConfig(12, dropout=0.1),
        position=PositionConfig("learned", offset=2),
        norm=NormConfig("layer", "post", epsilon=1e-5, embedding=True),
        feed_forward=FeedForwardConfig(3072, "gelu", dropout=0.1),
        dropout=0.1,
        initializer_range=0.02,
    ),
)
