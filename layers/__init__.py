"""Keras layers for sequence models: attention, positions, norms, feed-forward networks, embeddings, blocks."""

from layers.attention import (
    AdditiveAttention,
    AttentionMask,
    BilinearAttention,
    DistanceKernelAttention,
    DotAttention,
    MultiHeadAttention,
    make_scored_attention,
)
from layers.block import TransformerBlock
from layers.constructor_arguments import ConfigFromArguments
from layers.dropout import Dropout
from layers.embeddings import SegmentEmbedding, TokenEmbedding
from layers.feed_forward import FeedForward
from layers.gated_delta_rule import GatedDeltaRule
from layers.masked_batch_norm import MaskedBatchNorm
from layers.mixers import ConvolutionMixer
from layers.mixture_of_experts import MixtureOfExperts
from layers.norm_makers import NormMaker, make_norm
from layers.norms import DynamicTanh, LayerNorm, RMSNorm, ScaleNorm
from layers.positions import (
    ALiBi,
    DisentangledPositions,
    LearnedPositionEmbedding,
    PositionEncoding,
    RelativePositionBias,
    RotaryEmbedding,
    ShawRelativePositions,
    SinusoidalPositionEncoding,
    XPos,
    register_position,
)
from layers.recurrent import (
    AttentionWindow,
    RecurrentDecoder,
    RecurrentEncoder,
    RecurrentLayer,
    RecurrentReadout,
    ScheduledSampling,
)
from layers.short_convolution import ShortConvolution
from layers.state_space import StateSpace

__all__ = [
    "ALiBi",
    "AdditiveAttention",
    "AttentionMask",
    "AttentionWindow",
    "BilinearAttention",
    "ConfigFromArguments",
    "ConvolutionMixer",
    "DistanceKernelAttention",
    "DotAttention",
    "Dropout",
    "DynamicTanh",
    "FeedForward",
    "GatedDeltaRule",
    "LayerNorm",
    "LearnedPositionEmbedding",
    "MaskedBatchNorm",
    "MixtureOfExperts",
    "MultiHeadAttention",
    "NormMaker",
    "PositionEncoding",
    "RMSNorm",
    "RecurrentDecoder",
    "RecurrentEncoder",
    "RecurrentLayer",
    "RecurrentReadout",
    "RelativePositionBias",
    "RotaryEmbedding",
    "ScaleNorm",
    "ScheduledSampling",
    "SegmentEmbedding",
    "ShortConvolution",
    "DisentangledPositions",
    "ShawRelativePositions",
    "SinusoidalPositionEncoding",
    "StateSpace",
    "TokenEmbedding",
    "TransformerBlock",
    "XPos",
    "make_norm",
    "make_scored_attention",
    "register_position",
]
