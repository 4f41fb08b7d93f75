"""Keras layers for sequence models: attention, positions, norms, feed-forward networks, embeddings, blocks."""

from layers.attention import AttentionMask, MultiHeadAttention
from layers.block import TransformerBlock
from layers.dropout import Dropout
from layers.embeddings import SegmentEmbedding, TokenEmbedding
from layers.feed_forward import FeedForward
from layers.norms import DynamicTanh, LayerNorm, MaskedBatchNorm, RMSNorm, ScaleNorm, make_norm
from layers.positions import (
    ALiBi,
    LearnedPositionEmbedding,
    RelativePositionBias,
    RotaryEmbedding,
    ShawRelativePositions,
    SinusoidalPositionEncoding,
)

__all__ = [
    "ALiBi",
    "AttentionMask",
    "Dropout",
    "DynamicTanh",
    "FeedForward",
    "LayerNorm",
    "LearnedPositionEmbedding",
    "MaskedBatchNorm",
    "MultiHeadAttention",
    "RMSNorm",
    "RelativePositionBias",
    "RotaryEmbedding",
    "ScaleNorm",
    "SegmentEmbedding",
    "ShawRelativePositions",
    "SinusoidalPositionEncoding",
    "TokenEmbedding",
    "TransformerBlock",
    "make_norm",
]
