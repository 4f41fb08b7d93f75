"""Attention weights other than the softmax of scaled dot products."""

from collections.abc import Callable
from typing import Any

import keras

from layers.attention.kernels.plain import grouped_matmul, penalty, to_float32
from layers.roles import WHOLE


class AttentionWeighting(keras.layers.Layer):
    """Base of score functions and normalisations, passed to `MultiHeadAttention` as `weighting`.

    Override `normalize` for another normalisation of the scores (softpick, entmax). Override `weigh` for other scores
    (cosine, differential attention). `build` gets the shape of the queries, `(None, heads, None, head_dim)`, and
    creates the weights of the layer.

    Attributes:
        paths: The paths of `attend` that can compute it. "plain" calls `weigh`. "banded" calls `normalize` with scaled
            dot products, which may have any leading axes.

    Example:

    ```python
    class ReLUAttention(AttentionWeighting):
        def normalize(self, scores, visible):
            return ops.relu(scores) / scores.shape[-1]

    MultiHeadAttention(8, 64, weighting=ReLUAttention())
    ```
    """

    # small, and the same on all devices
    weight_role = WHOLE

    paths: tuple[str, ...] = ("plain",)

    def build(self, query_shape: tuple[int | None, ...]) -> None:
        self.built = True

    def weigh(self, query: Any, key: Any, *, scale: float, bias: Any = None, visible: Any = None) -> Any:
        """Returns the attention weights.

        Args:
            query: `(batch, heads, query_length, head_dim)`.
            key: `(batch, key_value_heads, key_length, head_dim)`.
            scale: Factor on the scores.
            bias: Added to the scaled scores; None for none.
            visible: True where a query sees a key, broadcasts to the scores; None if all are seen. The caller sets the
                weights of hidden keys to zero.

        Returns:
            `(batch, heads, query_length, key_length)`.
        """
        scores = dot_products(query, key, scale)
        if bias is not None:
            scores = scores + bias
        return self.normalize(hide(scores, visible), visible)

    def normalize(self, scores: Any, visible: Any) -> Any:
        """Returns weights from scores.

        Args:
            scores: `(..., query_length, key_length)` in float32. Scores of hidden keys are very low.
            visible: True where a query sees a key, broadcasts to the scores; None if all are seen.
        """
        raise NotImplementedError


@keras.saving.register_keras_serializable("keras_transformer_zoo")
class FunctionWeighting(AttentionWeighting):
    """A weighting by a function `(scores, visible) -> weights`, see `AttentionWeighting.normalize`.

    Args:
        function: The function. It must be registered with Keras if the layer is to be saved.
    """

    paths = ("plain", "banded")

    def __init__(self, function: Callable[[Any, Any], Any], **kwargs: Any) -> None:
        super().__init__(**kwargs)
        if not callable(function):
            raise ValueError(
                f"weighting must be an AttentionWeighting or a function of scores and visibility, got {function!r}."
            )
        self.function = function

    def normalize(self, scores: Any, visible: Any) -> Any:
        return self.function(scores, visible)

    def get_config(self) -> dict[str, Any]:
        return {**super().get_config(), "function": keras.saving.serialize_keras_object(self.function)}

    @classmethod
    def from_config(cls, config: dict[str, Any]) -> "FunctionWeighting":
        config = dict(config)
        config["function"] = keras.saving.deserialize_keras_object(config["function"])
        return cls(**config)


def dot_products(query: Any, key: Any, scale: float = 1.0) -> Any:
    """Returns scaled dot products of queries and keys in float32. The heads of a group share a key head.

    Args:
        query: `(batch, heads, query_length, head_dim)`.
        key: `(batch, key_value_heads, key_length, head_dim)`.
        scale: Factor on the products.

    Returns:
        `(batch, heads, query_length, key_length)`.
    """
    return grouped_matmul(to_float32(query) * scale, to_float32(key), transpose=True)


def hide(scores: Any, visible: Any) -> Any:
    """Returns scores with -1e38 where `visible` is false; unchanged if `visible` is None."""
    return scores if visible is None else scores - penalty(visible, scores.dtype)
