"""Losses and metrics of Keras for models that return logits. By default Keras expects probabilities."""

import inspect
from collections.abc import Callable, Mapping
from typing import Any

import keras

from layers.keras_internals import function_of, takes_logits
from zoo.preprocessing.rows import shorten

_LOSSES = (
    keras.losses.BinaryCrossentropy,
    keras.losses.BinaryFocalCrossentropy,
    keras.losses.CategoricalCrossentropy,
    keras.losses.CategoricalFocalCrossentropy,
    keras.losses.SparseCategoricalCrossentropy,
)
_METRICS = (
    keras.metrics.BinaryAccuracy,
    keras.metrics.BinaryCrossentropy,
    keras.metrics.CategoricalCrossentropy,
    keras.metrics.SparseCategoricalCrossentropy,
)


def _snake(kind: type) -> str:
    return "".join("_" + letter.lower() if letter.isupper() else letter for letter in kind.__name__)[1:]


def _by_identifier(kinds: tuple[type, ...], module: Any) -> dict[Any, type]:
    """The classes by all that Keras takes for them: themselves, their names, and the functions of these names."""
    known: dict[Any, type] = {}
    for kind in kinds:
        known |= dict.fromkeys((kind, kind.__name__, _snake(kind), getattr(module, _snake(kind))), kind)
    bce = module.BinaryCrossentropy
    return known | {"bce": bce, "BCE": bce}


_LOSS_KINDS = _by_identifier(_LOSSES, keras.losses)
_METRIC_KINDS = _by_identifier(_METRICS, keras.metrics)
# these have no option for logits
_OF_PROBABILITIES = (
    keras.losses.CategoricalGeneralizedCrossEntropy,
    keras.losses.Dice,
    keras.losses.KLDivergence,
    keras.losses.Poisson,
    keras.losses.Tversky,
    keras.metrics.KLDivergence,
    keras.metrics.Poisson,
    # the best of many thresholds from 0 to 1
    keras.metrics.PrecisionAtRecall,
    keras.metrics.RecallAtPrecision,
    keras.metrics.SensitivityAtSpecificity,
    keras.metrics.SpecificityAtSensitivity,
)
_FUNCTIONS_OF_PROBABILITIES = (
    keras.losses.categorical_generalized_cross_entropy,
    keras.losses.CategoricalGeneralizedCrossEntropy,
    keras.losses.dice,
    keras.losses.kl_divergence,
    keras.losses.poisson,
    keras.losses.tversky,
)


def loss_of_logits(loss: Any) -> Any:
    """Returns a loss that takes the logits of a model.

    Args:
        loss: The argument `loss` of `compile`. A cross-entropy by its name, as a class or as a function of Keras
            becomes one of logits. Other losses stay. Lists and dictionaries are
            searched.

    Raises:
        ValueError: If the loss expects probabilities, or is "crossentropy", which is ambiguous.

    Example:

    >>> loss_of_logits("sparse_categorical_crossentropy").from_logits
    True
    """
    if isinstance(loss, (list, tuple)):
        return [loss_of_logits(one) for one in loss]
    if isinstance(loss, Mapping) and "class_name" not in loss:
        return {name: loss_of_logits(one) for name, one in loss.items()}
    if isinstance(loss, str) and loss.lower() in ("crossentropy", "ce"):
        raise ValueError(
            "loss must be a cross-entropy by its full name, such as 'sparse_categorical_crossentropy', or 'auto', got "
            f"{loss!r}."
        )
    kind = _kind_of(loss, _LOSS_KINDS)
    if kind is not None:
        return kind(from_logits=True)
    return _refuse_probabilities(loss, keras.losses.get, "loss")


def metrics_of_logits(metrics: Any, is_binary: bool, name: str) -> Any:
    """Returns metrics that take the logits of a model.

    Args:
        metrics: The argument of `compile`: None, or a list of names, classes, functions and objects, also nested, or a
            dictionary of these. Cross-entropies and the binary accuracy by name, as classes or as functions become
            metrics of logits; all else stays.
        is_binary: Whether each logit is a decision of its own, so that "accuracy" is the binary one.
        name: Name of the argument.

    Raises:
        ValueError: If a metric expects probabilities.
    """
    if isinstance(metrics, (list, tuple)):
        return [metrics_of_logits(metric, is_binary, f"{name}[{index}]") for index, metric in enumerate(metrics)]
    if isinstance(metrics, Mapping) and "class_name" not in metrics:
        return {key: metrics_of_logits(metric, is_binary, f"{name}[{key!r}]") for key, metric in metrics.items()}
    return metrics if metrics is None else _metric(metrics, is_binary, name)


def _metric(metric: Any, is_binary: bool, name: str) -> Any:
    # Keras chooses the accuracy by the shapes, whatever the case
    is_accuracy = isinstance(metric, str) and metric.lower() in ("accuracy", "acc")
    if is_accuracy and not is_binary:
        return metric
    kind = keras.metrics.BinaryAccuracy if is_accuracy else _kind_of(metric, _METRIC_KINDS)
    if kind is None:
        return _refuse_probabilities(metric, keras.metrics.get, name)
    option: dict[str, Any] = {"threshold": 0.0} if kind is keras.metrics.BinaryAccuracy else {"from_logits": True}
    return kind(**option, name=metric if isinstance(metric, str) else _snake(kind))


def are_of_single_rows(metrics: Any) -> bool:
    """Returns whether metrics are code of Keras or of this package, which make no use of the order of rows.

    Args:
        metrics: The metrics of `compile`, nested in any way: names, classes, functions and objects.
    """
    for metric in keras.tree.flatten(metrics):
        # what Keras makes of a function is a mean of it
        for part in (metric, function_of(metric)):
            kind = part if isinstance(part, type) or inspect.isfunction(part) else type(part)
            if part is None or isinstance(part, str):
                continue
            if kind.__module__.partition(".")[0] not in ("keras", "zoo"):
                return False
    return True


def _kind_of(value: Any, kinds: Mapping[Any, type]) -> type | None:
    """The class for a name, a class or a function; None for anything else."""
    return kinds.get(value) if isinstance(value, (str, type)) or inspect.isfunction(value) else None


def _refuse_probabilities(given: Any, made_of: Callable[[Any], Any], name: str) -> Any:
    """Returns what was given, a class as an object made by Keras, or refuses it if it expects probabilities."""
    value = made_of(dict(given) if isinstance(given, Mapping) else given)
    kind = type(value).__name__
    got = f"got {shorten(given)}"
    if not _computed_by_keras(value):
        return given if isinstance(given, str) else value
    if not takes_logits(value):
        raise ValueError(
            f"{name} must take logits, which the model returns: {kind}(from_logits=True), {got} with from_logits=False."
        )
    # thresholds that Keras takes where none is given are those of probabilities
    for argument, attribute in (("threshold", "threshold"), ("thresholds", "init_thresholds")):
        if hasattr(value, attribute) and getattr(value, "top_k", None) is None:
            threshold = getattr(value, attribute)
            if threshold == 0.5 or (threshold is None and attribute == "init_thresholds"):
                raise ValueError(
                    f"{name} must look at logits, which the model returns: {kind}({argument}=0.0), {got} with the "
                    "threshold 0.5 of probabilities."
                )
    if isinstance(value, _OF_PROBABILITIES) or any(value is function for function in _FUNCTIONS_OF_PROBABILITIES):
        raise ValueError(f"{name} must take logits, which the model returns; {got}, one of probabilities.")
    return given if isinstance(given, str) else value


def _computed_by_keras(value: Any) -> bool:
    """Whether what a loss or metric makes of its inputs is code of Keras, whose attributes have a known meaning."""
    kind = type(value)
    computes = (
        value if inspect.isfunction(value) else getattr(kind, "update_state", None) or getattr(kind, "call", None)
    )
    return getattr(computes, "__module__", "").startswith("keras.")
