"""Functions that losses of text embeddings share: vectors of length 1, groups of texts."""

from typing import Any

from keras import ops

from zoo.counts import CountedLoss


def unit_vectors(vectors: Any) -> Any:
    """Returns vectors scaled to length 1, float32. A vector of length 0 stays 0 and has a finite gradient.

    Args:
        vectors: `(..., dim)`.
    """
    vectors = ops.cast(vectors, "float32")
    # inside of the root, which has no gradient at 0
    return vectors * ops.rsqrt(ops.maximum(ops.sum(ops.square(vectors), axis=-1, keepdims=True), 1e-12))


def check_groups(y_pred: Any, least: int, most: int | None, what: str) -> None:
    """Raises a ValueError if embeddings do not have the shape of groups of texts.

    Args:
        y_pred: Embeddings, `(batch, texts, dim)`.
        least, most: Smallest and largest number of texts of a group. None for any number.
        what: Description of the texts, for the error.
    """
    shape = tuple(y_pred.shape)
    texts = shape[1] if len(shape) == 3 else 0
    if texts is not None and not least <= texts <= (texts if most is None else most):
        allowed = str(least) if most == least else f"{least} or more"
        raise ValueError(f"y_pred must hold {what}, with the shape (batch, {allowed}, dim), got {shape}.")


def require_positive(value: Any, name: str) -> float:
    """Returns a number that must be positive.

    Args:
        value: The number.
        name: Its name in the error.

    Raises:
        ValueError: If it is not above 0.
    """
    if not value > 0:
        raise ValueError(f"{name} must be above 0, got {value!r}.")
    return float(value)


class EmbeddingLoss(CountedLoss):
    """Base class of the losses of text embeddings.

    Args:
        reduction, name, dtype: See `zoo.counts.CountedLoss`.
    """

    def __init__(self, reduction: str | None, name: str, dtype: str) -> None:
        super().__init__(name=name, reduction=reduction, dtype=dtype)
