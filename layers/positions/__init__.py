"""Position encodings: how a model knows the order of its tokens.

Every layer here takes the positions themselves, integers of shape `(length,)` or `(batch, length)`, instead of
assuming 0, 1, 2, ...: a row that starts in the middle (a key-value cache), a left-padded row and several texts packed
in one row are other numbers, not other code. `PositionEncoding`, their base class, has a hook for each place at which a
position can come in: embeddings, queries and keys, scores, output. `register_position` makes one known by name.
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
