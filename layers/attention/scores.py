"""Attention of recurrent models: ways to score queries against keys.

All layers here have the same call arguments and return `(context, weights)`. A decoder that attends at each step
projects the keys once, before its loop:

```python
attention = AdditiveAttention(units=128)
attention.build(query_shape=(None, 256), keys_shape=(None, None, 512))
projected_keys = attention.project_keys(memory)
for state in states:
    context, weights = attention(state, values=memory, projected_keys=projected_keys, mask=memory_mask)
```
"""

from collections.abc import Callable
from typing import Any

import keras
from keras import ops

from layers.attention.kernels.plain import to_float32
from layers.attention.scored_attention import ScoredAttention
from layers.dense import Dense


@keras.saving.register_keras_serializable("keras_transformer_zoo")
class AdditiveAttention(ScoredAttention):
    """Additive attention: scores `v^T tanh(W_q q + W_k k)` by a network with one hidden layer.

    Call arguments, results and errors: see `ScoredAttention`.

    Args:
        units: Width of the hidden layer.
        use_bias: Whether the projection of the queries adds a bias.

    Example:

    >>> attention = AdditiveAttention(16)
    >>> context, weights = attention(keras.ops.ones((2, 8)), keras.ops.ones((2, 5, 6)))
    >>> context.shape, weights.shape
    ((2, 6), (2, 5))

    Reference:
        Bahdanau et al. 2015, "Neural Machine Translation by Jointly Learning to Align and Translate", appendix A.1.2.
    """

    def __init__(self, units: int, use_bias: bool = False, **kwargs: Any) -> None:
        super().__init__(**kwargs)
        if units < 1:
            raise ValueError(f"units must be at least 1, got {units}.")
        self.units = units
        self.use_bias = use_bias
        options = {"dtype": self.dtype_policy}
        self.query_projection = Dense(units, use_bias=use_bias, name="query_projection", **options)
        self.key_projection = Dense(units, use_bias=False, name="key_projection", **options)
        self.score_projection = Dense(
            1,
            use_bias=False,
            dtype=keras.backend.result_type(self.variable_dtype, "float32"),  # scores are not rounded to half precision
            name="score_projection",
        )

    def build(
        self,
        query_shape: tuple[int | None, ...],
        keys_shape: tuple[int | None, ...] | None = None,
        values_shape: tuple[int | None, ...] | None = None,
    ) -> None:
        self.query_projection.build(query_shape)
        _build_key_projection(self.key_projection, keys_shape)
        self.score_projection.build((None, self.units))

    def project_keys(self, keys: Any) -> Any:
        """Returns `W_k k`, `(batch, key_length, units)`."""
        return self.key_projection(keys)

    def compute_scores(self, query: Any, projected_keys: Any) -> Any:
        queries = ops.expand_dims(self.query_projection(query), 2)  # (batch, query_length, 1, units)
        hidden = ops.tanh(queries + ops.expand_dims(projected_keys, 1))  # (batch, query_length, key_length, units)
        return ops.squeeze(self.score_projection(hidden), -1)


@keras.saving.register_keras_serializable("keras_transformer_zoo")
class DotAttention(ScoredAttention):
    """Dot-product attention: scores `q^T k`, or `q^T k / sqrt(dim)` with `scaled`. Has no weights.

    Call arguments, results and errors: see `ScoredAttention`.

    Args:
        scaled: Whether scores are divided by the square root of the width of queries and keys.

    Example:

    >>> context, weights = DotAttention(scaled=True)(keras.ops.ones((2, 3, 8)), keras.ops.ones((2, 5, 8)))
    >>> context.shape, weights.shape
    ((2, 3, 8), (2, 3, 5))

    Reference:
        Luong et al. 2015, "Effective Approaches to Attention-based Neural Machine Translation", equation 8, "dot";
        scaled: Vaswani et al. 2017, "Attention Is All You Need", equation 1.
    """

    def __init__(self, scaled: bool = False, **kwargs: Any) -> None:
        super().__init__(**kwargs)
        self.scaled = scaled

    def compute_scores(self, query: Any, projected_keys: Any) -> Any:
        scores = _inner_products(query, projected_keys)
        return scores * query.shape[-1] ** -0.5 if self.scaled else scores


@keras.saving.register_keras_serializable("keras_transformer_zoo")
class BilinearAttention(ScoredAttention):
    """Bilinear attention: scores `q^T W k` with a learned matrix. The widths of queries and keys may differ.

    Call arguments, results and errors: see `ScoredAttention`.

    Example:

    >>> context, weights = BilinearAttention()(keras.ops.ones((2, 8)), keras.ops.ones((2, 5, 6)))
    >>> context.shape, weights.shape
    ((2, 6), (2, 5))

    Reference:
        Luong et al. 2015, "Effective Approaches to Attention-based Neural Machine Translation", equation 8, "general".
    """

    def build(
        self,
        query_shape: tuple[int | None, ...],
        keys_shape: tuple[int | None, ...] | None = None,
        values_shape: tuple[int | None, ...] | None = None,
    ) -> None:
        self.key_projection = Dense(query_shape[-1], use_bias=False, dtype=self.dtype_policy, name="key_projection")
        _build_key_projection(self.key_projection, keys_shape)

    def project_keys(self, keys: Any) -> Any:
        """Returns `W k`, `(batch, key_length, query_dim)`. Call `build` first: it sets the width of the queries."""
        if not self.built:
            raise ValueError("build(query_shape, keys_shape) must be called before project_keys.")
        return self.key_projection(keys)

    def compute_scores(self, query: Any, projected_keys: Any) -> Any:
        return _inner_products(query, projected_keys)


@keras.saving.register_keras_serializable("keras_transformer_zoo")
class DistanceKernelAttention(ScoredAttention):
    """Scores by distance: `-||q - k||^2 / bandwidth`, so that the context is a kernel regression. Has no weights.

    The difference of each pair is computed, which takes memory for `batch * query_length * key_length * dim` numbers.
    It stays exact for long vectors that are close together.

    Call arguments, results and errors: see `ScoredAttention`.

    Args:
        bandwidth: Bandwidth of the kernel, above 0, in squared units of the keys. The smaller it is, the larger the
            weight of the nearest key.

    Example:

    >>> waists = keras.ops.reshape([56.0, 58.0, 60.0], (1, 3, 1))  # cm, with three known trouser sizes
    >>> sizes = keras.ops.reshape([36.0, 37.0, 38.0], (1, 3, 1))
    >>> size, weights = DistanceKernelAttention()(keras.ops.reshape([59.0], (1, 1)), waists, sizes)
    >>> round(float(size[0, 0]), 2)  # the two nearest waists weigh the same
    37.5

    Reference:
        Nadaraya 1964, "On Estimating Regression"; Watson 1964, "Smooth Regression Analysis".
    """

    def __init__(self, bandwidth: float = 1.0, **kwargs: Any) -> None:
        super().__init__(**kwargs)
        if bandwidth <= 0:
            raise ValueError(f"bandwidth must be above 0, got {bandwidth}.")
        self.bandwidth = bandwidth

    def compute_scores(self, query: Any, projected_keys: Any) -> Any:
        difference = ops.expand_dims(to_float32(query), 2) - ops.expand_dims(to_float32(projected_keys), 1)
        return -ops.sum(ops.square(difference), axis=-1) / self.bandwidth


def _inner_products(query: Any, keys: Any) -> Any:
    """`(batch, query_length, dim)` and `(batch, key_length, dim)` to `(batch, query_length, key_length)`, in float32.

    A score of 20 in bfloat16 would be off by up to 0.06, and its weight by 6 %.
    """
    return ops.matmul(to_float32(query), ops.swapaxes(to_float32(keys), 1, 2))


def _build_key_projection(projection: keras.layers.Layer, keys_shape: tuple[int | None, ...] | None) -> None:
    if keys_shape is None:
        raise ValueError(
            "keys must be given in the first call, or build(query_shape, keys_shape) called before: the width of the "
            "keys cannot be told from projected_keys."
        )
    projection.build(keys_shape)


SCORES: dict[str, Callable[..., ScoredAttention]] = {
    "additive": AdditiveAttention,
    "dot": DotAttention,
    "scaled_dot": lambda **options: DotAttention(scaled=True, **options),
    "bilinear": BilinearAttention,
    "distance": DistanceKernelAttention,
}


def make_scored_attention(kind: str, **options: Any) -> ScoredAttention:
    """Returns the attention layer with a kind of scores.

    Args:
        kind: "additive", "dot", "scaled_dot", "bilinear" or "distance".
        **options: Arguments of the layer: `units` for "additive", `bandwidth` for "distance", `name`, `dtype`.

    Raises:
        ValueError: If the kind is unknown.

    Example:

    >>> attention = make_scored_attention("additive", units=128)
    """
    if kind not in SCORES:
        raise ValueError(f"kind must be one of {', '.join(map(repr, SCORES))}, got {kind!r}.")
    return SCORES[kind](**options)
