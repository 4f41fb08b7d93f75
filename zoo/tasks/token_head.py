"""The head of tasks that predict tokens: it returns logits, or scores for losses in a step of `fit` and `evaluate`."""

import contextlib
from collections.abc import Callable, Iterator
from contextvars import ContextVar
from typing import Any

import keras

from zoo.backbones.output_map import OutputMap
from zoo.training.losses import TokenCrossEntropy
from zoo.training.metrics import Perplexity, TokenAccuracy, TokenCount, TokenNegativeLogLikelihood
from zoo.training.token_scores import Scoring, TokenScores, TokenTargets
from zoo.training.vocabulary_pieces import score_in_pieces

_METRICS = (Perplexity, TokenAccuracy, TokenCount, TokenNegativeLogLikelihood)
# what a subclass may replace that is given the outputs of the model
_METHODS = ("call", "with_hidden", "compute_loss", "compute_metrics")
# the head whose model makes a step at present, and the targets of the step; each thread of `tf.distribute` has its own
_STEP: ContextVar[tuple["TokenHead", TokenTargets] | None] = ContextVar("_STEP", default=None)


class TokenHead:
    """Maps vectors to logits over the vocabulary, or to the scores of labels.

    A model with this head gives `fit` and `evaluate` scores if all losses and metrics of `compile` can be computed from
    them. All other calls return logits.

    Args:
        score: Function from vectors `(batch, length, dim)` to logits.
        output_map: Returns the same map as tensors, or None if there is no such map.
    """

    def __init__(self, score: Callable[..., Any], output_map: Callable[[], OutputMap | None]) -> None:
        self._score, self._output_map = score, output_map
        self._scoring: Scoring | None = None

    def compile(self, model_class: type, loss: Any, metrics: Any) -> None:
        """Stores which scores the losses and metrics need.

        Args:
            model_class: The class of the model.
            loss: The loss of `keras.Model.compile`.
            metrics: Its metrics, including weighted ones, nested in any way.
        """
        kinds = [type(metric) for metric in keras.tree.flatten(metrics) if metric is not None]
        owners = {getattr(model_class, name).__module__.partition(".")[0] for name in _METHODS}
        self._scoring = None
        # a subclass may compute something else
        if type(loss) is TokenCrossEntropy and set(kinds) <= set(_METRICS) and owners <= {"keras", "zoo"}:
            if loss.reduction not in (None, "none") and loss.dtype == "float32":
                self._scoring = Scoring(loss.label_smoothing, TokenAccuracy in kinds)

    @contextlib.contextmanager
    def step_on(self, labels: Any, weights: Any) -> Iterator[None]:
        """A context in which calls return the scores of the targets of a batch, if they are needed.

        Keras calls the model with only the inputs of a step.

        Args:
            labels, weights: The labels of the batch, and their weights or None.
        """
        ranks = {len(part.shape) for part in (labels, weights) if hasattr(part, "shape")}
        is_scored = self._scoring is not None and ranks == {2}
        before = _STEP.set((self, TokenTargets(labels, weights)) if is_scored else None)
        try:
            yield
        finally:
            _STEP.reset(before)

    def __call__(self, vectors: Any, training: bool | None) -> Any | TokenScores:
        """Returns logits `(batch, length, vocabulary)`, or in a step the scores of its targets.

        Args:
            vectors: `(batch, length, dim)`.
            training: Whether there will be a backward pass.
        """
        head, targets = _STEP.get() or (None, None)
        if head is not self:
            return self._score(vectors)
        output_map = self._output_map()
        if output_map is None:
            return self._score(vectors)
        return score_in_pieces(vectors, output_map, targets, self._scoring, with_gradient=bool(training))
