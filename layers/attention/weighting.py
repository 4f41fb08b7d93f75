"""Attention weights other than the softmax of scaled dot products."""

from collections.abc import Callable
from typing import Any

import keras
import numpy as np
from keras import ops

from layers.attention.kernels.plain import grouped_matmul, penalty, to_float32
from layers.constructor_arguments import ConfigFromArguments
from layers.devices import eager_computation
from layers.roles import WHOLE


class AttentionWeighting(ConfigFromArguments, keras.layers.Layer):
    """Base of score functions and normalisations, passed to `MultiHeadAttention` as `weighting`.

    Override `normalize` for another normalisation of the scores (softpick, entmax). Override `weigh` for other scores
    (cosine, differential attention). The weights of a query must depend on its visible keys alone: how many hidden keys
    there are, and which other queries, differs between the paths of attention and with a cache. `build` gets the shape
    of the queries, `(None, heads, None, head_dim)`, and creates the weights of the layer.

    Attributes:
        paths: The paths of `attend` that can compute it. "plain" calls `weigh`. "banded" calls `normalize` with scaled
            dot products, which may have any leading axes.

    Example:

    ```python
    class ReLUAttention(AttentionWeighting):
        def normalize(self, scores, visible):
            return ops.relu(scores)  # 0 for hidden keys

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

    @classmethod
    def weighs_scores(cls) -> bool:
        """Whether the weights depend on queries and keys through their scaled dot products alone."""
        return cls.weigh is AttentionWeighting.weigh

    def normalize(self, scores: Any, visible: Any) -> Any:
        """Returns weights from scores.

        Args:
            scores: `(..., query_length, key_length)` in float32. Scores of hidden keys are very low.
            visible: True where a query sees a key, broadcasts to the scores; None if all are seen.
        """
        raise NotImplementedError


@keras.saving.register_keras_serializable("keras_transformer_zoo")
class FunctionWeighting(AttentionWeighting):
    """A weighting by a function `(scores, visible) -> weights`, see `AttentionWeighting` and its `normalize`.

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


def check_weighting(weighting: AttentionWeighting, num_heads: int, keeps_order: bool) -> None:
    """Checks that the weights of a query depend on its visible keys alone, on an example.

    Args:
        weighting: A built weighting. One that overrides `weigh` is not checked.
        num_heads: Number of heads.
        keeps_order: Whether keys are always in the order of their positions, as in all but rolling caches.

    Raises:
        ValueError: If they also depend on hidden keys, on other queries, or on what else differs between paths.
    """
    if not weighting.weighs_scores():
        return
    generator = np.random.default_rng(0)
    scores = generator.normal(0, 2, (1, num_heads, 3, 5)).astype("float32")
    visible = np.array([[1, 0, 0, 0, 0], [1, 1, 0, 1, 0], [1, 1, 1, 1, 1]], "bool")[None, None]

    def weights(scores: Any, visible: Any) -> Any:
        tensor = ops.convert_to_tensor(visible)
        result = ops.convert_to_numpy(weighting.normalize(hide(scores, tensor), tensor))
        # of another shape: neither equal nor to be compared
        return np.where(visible, result, 0) if result.shape == scores.shape else np.full(scores.shape, np.inf)

    with eager_computation():
        expected = weights(scores, visible)
        hidden = [(0, 0)] * 3 + [(2, 4)]
        cases = {
            "with the number of hidden keys": weights(np.pad(scores, hidden), np.pad(visible, hidden))[..., 2:-4],
            "with other queries": np.concatenate(
                [weights(scores[:, :, row : row + 1], visible[:, :, row : row + 1]) for row in range(3)], axis=2
            ),
        }
        all_visible = ops.convert_to_numpy(weighting.normalize(ops.convert_to_tensor(scores[:, :, 2:]), None))
        cases["where visible is None"] = np.concatenate([expected[:, :, :2], all_visible], axis=2)
        if not keeps_order:
            cases["with the order of the keys"] = weights(scores[..., ::-1], visible[..., ::-1])[..., ::-1]
        if "banded" in weighting.paths:
            stacked = [np.broadcast_to(x, scores.shape).reshape(1, 1, 1, -1, 5) for x in (scores, visible)]
            cases["with the axes before the queries"] = weights(*stacked).reshape(scores.shape)
    for what, actual in cases.items():
        if not np.allclose(actual, expected, rtol=1e-3, atol=1e-5, equal_nan=True):
            raise ValueError(
                f"weighting must compute the weights of a query from its visible keys alone, got {weighting!r}, whose "
                f"weights change {what}."
            )


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
