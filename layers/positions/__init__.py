"""How a model knows where a token stands.

Every layer here takes the positions themselves, integers of shape `(length,)` or `(batch, length)`, instead of
assuming 0, 1, 2, ...: a row that starts in the middle (a key-value cache), a left-padded row and several texts packed
in one row are other numbers, not other code. The class attribute `acts_on` says where a layer comes in: `"embedding"`
(its output is added to the token embeddings), `"query_key"` (it rotates queries and keys), `"scores"` (its output is
added to the attention scores) or `"keys_and_values"` (it adds to the scores and to the output of attention).
"""

from layers.positions.alibi import ALiBi, alibi_slopes
from layers.positions.learned import LearnedPositionEmbedding
from layers.positions.relative_bias import RelativePositionBias, relative_position_buckets
from layers.positions.rotary import RotaryEmbedding
from layers.positions.rotary_scaling import ROTARY_SCALINGS
from layers.positions.shaw import ShawRelativePositions
from layers.positions.sinusoidal import SinusoidalPositionEncoding

__all__ = [
    "ROTARY_SCALINGS",
    "ALiBi",
    "LearnedPositionEmbedding",
    "RelativePositionBias",
    "RotaryEmbedding",
    "ShawRelativePositions",
    "SinusoidalPositionEncoding",
    "alibi_slopes",
    "relative_position_buckets",
]
