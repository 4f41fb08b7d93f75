"""Losses and metrics of Keras for models that return logits, where Keras by itself expects probabilities."""

from typing import Any

import keras

from zoo.preprocessing.rows import shorten

_LOSSES = (
    keras.losses.BinaryCrossentropy,
    keras.losses.BinaryFocalCrossentropy,
    keras.losses.CategoricalCrossentropy,
    keras.losses.CategoricalFocalCrossentropy,
    keras.losses.SparseCategoricalCrossentropy,
)
_METRICS = (
    keras.metrics.BinaryCrossentropy,
    keras.metrics.CategoricalCrossentropy,
    keras.metrics.SparseCategoricalCrossentropy,
)


def _snake(kind: type) -> str:
    return "".join("_" + letter.lower() if letter.isupper() else letter for letter in kind.__name__)[1:]


def _by_name(kinds: tuple[type, ...]) -> dict[str, type]:
    names = {kind.__name__: kind for kind in kinds} | {_snake(kind): kind for kind in kinds}
    return names | {"bce": kinds[0], "BCE": kinds[0]}


_LOSS_NAMES, _METRIC_NAMES = _by_name(_LOSSES), _by_name(_METRICS)
# functions of Keras, which take probabilities unless they are told otherwise
_FUNCTIONS = {getattr(keras.losses, _snake(kind)): kind for kind in _LOSSES}


def loss_of_logits(loss: Any) -> Any:
    """Returns a loss that takes the logits of a model.

    Args:
        loss: What `compile` was given. A cross-entropy by its name or as a function of Keras becomes one of logits, the
            mean over what has a weight; all else stays.

    Raises:
        ValueError: If it is an object that expects probabilities.

    Example:

    >>> loss_of_logits("sparse_categorical_crossentropy").from_logits
    True
    """
    if isinstance(loss, str) or callable(loss):
        kind = _LOSS_NAMES.get(loss) if isinstance(loss, str) else _FUNCTIONS.get(loss)
        if kind is not None:
            return kind(from_logits=True, reduction="mean_with_sample_weight")
    _refuse_probabilities(loss, "loss")
    return loss


def metrics_of_logits(metrics: Any, is_binary: bool, name: str) -> Any:
    """Returns metrics that take the logits of a model.

    Args:
        metrics: What `compile` was given: None, or a list of names and objects. Names of cross-entropies and of the
            binary accuracy become metrics of logits; all else stays.
        is_binary: Whether each logit is a decision of its own, so that "accuracy" is the binary one.
        name: Name of the argument.

    Raises:
        ValueError: If one is an object that expects probabilities.
    """
    if not isinstance(metrics, (list, tuple)):
        return metrics
    return [_metric(metric, is_binary, f"{name}[{index}]") for index, metric in enumerate(metrics)]


def _metric(metric: Any, is_binary: bool, name: str) -> Any:
    if isinstance(metric, str):
        if metric in _METRIC_NAMES:
            return _METRIC_NAMES[metric](from_logits=True, name=metric)
        if metric in ("binary_accuracy", "BinaryAccuracy") or (is_binary and metric in ("accuracy", "acc")):
            return keras.metrics.BinaryAccuracy(threshold=0.0, name=metric)
        if metric.lower() in ("auc", "precision", "recall"):
            kind = {"auc": "AUC(from_logits=True)"}.get(metric.lower(), f"{metric.title()}(thresholds=0.0)")
            raise ValueError(
                f"{name} must be a metric of logits, which the model returns: keras.metrics.{kind}, got {metric!r}."
            )
    _refuse_probabilities(metric, name)
    return metric


def _refuse_probabilities(value: Any, name: str) -> None:
    takes_logits = getattr(value, "from_logits", getattr(value, "_from_logits", True))
    if takes_logits is False:
        raise ValueError(
            f"{name} must take logits, which the model returns: {type(value).__name__}(from_logits=True), got "
            f"{shorten(value)} with from_logits=False."
        )
