"""The original Transformer in its published sizes."""

from zoo.config import AttentionConfig, EmbeddingConfig, FeedForwardConfig, TransformerConfig
from zoo.presets.catalogue import register_listed

# name: hidden_dim, intermediate_dim, num_heads, num_layers, dropout, vocabulary_size, max_length
SIZES = {
    "transformer_base": (512, 2048, 8, 6, 0.1, 37000, 1024),
    "transformer_big": (1024, 4096, 16, 6, 0.3, 37000, 1024),
    "transformer_tiny": (128, 256, 4, 4, 0.3, 10000, 256),
}

for name, (width, intermediate, heads, layers, dropout, vocabulary, length) in SIZES.items():
    register_listed(
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
    )
