"""Encoder-only models: BERT and those that follow it."""

from zoo.config import (
    AttentionConfig,
    EmbeddingConfig,
    FeedForwardConfig,
    NormConfig,
    PositionConfig,
    TransformerConfig,
)
from zoo.presets.catalogue import register_listed


def bert_config(
    vocabulary_size: int = 30522,
    hidden_dim: int = 768,
    num_layers: int = 12,
    num_heads: int = 12,
    *,
    num_segments: int = 2,
    position_offset: int = 0,
    max_length: int = 512,
    epsilon: float = 1e-12,
    pooler: bool = True,
    dropout: float = 0.1,
) -> TransformerConfig:
    """Returns the configuration of a BERT: post-norm, GELU, learned positions, a norm on the embedding.

    Args:
        vocabulary_size, hidden_dim, num_layers, max_length, pooler, dropout: See `TransformerConfig`.
        num_heads: Number of attention heads.
        num_segments: Number of segment ids, 0 for no segment embedding.
        position_offset: Added to each position, see `PositionConfig`; where it is above 0, padding has no positions.
        epsilon: Epsilon of the norms.

    Example:

    >>> bert_config(hidden_dim=128, num_layers=2, num_heads=2).feed_forward.intermediate_dim
    512
    """
    return TransformerConfig(
        "encoder",
        vocabulary_size,
        hidden_dim=hidden_dim,
        num_layers=num_layers,
        max_length=max_length,
        attention=AttentionConfig(num_heads, dropout=dropout),
        position=PositionConfig("learned", offset=position_offset, skips_padding=position_offset > 0),
        norm=NormConfig("layer", "post", epsilon=epsilon, embedding=True),
        feed_forward=FeedForwardConfig(4 * hidden_dim, "gelu"),
        embedding=EmbeddingConfig(num_segments=num_segments),
        dropout=dropout,
        pooler=pooler,
        initializer_range=0.02,
    )


def modernbert_config(
    vocabulary_size: int,
    hidden_dim: int,
    intermediate_dim: int,
    num_layers: int,
    num_heads: int,
    max_length: int,
    dropout: float = 0.0,
) -> TransformerConfig:
    """Returns the configuration of a ModernBERT: GEGLU, no biases, one layer in three with global attention.

    Args:
        vocabulary_size, hidden_dim, num_layers, max_length, dropout: See `TransformerConfig`.
        intermediate_dim: Width of the gated network.
        num_heads: Number of attention heads.

    Example:

    >>> modernbert_config(8000, 256, 384, 6, 4, 512).position.local_base
    10000.0
    """
    return TransformerConfig(
        "encoder",
        vocabulary_size,
        hidden_dim=hidden_dim,
        num_layers=num_layers,
        max_length=max_length,
        attention=AttentionConfig(
            num_heads, use_bias=False, window=(64, 64), window_layers=(False, True, True), dropout=dropout
        ),
        position=PositionConfig("rotary", base=160000.0, local_base=10000.0),
        norm=NormConfig("layer", "pre", epsilon=1e-5, use_bias=False, embedding=True, first_attention=False),
        feed_forward=FeedForwardConfig(intermediate_dim, "gelu", gated=True, use_bias=False),
        dropout=dropout,
        initializer_range=0.02,
        scale_residual_initializer=True,  # as Megatron; Warner et al. 2024, "Weight Initialization and Tiling"
    )


# name: hidden_dim, num_layers, num_heads
SIZES = {
    "tiny": (128, 2, 2),
    "mini": (256, 4, 4),
    "small": (512, 4, 8),
    "medium": (512, 8, 8),
    "base": (768, 12, 12),
    "large": (1024, 24, 16),
}

for size, (width, layers, heads) in SIZES.items():
    register_listed(f"bert_{size}_uncased", bert_config(30522, width, layers, heads))
for size in ("base", "large"):
    register_listed(f"bert_{size}_cased", bert_config(28996, *SIZES[size]))
register_listed("minilm_l6", bert_config(30522, 384, 6, 12))
register_listed(
    "roberta_base",
    # trained without a task for a pooler; position 2 is the first
    bert_config(50265, 768, 12, 12, num_segments=1, position_offset=2, epsilon=1e-5, pooler=False),
)
register_listed("distilbert_base_uncased", bert_config(30522, 768, 6, 12, num_segments=0, pooler=False))
register_listed("modernbert_base", modernbert_config(50368, 768, 1152, 22, 12, 8192))
