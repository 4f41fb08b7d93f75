"""The original Transformer in its published sizes."""

from zoo.config import AttentionConfig, EmbeddingConfig, FeedForwardConfig, TransformerConfig
from zoo.presets.registry import register_preset

PAPER = "Vaswani et al. 2017, table 3"
# name: hidden_dim, intermediate_dim, num_heads, num_layers, dropout, vocabulary_size, max_length, description, source,
# parameters
SIZES = {
    "transformer_base": (
        512,
        2048,
        8,
        6,
        0.1,
        37000,
        1024,
        "The base model of the original Transformer.",
        PAPER,
        63082496,
    ),
    "transformer_big": (
        1024,
        4096,
        16,
        6,
        0.3,
        37000,
        1024,
        "The big model of the original Transformer.",
        PAPER,
        214245376,
    ),
    "transformer_tiny": (
        *(128, 256, 4, 4, 0.3, 10000, 256),
        "A small Transformer for small corpora such as Multi30k.",
        'Wu et al. 2021, "Good for Misconceived Reasons", section 4.2 (Transformer-Tiny)',
        2605056,
    ),
}

for name, (width, intermediate, heads, layers, dropout, vocabulary, length, description, source, size) in SIZES.items():
    register_preset(
        name,
        TransformerConfig(
            "encoder_decoder",
            vocabulary_size=vocabulary,
            hidden_dim=width,
            num_layers=layers,
            max_length=length,
            attention=AttentionConfig(num_heads=heads),
            feed_forward=FeedForwardConfig(intermediate),
            embedding=EmbeddingConfig(scale=True),
            dropout=dropout,
        ),
        description,
        source,
        size,
    )
