"""Position encodings: how a model knows the order of its tokens.

Every layer here takes the positions as integers of shape `(length,)` or `(batch, length)`, instead of assuming 0, 1,
2, ... Rows that continue a key-value cache, left-padded rows and packed texts therefore need no other code. The base
class `PositionEncoding` has a hook for each place at which positions can enter a model: embeddings, queries and keys,
scores, output. `register_position` makes an encoding known by name.
"""

from layers.positions.alibi import ALiBi, alibi_slopes
from layers.positions.base import (
    NO_POSITION,
    PositionEncoding,
    make_position,
    position_class,
    position_kinds,
    register_position,
)
from layers.positions.disentangled import DisentangledPositions
from layers.positions.learned import LearnedPositionEmbedding
from layers.positions.relative_bias import RelativePositionBias, relative_position_buckets
from layers.positions.rotary import RotaryEmbedding
from layers.positions.rotary_scaling import ROTARY_SCALINGS
from layers.positions.shaw import ShawRelativePositions
from layers.positions.sinusoidal import SinusoidalPositionEncoding
from layers.positions.xpos import XPos

__all__ = [
    "NO_POSITION",
    "PositionEncoding",
    "XPos",
    "make_position",
    "position_class",
    "position_kinds",
    "register_position",
    "ROTARY_SCALINGS",
    "ALiBi",
    "DisentangledPositions",
    "LearnedPositionEmbedding",
    "RelativePositionBias",
    "RotaryEmbedding",
    "ShawRelativePositions",
    "SinusoidalPositionEncoding",
    "alibi_slopes",
    "relative_position_buckets",
]
