"""Losses of pairs of text embeddings with given similarities."""

from typing import Any

import keras
from keras import ops

from zoo.counts import CountedLoss
from zoo.training.vectors import EmbeddingLoss, check_groups, require_positive, unit_vectors

# takes a term out of a sum of exponentials; finite, so that gradients are
_NEVER = -1e9


def _cosines(vectors: Any) -> Any:
    vectors = unit_vectors(vectors)
    return ops.sum(vectors[:, 0] * vectors[:, 1], axis=-1)


def _similarities(y_true: Any) -> Any:
    """Similarities as a vector, float32; numbers of texts are none."""
    y_true = ops.cast(y_true, "float32")
    shape = tuple(y_true.shape)
    if len(shape) != 1 and shape[1:] != (1,):
        raise ValueError(
            f"y_true must hold a similarity per row, with the shape (batch,), got {shape}. A TextEmbedder gives them "
            "with objective='cosent' or 'cosine_regression'."
        )
    return ops.reshape(y_true, (-1,))


@keras.saving.register_keras_serializable("keras_transformer_zoo")
class CosineRegression(EmbeddingLoss):
    """Squared difference between the cosine of two embeddings and a given similarity.

    Args:
        reduction, name: See `zoo.counts.CountedLoss`.

    Call arguments:
        y_true: Similarities in [-1, 1], `(batch,)`.
        y_pred: Embeddings of the two texts, `(batch, 2, dim)`.

    Raises:
        ValueError: If `y_true` or `y_pred` has another shape.

    Example:

    >>> embedder.compile("adam", CosineRegression())

    Reference:
        Reimers and Gurevych 2019, "Sentence-BERT", section 3 (regression objective).
    """

    def __init__(
        self,
        reduction: str | None = "sum_over_batch_size",
        name: str = "cosine_regression",
        dtype: str = "float32",
    ) -> None:
        super().__init__(reduction, name, dtype)

    def call(self, y_true: Any, y_pred: Any) -> Any:
        check_groups(y_pred, 2, 2, "two embeddings per row")
        return ops.square(_cosines(y_pred) - _similarities(y_true))


@keras.saving.register_keras_serializable("keras_transformer_zoo")
class CoSENT(CountedLoss):
    """Penalty for pairs of rows of a batch whose cosines are not in the order of their similarities.

    It is `log(1 + sum exp(scale * (cosine_j - cosine_i)))` over all rows i and j with `y_i > y_j`. Only the order of
    the similarities counts, not their size, as for Spearman's correlation.

    Args:
        scale: Factor on the cosines.
        name: See `keras.losses.Loss`. There is no reduction, because the loss is one value per batch.

    Call arguments:
        y_true: Similarities on any scale, `(batch,)`.
        y_pred: Embeddings of the two texts, `(batch, 2, dim)`.
        sample_weight: Weights of rows, `(batch,)`. The weight of a term is the product of those of its two rows, so
            that a row of weight 2 counts like two equal rows.

    Raises:
        ValueError: If `scale` is not positive, or `y_true` or `y_pred` has another shape.

    Example:

    >>> embedder.compile("adam", CoSENT())

    Reference:
        Su 2022, "CoSENT: a more effective sentence vector scheme than Sentence-BERT", https://kexue.fm/archives/8847
        (in Chinese); Reimers and Gurevych 2019 (its library's CoSENTLoss).
    """

    # the other rows of a batch take part in the loss of each
    compares_rows = True

    def __init__(self, scale: float = 20.0, name: str = "cosent", dtype: str = "float32") -> None:
        super().__init__(name=name, dtype=dtype)
        self.scale = require_positive(scale, "scale")

    def __call__(self, y_true: Any, y_pred: Any, sample_weight: Any = None) -> Any:
        right = _similarities(y_true)
        # weights belong inside of the logarithm, where the base class would not put them
        weights = (
            ops.ones_like(right) if sample_weight is None else ops.reshape(ops.cast(sample_weight, "float32"), (-1,))
        )
        return super().__call__(ops.stack([right, weights * ops.ones_like(right)], axis=1), y_pred)

    def call(self, y_true: Any, y_pred: Any) -> Any:
        check_groups(y_pred, 2, 2, "two embeddings per row")
        scores, right, weights = self.scale * _cosines(y_pred), y_true[:, 0], y_true[:, 1]
        weights = weights[:, None] * weights[None, :]
        counts = ops.logical_and(right[:, None] > right[None, :], weights > 0)
        terms = scores[None, :] - scores[:, None] + ops.log(ops.where(weights > 0, weights, 1.0))
        terms = ops.reshape(ops.where(counts, terms, _NEVER), (-1,))
        return ops.logsumexp(ops.concatenate([ops.zeros((1,)), terms]), keepdims=True)
