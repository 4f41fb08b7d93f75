"""Attention heads that are projected from latents, narrow vectors that all heads share (DeepSeek)."""

from typing import Any

import keras
from keras import ops

from layers.attention.heads import Heads
from layers.constructor_arguments import ConfigFromArguments
from layers.dense import Dense
from layers.fusion import sizes
from layers.initializers import separate
from layers.norms import RMSNorm
from layers.roles import WHOLE

_NAMES = ("latent", "shared_key", "query_latent")
# after those of the projections of the attention layer, which may have the same initializer
_FIRST_SEED = 8


@keras.saving.register_keras_serializable("keras_transformer_zoo")
class Latents(ConfigFromArguments, keras.layers.Layer):
    """The latents of multi-head latent attention: narrow, normed projections of the inputs that all heads share.

    Args:
        dim: Width of the latent that keys and values are projected from.
        shared_key_dim: Width of the part of the keys that all heads share, the last features of each key. It is
            projected from the inputs, and rotary positions rotate it.
        query_dim: Width of the latent that queries are projected from; None to project them from the inputs.
        use_bias: Whether the projections to the latents and the shared key have biases.
        epsilon: Epsilon of the norms of the latents.
        kernel_initializer: Initializer of the projections.

    Raises:
        ValueError: If a width is below 1.

    Example:

    >>> attention = MultiHeadAttention(8, 48, value_head_dim=32, latents=Latents(64, shared_key_dim=16), causal=True)
    >>> attention.make_cache(1, 100)["key"].shape  # one latent for all 8 heads
    (1, 1, 100, 64)

    Reference:
        DeepSeek-AI 2024, "DeepSeek-V2", section 2.1 (multi-head latent attention), equations 9 to 19.
    """

    # small, and the same on all devices
    weight_role = WHOLE

    def __init__(
        self,
        dim: int,
        shared_key_dim: int,
        query_dim: int | None = None,
        use_bias: bool = False,
        epsilon: float = 1e-6,
        kernel_initializer: Any = "glorot_uniform",
        **kwargs: Any,
    ) -> None:
        super().__init__(**kwargs)
        for name, value in (("dim", dim), ("shared_key_dim", shared_key_dim), ("query_dim", query_dim or 1)):
            if isinstance(value, bool) or not isinstance(value, int) or value < 1:
                raise ValueError(f"{name} must be an integer of at least 1, got {value!r}.")
        self.dim = dim
        self.shared_key_dim = shared_key_dim
        self.query_dim = query_dim
        self.use_bias = use_bias
        self.epsilon = epsilon
        self.kernel_initializer = keras.initializers.get(kernel_initializer)
        self.latent, self.latent_norm = self._dense("latent", dim), self._norm("latent_norm")
        self.shared_key = self._dense("shared_key", shared_key_dim)
        self.query_latent = None if query_dim is None else self._dense("query_latent", query_dim)
        self.query_latent_norm = None if query_dim is None else self._norm("query_latent_norm")

    def _dense(self, name: str, units: int) -> Dense:
        return Dense(
            units,
            use_bias=self.use_bias,
            kernel_initializer=separate(self.kernel_initializer, _FIRST_SEED + _NAMES.index(name)),
            dtype=self.dtype_policy,
            name=name,
        )

    def _norm(self, name: str) -> RMSNorm:
        return RMSNorm(epsilon=self.epsilon, dtype=self.dtype_policy, name=name)

    def build_queries(self, inputs_shape: tuple[int | None, ...]) -> tuple[int | None, ...]:
        """Builds the projection of queries to latents, and returns the shape of the result of `of_queries`."""
        if self.query_latent is None:
            return inputs_shape
        self.query_latent.build(inputs_shape)
        shape = (*inputs_shape[:-1], self.query_dim)
        self.query_latent_norm.build(shape)
        return shape

    def build_memory(self, memory_shape: tuple[int | None, ...]) -> tuple[int | None, ...]:
        """Builds the projections of a memory to latents if needed, and returns the shape of the latents."""
        shape = (*memory_shape[:-1], self.dim)
        for layer, its_shape in (
            (self.latent, memory_shape),
            (self.latent_norm, shape),
            (self.shared_key, memory_shape),
        ):
            if not layer.built:
                layer.build(its_shape)
        self.built = True
        return shape

    def of_queries(self, inputs: Any) -> Any:
        """Returns the latents of queries, `(batch, length, query_dim)`; the inputs if `query_dim` is None."""
        return inputs if self.query_latent is None else self.query_latent_norm(self.query_latent(inputs))

    def of_memory(self, memory: Any) -> tuple[Any, Any]:
        """Returns latents `(batch, length, dim)` and the shared part of keys `(batch, length, shared_key_dim)`."""
        return self.latent_norm(self.latent(memory)), self.shared_key(memory)


class LatentHeads(Heads):
    """Queries, keys and values projected from latents, see `Latents`. A cache holds the latents.

    With a cache, keys and values are not computed, unless a weighting needs whole keys. The key projection is applied
    to the queries instead, and the value projection to the weighted means. Attention then has one key-value head, the
    latent.
    """

    def widths(self) -> dict[str, int]:
        layer = self.layer
        return {**super().widths(), "key": layer.num_heads * self.own_dim}

    @property
    def own_dim(self) -> int:
        """Width of the part of a key that differs between heads."""
        return self.layer.head_dim - self.layer.latents.shared_key_dim

    def build_queries(self, inputs_shape: tuple[int | None, ...]) -> None:
        super().build_queries(self.layer.latents.build_queries(inputs_shape))

    def build_memory(self, memory_shape: tuple[int | None, ...]) -> None:
        super().build_memory(self.layer.latents.build_memory(memory_shape))

    def queries(self, inputs: Any, prepared: Any) -> Any:
        return super().queries(self.layer.latents.of_queries(inputs), prepared)

    def keys_and_values(self, memory: Any, prepared: Any) -> tuple[Any, Any]:
        return self._whole(*self.to_cache(memory, prepared))

    def _whole(self, latent: Any, shared: Any) -> tuple[Any, Any]:
        """Keys and values `(batch, heads, memory_length, ...)` of latents and shared keys `(batch, 1, ...)`."""
        layer = self.layer
        own, value = (
            ops.transpose(
                self.split(projection(latent[:, 0]), sizes(latent[:, 0])[:2], layer.num_heads, width), (0, 2, 1, 3)
            )
            for projection, width in (
                (layer.key_projection, self.own_dim),
                (layer.value_projection, layer.value_head_dim),
            )
        )
        shared = ops.broadcast_to(shared, (*ops.shape(own)[:3], shared.shape[-1]))
        return ops.concatenate([own, shared], axis=-1), value

    def cached_sizes(self) -> dict[str, int]:
        latents = self.layer.latents
        return {"num_heads": 1, "head_dim": latents.dim, "value_head_dim": latents.shared_key_dim}

    def to_cache(self, memory: Any, prepared: Any) -> tuple[Any, Any]:
        latent, shared = self.layer.latents.of_memory(memory)  # (batch, memory_length, ...)
        # the encoding takes whole keys, of which it rotates the shared part
        shared = ops.pad(shared, ((0, 0), (0, 0), (self.own_dim, 0)))
        shared = self.layer.position_hooks().on_keys(ops.expand_dims(shared, 2), prepared)[..., self.own_dim :]
        return ops.expand_dims(latent, 1), ops.transpose(shared, (0, 2, 1, 3))

    def of_cache(self, query: Any, key: Any, value: Any) -> tuple[Any, Any, Any]:
        layer = self.layer
        if self._needs_whole_keys:
            return query, *self._whole(key, value)
        own, shared = ops.split(query, [self.own_dim], axis=-1)
        matrix = self._matrix(layer.key_projection, self.own_dim, query.dtype)
        queries, keys, values = [ops.einsum("bhld,chd->bhlc", own, matrix), shared], [key, value], [key]
        # a bias is one more row of its matrix, for a further feature of the latents that is always 1
        one = ops.ones_like(key[..., :1])
        if layer.key_projection.bias is not None:
            queries.append(
                ops.sum(own * self._bias(layer.key_projection, self.own_dim, query.dtype), -1, keepdims=True)
            )
            keys.append(one)
        if layer.value_projection.bias is not None:
            values.append(one)
        return tuple(ops.concatenate(parts, axis=-1) for parts in (queries, keys, values))

    def results_of_cache(self, heads: Any) -> Any:
        if self._needs_whole_keys:
            return heads
        projection, width = self.layer.value_projection, self.layer.value_head_dim
        dim, matrix = self.layer.latents.dim, self._matrix(projection, width, heads.dtype)
        results = ops.einsum("bhlc,chd->bhld", heads[..., :dim], matrix)
        if projection.bias is None:
            return results
        return results + heads[..., dim:] * self._bias(projection, width, heads.dtype)

    @property
    def _needs_whole_keys(self) -> bool:
        """Whether attention weights depend on more than the products of queries and keys."""
        return self.layer.weighting is not None and not self.layer.weighting.weighs_scores()

    def _bias(self, projection: Dense, width: int, dtype: str) -> Any:
        """The bias of a projection, `(heads, 1, width)`."""
        return ops.cast(ops.reshape(projection.bias, (self.layer.num_heads, 1, width)), dtype)

    def _matrix(self, projection: Dense, width: int, dtype: str) -> Any:
        """The matrix of a projection, `(latent_dim, heads, width)`. A quantized one is computed from unit vectors."""
        if projection.quantization_mode is None:
            matrix = projection.updated_kernel()
        else:
            matrix = projection(ops.eye(self.layer.latents.dim, dtype=dtype))
            matrix = matrix if projection.bias is None else matrix - ops.cast(projection.bias, matrix.dtype)
        return ops.cast(ops.reshape(matrix, (-1, self.layer.num_heads, width)), dtype)
