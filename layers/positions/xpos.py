"""Extrapolatable rotary positions (xPos)."""

from typing import Any

import keras
import numpy as np
from keras import ops

from layers.positions.base import check_above_zero, register_position
from layers.positions.rotary import RotaryEmbedding


@register_position("xpos")
@keras.saving.register_keras_serializable("keras_transformer_zoo")
class XPos(RotaryEmbedding):
    """Rotary positions with a factor on queries and keys, so that scores decay with the distance (xPos).

    Pair `i` of a query at position `p` is rotated and multiplied by `zeta_i ** (p / scale_base)`, that of a key by
    `zeta_i ** (-p / scale_base)`, with `zeta_i = (2 i / rotary_dim + gamma) / (1 + gamma)`. Their product has the
    factor `zeta_i ** ((p_query - p_key) / scale_base)`. It is at most 1 if the key is before the query, so xPos is for
    causal attention only. Pairs with high frequencies, which say little about long distances, decay fastest.

    Keys grow without bound with the position. They overflow beyond about 70 times `scale_base` in float32, and beyond
    about 9 times in float16.

    Args:
        head_dim: Width of a head.
        scale_base: Number of positions over which pair `i` decays by `zeta_i`; 512 in the published code.
        gamma: The larger, the slower the decay; 0.4 in the paper.
        **kwargs: Further arguments of `RotaryEmbedding`. The paper uses the layout `"interleaved"`.

    Call arguments:
        x: Queries. For keys use `on_keys`. All call arguments are those of `RotaryEmbedding`.

    Example:

    >>> attention = MultiHeadAttention(8, 64, causal=True, position=XPos(64))

    Reference:
        Sun et al. 2023, "A Length-Extrapolatable Transformer", section 3 and algorithm 1.
    """

    def __init__(self, head_dim: int, *, scale_base: float = 512.0, gamma: float = 0.4, **kwargs: Any) -> None:
        super().__init__(head_dim, **kwargs)
        self.scale_base = check_above_zero("scale_base", scale_base)
        self.gamma = check_above_zero("gamma", gamma)

    def prepare(self, positions: Any, sequence_length: Any = None) -> Any:
        cos, sin = self.cos_sin(positions, sequence_length)
        growth = self._growth(positions, cos.dtype)
        # both features of a pair have the same factor, so it is multiplied into cosine and sine
        return {"query": (cos * growth, sin * growth), "key": (cos / growth, sin / growth)}

    def on_queries(self, query: Any, prepared: Any) -> Any:
        return self.rotate(query, *prepared["query"])

    def on_keys(self, key: Any, prepared: Any) -> Any:
        return self.rotate(key, *prepared["key"])

    def _growth(self, positions: Any, dtype: Any) -> Any:
        """`zeta ** (position / scale_base)` per feature, `(*positions.shape, rotary_dim)`."""
        zeta = (np.arange(0, self.rotary_dim, 2) / self.rotary_dim + self.gamma) / (1 + self.gamma)
        logarithms = np.log(zeta) / self.scale_base
        logarithms = np.tile(logarithms, 2) if self.layout == "half_split" else np.repeat(logarithms, 2)
        positions = ops.cast(ops.convert_to_tensor(positions), dtype)
        return ops.exp(ops.expand_dims(positions, -1) * ops.cast(logarithms, dtype))

    def get_config(self) -> dict[str, Any]:
        return {**super().get_config(), "scale_base": self.scale_base, "gamma": self.gamma}
