"""Extrapolatable rotary positions (xPos)."""

from typing import Any

import keras
import numpy as np
from keras import ops

from layers.positions.base import check_above_zero, float32_or_wider, register_position
from layers.positions.rotary import RotaryEmbedding


@register_position("xpos")
@keras.saving.register_keras_serializable("keras_transformer_zoo")
class XPos(RotaryEmbedding):
    """Rotary positions with a factor on queries and keys, so that scores decay with the distance (xPos).

    In the paper, pair `i` of a query at position `p` is rotated and multiplied by `zeta_i ** (p / scale_base)`, that of
    a key by `zeta_i ** (-p / scale_base)`, with `zeta_i = (2 i / rotary_dim + gamma) / (1 + gamma)`. Their product has
    the factor `zeta_i ** ((p_query - p_key) / scale_base)`. It is at most 1 if the key is before the query, so xPos is
    for causal attention only. Pairs with high frequencies, which say little about long distances, decay fastest.

    Only the distance counts, so positions are taken from the last query of the call: factors stay finite at any
    position, and a cache holds keys without a factor. Queries of one call may be about 64 times `scale_base` positions
    apart in float32 and bfloat16, and 7 times in float16. Beyond, the first of them lose their fastest pairs.

    Args:
        head_dim: Width of a head.
        scale_base: Number of positions over which pair `i` decays by `zeta_i`; 512 in the published code.
        gamma: The larger, the slower the decay; 0.4 in the paper.
        **kwargs: Further arguments of `RotaryEmbedding`. The paper uses the layout `"interleaved"`.

    Example:

    >>> attention = MultiHeadAttention(8, 64, causal=True, position=XPos(64))

    Reference:
        Sun et al. 2023, "A Length-Extrapolatable Transformer", section 3 and algorithm 1.
    """

    def __init__(self, head_dim: int, *, scale_base: float = 512.0, gamma: float = 0.4, **kwargs: Any) -> None:
        super().__init__(head_dim, **kwargs)
        self.scale_base = check_above_zero("scale_base", scale_base)
        self.gamma = check_above_zero("gamma", gamma)

    def on_pairs(self, query: Any, key: Any, query_positions: Any, key_positions: Any) -> tuple[Any, Any]:
        last = ops.max(query_positions, axis=-1, keepdims=True, initial=0)
        most = 9.0 if keras.backend.standardize_dtype(query.dtype) == "float16" else 80.0
        # no key that is seen comes after all queries; those of empty slots must stay finite
        return (
            query * self._factor(query_positions - last, query.dtype, (-most, most)),
            key * self._factor(last - key_positions, key.dtype, (-most, 0.25 * most)),
        )

    def _factor(self, distance: Any, dtype: str, limits: tuple[float, float]) -> Any:
        """`zeta ** (distance / scale_base)`, `(1 or batch, 1, length, head_dim)`; 1 for features without rotation."""
        zeta = (np.arange(0, self.rotary_dim, 2) / self.rotary_dim + self.gamma) / (1 + self.gamma)
        logarithms = np.log(zeta) / self.scale_base
        # both features of a pair have the same factor
        logarithms = np.tile(logarithms, 2) if self.layout == "half_split" else np.repeat(logarithms, 2)
        rest = self.head_dim - self.rotary_dim - self.rotary_start
        logarithms = np.pad(logarithms, (self.rotary_start, rest))
        wide = float32_or_wider(dtype)
        exponents = ops.expand_dims(ops.cast(distance, wide), -1) * ops.cast(logarithms, wide)
        factor = ops.cast(ops.exp(ops.clip(exponents, *limits)), dtype)
        return ops.expand_dims(factor, -3) if len(factor.shape) == 3 else factor
