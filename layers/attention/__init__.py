"""Attention: multi-head, its masks, kernels, weighting and key-value caches, and the scores of recurrent models."""

from layers.attention.cache import CacheLayout, RollingCache, WholeCache
from layers.attention.kernels import attend, choose_path, path_up_to
from layers.attention.latents import Latents
from layers.attention.masks import AttentionMask
from layers.attention.multi_head_attention import MultiHeadAttention
from layers.attention.scores import (
    AdditiveAttention,
    BilinearAttention,
    DistanceKernelAttention,
    DotAttention,
    make_scored_attention,
)
from layers.attention.weighting import AttentionWeighting, dot_products, hide

__all__ = [
    "AdditiveAttention",
    "AttentionMask",
    "AttentionWeighting",
    "BilinearAttention",
    "CacheLayout",
    "DistanceKernelAttention",
    "DotAttention",
    "Latents",
    "MultiHeadAttention",
    "RollingCache",
    "WholeCache",
    "attend",
    "choose_path",
    "dot_products",
    "hide",
    "make_scored_attention",
    "path_up_to",
]
