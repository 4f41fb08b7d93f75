"""The original Transformer in its published sizes."""

from zoo.config import AttentionConfig, EmbeddingConfig, FeedForwardConfig, TransformerConfig
from zoo.presets.registry import register_preset

_EMBEDDING = EmbeddingConfig(scale=True)

register_preset(
    "transformer_base",
    TransformerConfig(
        "encoder_decoder",
        vocabulary_size=37000,
        hidden_dim=512,
        num_layers=6,
        max_length=1024,
        attention=AttentionConfig(num_heads=8),
        feed_forward=FeedForwardConfig(2048),
        embedding=_EMBEDDING,
        dropout=0.1,
    ),
    "The base model of the original Transformer, English-German vocabulary.",
    "Vaswani et al. 2017, table 3, base",
)

register_preset(
    "transformer_big",
    TransformerConfig(
        "encoder_decoder",
        vocabulary_size=37000,
        hidden_dim=1024,
        num_layers=6,
        max_length=1024,
        attention=AttentionConfig(num_heads=16),
        feed_forward=FeedForwardConfig(4096),
        embedding=_EMBEDDING,
        dropout=0.3,
    ),
    "The big model of the original Transformer, English-German vocabulary.",
    "Vaswani et al. 2017, table 3, big",
)

register_preset(
    "transformer_tiny",
    TransformerConfig(
        "encoder_decoder",
        vocabulary_size=10000,
        hidden_dim=128,
        num_layers=4,
        max_length=256,
        attention=AttentionConfig(num_heads=4),
        feed_forward=FeedForwardConfig(256),
        embedding=_EMBEDDING,
        dropout=0.3,
    ),
    "A small Transformer for small corpora such as Multi30k.",
    "Wu et al. 2021, \"Good for Misconceived Reasons\", section 4.2 (Transformer-Tiny)",
)
