"""How a model knows where a token stands.

Every layer here takes the positions themselves, integers of shape `(length,)` or `(batch, length)`, instead of
assuming 0, 1, 2, ...: a row that starts in the middle (a key-value cache), a left-padded row and several texts packed
in one row are other numbers, not other code. The class attribute `acts_on` says where a layer comes in: `"embedding"`
(its output is added to the token embeddings), `"query_key"` (it rotates queries and keys), `"scores"` (its output is
added to the attention scores) or `"keys_and_values"` (it adds to the scores and to the output of attention).
"""

from layers.positions.learned import LearnedPositionEmbedding
from layers.positions.rotary import RotaryEmbedding
from layers.positions.sinusoidal import SinusoidalPositionEncoding

__all__ = ["LearnedPositionEmbedding", "RotaryEmbedding", "SinusoidalPositionEncoding"]
