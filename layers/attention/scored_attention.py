"""The base of the attention layers of recurrent models: softmax of scores, and weighted mean of values."""

from typing import Any

import keras
from keras import ops

from layers.attention.kernels.plain import mean_of_values, softmax, to_float32
from layers.attention.masks import both
from layers.constructor_arguments import ConfigFromArguments
from layers.keras_internals import mask_of


class ScoredAttention(ConfigFromArguments, keras.layers.Layer):
    """Base of attention by scores: `context = sum_i weights_i values_i`, `weights = softmax(scores)`.

    A subclass computes the scores in `compute_scores`. It may override `project_keys`, which maps the keys beforehand.
    Scores, softmax and weighted mean are computed in float32 whatever the policy. A query whose keys are all masked
    gets zero weights and a zero context.

    Call arguments:
        query: One step `(batch, query_dim)` or many `(batch, query_length, query_dim)`.
        keys: `(batch, key_length, key_dim)`. Leave out if `projected_keys` are given.
        values: `(batch, key_length, value_dim)`. Default the keys.
        mask: True where a key may be seen, `(batch, key_length)` or, for many queries,
            `(batch, query_length, key_length)`.
        projected_keys: The result of `project_keys`, in place of `keys`. Needs `values`.
        factors: Factors of at least 0 on the weights, applied after the softmax, in a shape that broadcasts to that of
            the weights. The products need not sum to one (Luong et al. 2015, equation 10).
        query_mask, keys_mask, values_mask, projected_keys_mask: Keras's masks of these arguments, filled in by Keras. A
            key is seen if all masks allow it. A query that is padding sees no key.

    Returns:
        The context, `(batch, value_dim)` or `(batch, query_length, value_dim)`, and the weights, `(batch, key_length)`
        or `(batch, query_length, key_length)`.

    Raises:
        ValueError: If ranks or widths do not fit, or not exactly one of `keys` and `projected_keys` is given.
    """

    def build(
        self,
        query_shape: tuple[int | None, ...],
        keys_shape: tuple[int | None, ...] | None = None,
        values_shape: tuple[int | None, ...] | None = None,
    ) -> None:
        self._check_widths(query_shape, keys_shape)

    def _check_widths(self, query_shape: tuple[int | None, ...], keys_shape: tuple[int | None, ...] | None) -> None:
        """Raises if queries and keys differ in width: most scores compare them feature by feature."""
        if keys_shape is not None and query_shape[-1] != keys_shape[-1]:
            raise ValueError(
                f"query and keys must have the same width for {type(self).__name__}, "
                f"got query {tuple(query_shape)}, keys {tuple(keys_shape)}."
            )

    def project_keys(self, keys: Any) -> Any:
        """Returns what the scores need of the keys, `(batch, key_length, ...)`; by default the keys themselves.

        Args:
            keys: `(batch, key_length, key_dim)`.
        """
        return keys

    def compute_scores(self, query: Any, projected_keys: Any) -> Any:
        """Returns the scores, in float32 or wider.

        Args:
            query: `(batch, query_length, query_dim)`.
            projected_keys: What `project_keys` returned.

        Returns:
            `(batch, query_length, key_length)`.
        """
        raise NotImplementedError

    def call(
        self,
        query: Any,
        keys: Any = None,
        values: Any = None,
        mask: Any = None,
        projected_keys: Any = None,
        factors: Any = None,
        query_mask: Any = None,
        keys_mask: Any = None,
        values_mask: Any = None,
        projected_keys_mask: Any = None,
    ) -> tuple[Any, Any]:
        if (keys is None) == (projected_keys is None):
            raise ValueError(
                f"exactly one of keys and projected_keys must be given, got {'neither' if keys is None else 'both'}."
            )
        if values is None and keys is None:
            raise ValueError("values must be given together with projected_keys, got None.")
        if len(query.shape) not in (2, 3):
            raise ValueError(f"query must have rank 2 or 3, got shape {tuple(query.shape)}.")
        one_step = len(query.shape) == 2
        if one_step:
            query = ops.expand_dims(query, 1)
        if projected_keys is None:
            projected_keys = self.project_keys(keys)
        if values is None:
            values = keys
        scores = to_float32(self.compute_scores(query, projected_keys))  # (batch, query_length, key_length)
        visible = _expand_mask(mask, one_step)  # (batch, query_length or 1, key_length)
        for keys_of_keras in (keys_mask, values_mask, projected_keys_mask):
            visible = both(visible, _as_axis(keys_of_keras, 1))
        if not one_step:
            visible = both(visible, _as_axis(query_mask, 2))
        weights = _masked_softmax(scores, visible)
        if factors is not None:
            factors = ops.cast(factors, weights.dtype)
            weights = weights * (ops.expand_dims(factors, 1) if len(factors.shape) == 2 else factors)
        context = mean_of_values(weights, values, None, ops.matmul)  # (batch, query_length, value_dim)
        weights = ops.cast(weights, values.dtype)
        if one_step:
            return ops.squeeze(context, 1), ops.squeeze(weights, 1)
        return context, weights

    def compute_mask(self, query: Any, previous_mask: Any) -> tuple[Any, None]:
        # The contexts have the mask of the queries. `previous_mask` may be that of the keys, given as `mask`.
        return mask_of(query), None

    def compute_output_shape(
        self,
        query_shape: tuple[int | None, ...],
        keys_shape: tuple[int | None, ...] | None = None,
        values_shape: tuple[int | None, ...] | None = None,
        projected_keys_shape: tuple[int | None, ...] | None = None,
        factors_shape: tuple[int | None, ...] | None = None,
    ) -> tuple[tuple[int | None, ...], tuple[int | None, ...]]:
        values_shape = values_shape or keys_shape
        key_length = values_shape[1]
        return (*query_shape[:-1], values_shape[-1]), (*query_shape[:-1], key_length)


def _expand_mask(mask: Any, one_step: bool) -> Any:
    if mask is None:
        return None
    mask = ops.convert_to_tensor(mask, dtype="bool")
    allowed = (2,) if one_step else (2, 3)
    if len(mask.shape) not in allowed:
        raise ValueError(
            f"mask must have rank {' or '.join(map(str, allowed))} for a query of rank {2 if one_step else 3}, "
            f"got shape {tuple(mask.shape)}."
        )
    return ops.expand_dims(mask, 1) if len(mask.shape) == 2 else mask


def _as_axis(mask: Any, axis: int) -> Any:
    """A mask `(batch, length)` of Keras with an axis of 1 for the queries (1) or the keys (2); None for None."""
    return None if mask is None else ops.expand_dims(ops.cast(mask, "bool"), axis)


def _masked_softmax(scores: Any, mask: Any) -> Any:
    if mask is None:
        return softmax(scores)
    # finite, so that a row without any key has no NaN, neither here nor in its gradient
    weights = softmax(ops.where(mask, scores, ops.cast(-1e30, scores.dtype)))
    return ops.where(mask, weights, ops.cast(0.0, scores.dtype))
