"""Attention: multi-head, its masks, kernels and key-value cache, and the scores of recurrent models."""

from layers.attention.cache import make_cache, rolling_positions, write_cache, write_rolling_cache
from layers.attention.kernels import attend, choose_path
from layers.attention.masks import AttentionMask
from layers.attention.multi_head_attention import MultiHeadAttention
from layers.attention.scores import (
    AdditiveAttention,
    BilinearAttention,
    DistanceKernelAttention,
    DotAttention,
    make_scored_attention,
)

__all__ = [
    "AdditiveAttention",
    "AttentionMask",
    "BilinearAttention",
    "DistanceKernelAttention",
    "DotAttention",
    "MultiHeadAttention",
    "attend",
    "choose_path",
    "make_cache",
    "make_scored_attention",
    "rolling_positions",
    "write_cache",
    "write_rolling_cache",
]
