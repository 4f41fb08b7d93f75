"""Scores of tokens, which losses and metrics take in place of logits."""

from typing import Any, NamedTuple, TypeVar

import keras

T = TypeVar("T", bound=type)


def _taken_apart_by_jax(kind: T) -> T:
    """Lets JAX see the tensors of a class; to Keras it is one thing, as logits are."""
    if keras.backend.backend() == "jax":
        import jax

        jax.tree_util.register_dataclass(kind, data_fields=list(kind.__slots__), meta_fields=[])
    return kind


class TokenTargets(NamedTuple):
    """Labels and weights by which a training or test step scores the tokens of its batch.

    Args:
        labels: Ints `(batch, length)`.
        weights: Floats that can be broadcast to `(batch, length)`, 0 where a token does not count; None for 1.
    """

    labels: Any
    weights: Any = None


@_taken_apart_by_jax
class TokenScores:
    """Scores of logits that were computed one part at a time.

    `TokenCrossEntropy` and the token metrics take it in place of the logits.

    Args:
        total: Sum of the weights times the losses, float32. The gradient of a loss goes to this tensor.
        log_likelihoods: Logarithm of the probability of each label, float32 `(batch, length)`.
        hits: 1 where the label has the largest logit, else 0, float32 `(batch, length)`. None if no metric needs it.
    """

    __slots__ = ("hits", "log_likelihoods", "total")

    def __init__(self, total: Any, log_likelihoods: Any, hits: Any = None) -> None:
        self.total: Any = total
        self.log_likelihoods: Any = log_likelihoods
        self.hits: Any = hits


class Scoring(NamedTuple):
    """Which scores a loss and metrics need.

    Args:
        label_smoothing: Label smoothing of the loss.
        with_hits: Whether a metric needs to know which labels have the largest logit.
    """

    label_smoothing: float
    with_hits: bool
