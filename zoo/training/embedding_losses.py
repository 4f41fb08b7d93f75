"""Losses of groups of text embeddings."""

from collections.abc import Sequence
from typing import Any

import keras
from keras import ops

from zoo.preprocessing.rows import require_count

DISTANCES = ("euclidean", "cosine")
# takes a term out of a sum of exponentials; finite, so that gradients are
_NEVER = -1e9


def _normalized(vectors: Any) -> Any:
    return ops.normalize(ops.cast(vectors, "float32"), axis=-1)


def _cosines(vectors: Any) -> Any:
    vectors = _normalized(vectors)
    return ops.sum(vectors[:, 0] * vectors[:, 1], axis=-1)


def _check_groups(y_pred: Any, least: int, most: int | None, what: str) -> None:
    shape = tuple(y_pred.shape)
    texts = shape[1] if len(shape) == 3 else 0
    if texts is not None and not least <= texts <= (texts if most is None else most):
        allowed = str(least) if most == least else f"{least} or more"
        raise ValueError(f"y_pred must hold {what}, with the shape (batch, {allowed}, dim), got {shape}.")


def _require_positive(value: Any, name: str) -> float:
    if not value > 0:
        raise ValueError(f"{name} must be above 0, got {value!r}.")
    return float(value)


class _EmbeddingLoss(keras.losses.Loss):
    """A loss with the arguments of all of them: how rows are reduced, and its name."""

    def __init__(self, reduction: str | None, name: str, dtype: str) -> None:
        super().__init__(name=name, reduction=reduction, dtype=dtype)

    def get_config(self) -> dict[str, Any]:
        return {**super().get_config(), "dtype": self.dtype}


@keras.saving.register_keras_serializable("keras_transformer_zoo")
class InBatchNegatives(_EmbeddingLoss):
    """Cross-entropy of finding an anchor's own positive among the texts of the whole batch (InfoNCE).

    The score of anchor i and candidate j is `scale * cosine(a_i, c_j)`; candidates are the positives of all rows and,
    where there are, their negatives. Where the labels tell which texts are equal, as those of a `TextEmbedder` do, no
    anchor is pushed away from its own text, from another copy of its positive, or from the positive of another row
    with the same anchor.

    Args:
        scale: Factor on the cosines, the inverse of the temperature.
        symmetric: Whether the anchor is also to be found among all anchors given the positive, and the mean is taken.
        reduction, name: See `keras.losses.Loss`.

    Call arguments:
        y_true: A number per text, `(batch, texts)`, the same for equal texts of the batch. Of another shape it is not
            looked at, and all texts count as different.
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

    def __init__(
        self,
        scale: float = 20.0,
        symmetric: bool = False,
        reduction: str | None = "mean_with_sample_weight",
        name: str = "in_batch_negatives",
        dtype: str = "float32",
    ) -> None:
        super().__init__(reduction, name, dtype)
        self.scale = _require_positive(scale, "scale")
        self.symmetric = bool(symmetric)

    def call(self, y_true: Any, y_pred: Any) -> Any:
        _check_groups(y_pred, 2, None, "anchor, positive and perhaps negatives")
        vectors = _normalized(y_pred)
        anchors, positives = vectors[:, 0], vectors[:, 1]
        # the positives of all rows, then the first negatives of all rows, and so on
        candidates = ops.reshape(ops.transpose(vectors[:, 1:], (1, 0, 2)), (-1, y_pred.shape[-1]))
        scores = self.scale * ops.matmul(anchors, ops.transpose(candidates))
        back = self.scale * ops.matmul(positives, ops.transpose(anchors))
        if len(y_true.shape) == 2:
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

    def get_config(self) -> dict[str, Any]:
        return {**super().get_config(), "scale": self.scale, "symmetric": self.symmetric}


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
class TripletLoss(_EmbeddingLoss):
    """How far a negative is from being `margin` further away from the anchor than the positive, at least 0.

    Args:
        margin: The margin.
        distance: "euclidean", or "cosine" for 1 minus the cosine.
        reduction, name: See `keras.losses.Loss`.

    Call arguments:
        y_true: Not looked at.
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
        reduction: str | None = "mean_with_sample_weight",
        name: str = "triplet",
        dtype: str = "float32",
    ) -> None:
        super().__init__(reduction, name, dtype)
        if distance not in DISTANCES:
            raise ValueError(f"distance must be one of {DISTANCES}, got {distance!r}.")
        self.margin, self.distance = _require_positive(margin, "margin"), distance

    def call(self, y_true: Any, y_pred: Any) -> Any:
        _check_groups(y_pred, 3, 3, "anchor, positive and negative")
        if self.distance == "cosine":
            vectors = _normalized(y_pred)
            far = 1 - ops.sum(vectors[:, :1] * vectors[:, 1:], axis=-1)
        else:
            vectors = ops.cast(y_pred, "float32")
            # the root has no gradient at 0
            squares = ops.sum(ops.square(vectors[:, :1] - vectors[:, 1:]), axis=-1)
            far = ops.sqrt(ops.maximum(squares, 1e-12))
        return ops.relu(self.margin + far[:, 0] - far[:, 1])

    def get_config(self) -> dict[str, Any]:
        return {**super().get_config(), "margin": self.margin, "distance": self.distance}


@keras.saving.register_keras_serializable("keras_transformer_zoo")
class CosineRegression(_EmbeddingLoss):
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
        super().__init__(reduction, name, dtype)

    def call(self, y_true: Any, y_pred: Any) -> Any:
        _check_groups(y_pred, 2, 2, "two embeddings per row")
        return ops.square(_cosines(y_pred) - ops.reshape(ops.cast(y_true, "float32"), (-1,)))


@keras.saving.register_keras_serializable("keras_transformer_zoo")
class CoSENT(keras.losses.Loss):
    """Penalty for each two rows of a batch whose cosines are in another order than their similarities.

    It is `log(1 + sum exp(scale * (cosine_j - cosine_i)))` over all rows i and j with `y_i > y_j`: only the order of
    the similarities counts, as it does for Spearman's correlation, not their size.

    Args:
        scale: Factor on the cosines.
        name: See `keras.losses.Loss`. There is one value per batch, so that nothing is left to reduce.

    Call arguments:
        y_true: Similarities on any scale, `(batch,)`.
        y_pred: Embeddings of the two texts, `(batch, 2, dim)`.
        sample_weight: Weights of rows, `(batch,)`: a term has the product of those of its two rows, so that a row of
            weight 2 counts as if it were there twice.

    Raises:
        ValueError: If `scale` is not positive, or `y_pred` has another shape.

    Example:

    >>> embedder.compile("adam", CoSENT())

    Reference:
        Su 2022, "CoSENT: a more effective sentence vector scheme than Sentence-BERT", https://kexue.fm/archives/8847
        (in Chinese); Reimers and Gurevych 2019 (its library's CoSENTLoss).
    """

    def __init__(self, scale: float = 20.0, name: str = "cosent", dtype: str = "float32") -> None:
        super().__init__(name=name, dtype=dtype)
        self.scale = _require_positive(scale, "scale")

    def __call__(self, y_true: Any, y_pred: Any, sample_weight: Any = None) -> Any:
        if sample_weight is not None:
            # they belong inside of the logarithm, where the base class would not put them
            columns = [ops.reshape(ops.cast(each, "float32"), (-1,)) for each in (y_true, sample_weight)]
            y_true = ops.stack(columns, axis=1)
        return super().__call__(y_true, y_pred)

    def call(self, y_true: Any, y_pred: Any) -> Any:
        _check_groups(y_pred, 2, 2, "two embeddings per row")
        scores, weights = self.scale * _cosines(y_pred), None
        if len(y_true.shape) == 2 and y_true.shape[1] == 2:
            y_true, weights = y_true[:, 0], y_true[:, 1]
        right = ops.reshape(y_true, (-1,))
        terms = scores[None, :] - scores[:, None]
        counts = right[:, None] > right[None, :]
        if weights is not None:
            weights = weights[:, None] * weights[None, :]
            counts = ops.logical_and(counts, weights > 0)
            terms = terms + ops.log(ops.where(weights > 0, weights, 1.0))
        terms = ops.reshape(ops.where(counts, terms, _NEVER), (-1,))
        return ops.logsumexp(ops.concatenate([ops.zeros((1,)), terms]), keepdims=True)

    def get_config(self) -> dict[str, Any]:
        return {"scale": self.scale, "name": self.name, "dtype": self.dtype}


@keras.saving.register_keras_serializable("keras_transformer_zoo")
class MatryoshkaLoss(keras.losses.Loss):
    """A loss of embeddings, added up over their first entries of several widths, which so learn to stand alone.

    Embeddings that are cut to a width are scaled to length 1 again, as `TextEmbedder.embed(width=...)` does.

    Args:
        loss: The loss, for example `InBatchNegatives()`.
        widths: Widths below that of the embeddings; the whole embeddings always count too.
        weights: Factor on the loss of each width, in their order, then that of the whole; None for 1 each.
        normalize: Whether cut embeddings are scaled to length 1. A loss of cosines is the same without.
        name: See `keras.losses.Loss`. How rows are reduced is said by `loss`.

    Call arguments:
        y_true, sample_weight: Those of the loss.
        y_pred: Embeddings, `(batch, texts, dim)`.

    Raises:
        ValueError: If an argument is out of range, or a width not below that of the embeddings.

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

    def __call__(self, y_true: Any, y_pred: Any, sample_weight: Any = None) -> Any:
        y_pred = ops.convert_to_tensor(y_pred, dtype=self.dtype)
        whole = y_pred.shape[-1]
        if max(self.widths) >= whole:
            raise ValueError(f"widths must be below {whole}, the width of the embeddings, got {self.widths}.")
        total = self.weights[-1] * self.loss(y_true, y_pred, sample_weight)
        for width, weight in zip(self.widths, self.weights, strict=False):
            cut = y_pred[..., :width]
            cut = _normalized(cut) if self.normalize else cut
            total = total + weight * self.loss(y_true, cut, sample_weight)
        return total

    def get_config(self) -> dict[str, Any]:
        return {
            "loss": keras.losses.serialize(self.loss),
            "widths": self.widths,
            "weights": self.weights,
            "normalize": self.normalize,
            "name": self.name,
            "dtype": self.dtype,
        }

    @classmethod
    def from_config(cls, config: dict[str, Any]) -> "MatryoshkaLoss":
        return cls(**{**config, "loss": keras.losses.deserialize(config["loss"])})
