"""Losses and metrics of Keras for models that return logits, where Keras by itself expects probabilities."""

from collections.abc import Mapping
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
# metrics that look for the best of many thresholds of probabilities
_AT_THRESHOLDS = (
    keras.metrics.PrecisionAtRecall,
    keras.metrics.RecallAtPrecision,
    keras.metrics.SensitivityAtSpecificity,
    keras.metrics.SpecificityAtSensitivity,
)
# functions of Keras, which take probabilities unless they are told otherwise
_METRIC_FUNCTIONS = {
    getattr(keras.metrics, name): name
    for name in (
        "binary_accuracy",
        "binary_crossentropy",
        "categorical_crossentropy",
        "sparse_categorical_crossentropy",
    )
}
_FUNCTIONS = {getattr(keras.losses, _snake(kind)): kind for kind in _LOSSES}


def loss_of_logits(loss: Any) -> Any:
    """Returns a loss that takes the logits of a model.

    Args:
        loss: What `compile` was given. A cross-entropy by its name or as a function of Keras becomes one of logits, the
            mean over what has a weight; all else stays. Lists and dictionaries of losses are gone through.

    Raises:
        ValueError: If it is an object that expects probabilities.

    Example:

    >>> loss_of_logits("sparse_categorical_crossentropy").from_logits
    True
    """
    if isinstance(loss, (list, tuple)):
        return [loss_of_logits(one) for one in loss]
    if isinstance(loss, Mapping):
        if "class_name" not in loss:
            return {name: loss_of_logits(one) for name, one in loss.items()}
        loss = keras.losses.get(dict(loss))
    if isinstance(loss, str) or callable(loss):
        kind = _LOSS_NAMES.get(loss) if isinstance(loss, str) else _FUNCTIONS.get(loss)
        if kind is not None:
            return kind(from_logits=True, reduction="mean_with_sample_weight")
    _refuse_probabilities(loss, "loss")
    return loss


def metrics_of_logits(metrics: Any, is_binary: bool, name: str) -> Any:
    """Returns metrics that take the logits of a model.

    Args:
        metrics: What `compile` was given: None, or a list of names, functions and objects, also nested, or a dictionary
            of these. Cross-entropies and the binary accuracy by name or as functions become metrics of logits; all
            else stays.
        is_binary: Whether each logit is a decision of its own, so that "accuracy" is the binary one.
        name: Name of the argument.

    Raises:
        ValueError: If one is an object that expects probabilities.
    """
    if isinstance(metrics, (list, tuple)):
        return [metrics_of_logits(metric, is_binary, f"{name}[{index}]") for index, metric in enumerate(metrics)]
    if isinstance(metrics, Mapping):
        return {key: metrics_of_logits(metric, is_binary, f"{name}[{key!r}]") for key, metric in metrics.items()}
    return metrics if metrics is None else _metric(metrics, is_binary, name)


def _metric(metric: Any, is_binary: bool, name: str) -> Any:
    if not isinstance(metric, (str, keras.metrics.Metric)) and callable(metric):
        metric = _METRIC_FUNCTIONS.get(metric, metric)
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
    kind = type(value).__name__
    if getattr(value, "from_logits", getattr(value, "_from_logits", True)) is False:
        raise ValueError(
            f"{name} must take logits, which the model returns: {kind}(from_logits=True), got {shorten(value)} with "
            "from_logits=False."
        )
    # thresholds that Keras takes where none is given are those of probabilities
    for argument, given in (("threshold", "threshold"), ("thresholds", "init_thresholds")):
        if hasattr(value, given) and getattr(value, "top_k", None) is None:
            threshold = getattr(value, given)
            if threshold == 0.5 or (threshold is None and given == "init_thresholds"):
                raise ValueError(
                    f"{name} must look at logits, which the model returns: {kind}({argument}=0.0), got "
                    f"{shorten(value)} with the threshold 0.5 of probabilities."
                )
    if isinstance(value, _AT_THRESHOLDS):
        raise ValueError(
            f"{name} must be a metric of logits, which the model returns; {kind} looks for a threshold from 0 to 1."
        )
