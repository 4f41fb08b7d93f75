"""Losses of pairs of text embeddings."""

from typing import Any

import keras
from keras import ops


def _normalized(vectors: Any) -> Any:
    return ops.normalize(ops.cast(vectors, "float32"), axis=-1)


def _check_groups(y_pred: Any, counts: tuple[int, ...], what: str) -> None:
    if len(y_pred.shape) != 3 or (y_pred.shape[1] is not None and y_pred.shape[1] not in counts):
        raise ValueError(
            f"y_pred must hold {what}, with the shape (batch, {' or '.join(map(str, counts))}, dim), got "
            f"{tuple(y_pred.shape)}."
        )


@keras.saving.register_keras_serializable("keras_transformer_zoo")
class InBatchNegatives(keras.losses.Loss):
    """Cross-entropy of finding an anchor's own positive among the positives of the whole batch.

    The score of anchor i and candidate j is `scale * cosine(a_i, c_j)`; candidates are the positives and, where there
    are, the negatives of all rows.

    Args:
        scale: Factor on the cosines, the inverse of the temperature.
        symmetric: Whether the anchor is also to be found among all anchors given the positive, and the mean is taken.
        reduction, name: See `keras.losses.Loss`.

    Call arguments:
        y_true: Not looked at: the positives are on the diagonal.
        y_pred: Embeddings of anchor, positive and, optionally, negative, `(batch, 2 or 3, dim)`.

    Raises:
        ValueError: If `scale` is not positive, or `y_pred` has another shape.

    Example:

    >>> embedder.compile("adam", InBatchNegatives(scale=20.0))

    Reference:
        Henderson et al. 2017, "Efficient Natural Language Response Suggestion", section 4.4; Reimers and Gurevych
        2019, "Sentence-BERT" (its library's MultipleNegativesRankingLoss).
    """

    def __init__(
        self,
        scale: float = 20.0,
        symmetric: bool = False,
        reduction: str | None = "mean_with_sample_weight",
        name: str = "in_batch_negatives",
        dtype: str = "float32",
    ) -> None:
        if not scale > 0:
            raise ValueError(f"scale must be above 0, got {scale!r}.")
        super().__init__(name=name, reduction=reduction, dtype=dtype)
        self.scale = float(scale)
        self.symmetric = bool(symmetric)

    def call(self, y_true: Any, y_pred: Any) -> Any:
        _check_groups(y_pred, (2, 3), "anchor, positive and perhaps negative")
        vectors = _normalized(y_pred)
        anchors, positives = vectors[:, 0], vectors[:, 1]
        # the positives of all rows, then the negatives of all rows
        candidates = ops.reshape(ops.transpose(vectors[:, 1:], (1, 0, 2)), (-1, y_pred.shape[-1]))
        scores = self.scale * ops.matmul(anchors, ops.transpose(candidates))
        own = self.scale * ops.sum(anchors * positives, axis=-1)
        losses = ops.logsumexp(scores, axis=-1) - own
        if self.symmetric:
            scores = self.scale * ops.matmul(positives, ops.transpose(anchors))
            losses = (losses + ops.logsumexp(scores, axis=-1) - own) / 2
        return losses

    def get_config(self) -> dict[str, Any]:
        return {**super().get_config(), "scale": self.scale, "symmetric": self.symmetric, "dtype": self.dtype}


@keras.saving.register_keras_serializable("keras_transformer_zoo")
class CosineRegression(keras.losses.Loss):
    """Squared difference between the cosine of two embeddings and a given similarity.

    Args:
        reduction, name: See `keras.losses.Loss`.

    Call arguments:
        y_true: Similarities in [-1, 1], `(batch,)`.
        y_pred: Embeddings of the two texts, `(batch, 2, dim)`.

    Raises:
        ValueError: If `y_pred` has another shape.

    Example:

    >>> embedder.compile("adam", CosineRegression())

    Reference:
        Reimers and Gurevych 2019, "Sentence-BERT", section 3 (regression objective).
    """

    def __init__(
        self,
        reduction: str | None = "mean_with_sample_weight",
        name: str = "cosine_regression",
        dtype: str = "float32",
    ) -> None:
        super().__init__(name=name, reduction=reduction, dtype=dtype)

    def call(self, y_true: Any, y_pred: Any) -> Any:
        _check_groups(y_pred, (2,), "two embeddings per row")
        vectors = _normalized(y_pred)
        cosines = ops.sum(vectors[:, 0] * vectors[:, 1], axis=-1)
        return ops.square(cosines - ops.reshape(ops.cast(y_true, "float32"), (-1,)))

    def get_config(self) -> dict[str, Any]:
        return {**super().get_config(), "dtype": self.dtype}
