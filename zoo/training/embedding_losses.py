"""Losses of groups of text embeddings: which belong together, and which do not."""

from collections.abc import Sequence
from typing import Any

import keras
from keras import ops

from zoo.counts import CountedLoss
from zoo.preprocessing.rows import require_count
from zoo.training.vectors import EmbeddingLoss, check_groups, require_positive, unit_vectors

DISTANCES = ("euclidean", "cosine")
# takes a term out of a sum of exponentials; finite, so that gradients are
_NEVER = -1e9


@keras.saving.register_keras_serializable("keras_transformer_zoo")
class InBatchNegatives(EmbeddingLoss):
    """Cross-entropy of finding the positive of each anchor among the texts of the batch (InfoNCE).

    The score of anchor i and candidate j is `scale * cosine(a_i, c_j)`. Candidates are the positives of all rows, and
    their negatives if there are any. The labels of a `TextEmbedder` tell which texts are equal. Then the anchor's own
    text, other copies of its positive, and positives of other rows with the same anchor are not negatives.

    Args:
        scale: Factor on the cosines, the inverse of the temperature.
        symmetric: Whether to also find the anchor of each positive among all anchors, and take the mean of both losses.
        reduction, name: See `zoo.counts.CountedLoss`.

    Call arguments:
        y_true: A number per text, `(batch, texts)`, the same for equal texts of the batch. With another shape it is
            ignored, and all texts count as different.
        y_pred: Embeddings of anchor, positive and any number of hard negatives, `(batch, texts, dim)`.

    Raises:
        ValueError: If `scale` is not positive, or `y_pred` has another shape.

    Example:

    >>> embedder.compile("adam", InBatchNegatives(scale=20.0))

    Reference:
        Henderson et al. 2017, "Efficient Natural Language Response Suggestion", section 4.4; van den Oord et al. 2018,
        "Representation Learning with Contrastive Predictive Coding", equation 4; Karpukhin et al. 2020, "Dense Passage
        Retrieval", section 3.2 (hard negatives of all rows); Reimers and Gurevych 2019, "Sentence-BERT" (its library's
        MultipleNegativesRankingLoss).
    """

    # the other rows of a batch take part in the loss of each
    compares_rows = True

    def __init__(
        self,
        scale: float = 20.0,
        symmetric: bool = False,
        reduction: str | None = "sum_over_batch_size",
        name: str = "in_batch_negatives",
        dtype: str = "float32",
    ) -> None:
        super().__init__(reduction, name, dtype)
        self.scale = require_positive(scale, "scale")
        self.symmetric = bool(symmetric)

    def call(self, y_true: Any, y_pred: Any) -> Any:
        check_groups(y_pred, 2, None, "anchor, positive and perhaps negatives")
        vectors = unit_vectors(y_pred)
        anchors, positives = vectors[:, 0], vectors[:, 1]
        # the positives of all rows, then the first negatives of all rows, and so on
        candidates = ops.reshape(ops.transpose(vectors[:, 1:], (1, 0, 2)), (-1, y_pred.shape[-1]))
        scores = self.scale * ops.matmul(anchors, ops.transpose(candidates))
        back = self.scale * ops.matmul(positives, ops.transpose(anchors))
        if len(y_true.shape) == 2 and y_true.shape[1] in (None, y_pred.shape[1]):
            anchor, positive = y_true[:, 0], y_true[:, 1]
            scores = ops.where(
                _hidden(anchor, positive, ops.reshape(ops.transpose(y_true[:, 1:]), (-1,))), _NEVER, scores
            )
            back = ops.where(_hidden(positive, anchor, anchor), _NEVER, back)
        own = self.scale * ops.sum(anchors * positives, axis=-1)
        losses = ops.logsumexp(scores, axis=-1) - own
        if self.symmetric:
            losses = (losses + ops.logsumexp(back, axis=-1) - own) / 2
        return losses


def _hidden(texts: Any, partners: Any, candidates: Any) -> Any:
    """Which candidates are no negatives of a text, `(batch, candidates)`: itself and all its partners.

    Args:
        texts, partners: Numbers of texts that belong together, `(batch,)`.
        candidates: Those of the candidates; the first ones are the partners, and each stays for its own text.
    """

    def equal(first: Any, second: Any) -> Any:
        return first[:, None] == second[None, :]

    is_partner = ops.matmul(ops.cast(equal(texts, texts), "float32"), ops.cast(equal(partners, candidates), "float32"))
    related = ops.logical_or(is_partner > 0, equal(texts, candidates))
    rows, columns = ops.shape(related)[0], ops.shape(related)[1]
    return ops.logical_and(related, ops.arange(rows)[:, None] != ops.arange(columns)[None, :])


@keras.saving.register_keras_serializable("keras_transformer_zoo")
class TripletLoss(EmbeddingLoss):
    """`max(0, margin + distance(anchor, positive) - distance(anchor, negative))`.

    Args:
        margin: The margin.
        distance: "euclidean", or "cosine" for 1 minus the cosine.
        reduction, name: See `zoo.counts.CountedLoss`.

    Call arguments:
        y_true: Ignored.
        y_pred: Embeddings of anchor, positive and negative, `(batch, 3, dim)`.

    Raises:
        ValueError: If an argument is out of range, or `y_pred` has another shape.

    Example:

    >>> embedder.compile("adam", TripletLoss(margin=0.5, distance="cosine"))

    Reference:
        Schroff et al. 2015, "FaceNet", equation 2; Reimers and Gurevych 2019, "Sentence-BERT", section 3 (Euclidean
        distance, margin 1).
    """

    def __init__(
        self,
        margin: float = 1.0,
        distance: str = "euclidean",
        reduction: str | None = "sum_over_batch_size",
        name: str = "triplet",
        dtype: str = "float32",
    ) -> None:
        super().__init__(reduction, name, dtype)
        if distance not in DISTANCES:
            raise ValueError(f"distance must be one of {DISTANCES}, got {distance!r}.")
        self.margin, self.distance = require_positive(margin, "margin"), distance

    def call(self, y_true: Any, y_pred: Any) -> Any:
        check_groups(y_pred, 3, 3, "anchor, positive and negative")
        if self.distance == "cosine":
            vectors = unit_vectors(y_pred)
            far = 1 - ops.sum(vectors[:, :1] * vectors[:, 1:], axis=-1)
        else:
            vectors = ops.cast(y_pred, "float32")
            # the root has no gradient at 0
            squares = ops.sum(ops.square(vectors[:, :1] - vectors[:, 1:]), axis=-1)
            far = ops.sqrt(ops.maximum(squares, 1e-12))
        return ops.relu(self.margin + far[:, 0] - far[:, 1])


@keras.saving.register_keras_serializable("keras_transformer_zoo")
class MatryoshkaLoss(CountedLoss):
    """The sum of a loss over several widths of the embeddings, so that their first entries can be used alone.

    Embeddings that are cut to a width are scaled to length 1 again, as by `TextEmbedder.embed(width=...)`.

    Args:
        loss: The loss, for example `InBatchNegatives()`.
        widths: Widths below that of the embeddings. The whole embeddings always count too.
        weights: Factors on the losses of the widths, in their order, and on that of the whole embeddings; None for 1.
        normalize: Whether cut embeddings are scaled to length 1. This does not change a loss of cosines.
        name: See `keras.losses.Loss`. The reduction is that of `loss`.

    Call arguments:
        y_true, sample_weight: Arguments of the loss.
        y_pred: Embeddings, `(batch, texts, dim)`.

    Raises:
        ValueError: If an argument is out of range, or a width is not below that of the embeddings.

    Example:

    >>> embedder.compile("adam", MatryoshkaLoss(InBatchNegatives(), widths=(64, 32)))

    Reference:
        Kusupati et al. 2022, "Matryoshka Representation Learning", equation 1.
    """

    def __init__(
        self,
        loss: keras.losses.Loss,
        widths: Sequence[int],
        weights: Sequence[float] | None = None,
        normalize: bool = True,
        name: str = "matryoshka",
        dtype: str = "float32",
    ) -> None:
        super().__init__(name=name, dtype=dtype)
        widths = [require_count(width, f"widths[{index}]") for index, width in enumerate(widths)]
        if not widths or len(set(widths)) != len(widths):
            raise ValueError(f"widths must be one or more different numbers, got {widths}.")
        weights = [1.0] * (len(widths) + 1) if weights is None else [float(weight) for weight in weights]
        if len(weights) != len(widths) + 1 or not min(weights) >= 0:
            raise ValueError(
                f"weights must hold a number of at least 0 for each of the {len(widths)} widths and for the whole, "
                f"got {weights}."
            )
        self.loss, self.widths, self.weights, self.normalize = loss, widths, weights, bool(normalize)

    @property
    def compares_rows(self) -> bool:
        """Whether the loss does."""
        return getattr(self.loss, "compares_rows", False)

    def __call__(self, y_true: Any, y_pred: Any, sample_weight: Any = None) -> Any:
        y_pred = ops.convert_to_tensor(y_pred, dtype=self.dtype)
        whole = y_pred.shape[-1]
        if max(self.widths) >= whole:
            raise ValueError(f"widths must be below {whole}, the width of the embeddings, got {self.widths}.")
        total = self.weights[-1] * self.loss(y_true, y_pred, sample_weight)
        for width, weight in zip(self.widths, self.weights, strict=False):
            cut = y_pred[..., :width]
            cut = unit_vectors(cut) if self.normalize else cut
            total = total + weight * self.loss(y_true, cut, sample_weight)
        return total
