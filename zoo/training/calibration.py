"""Calibration of probabilities: a temperature fitted to held-out data, and thresholds of labels."""

from types import ModuleType
from typing import Any, NamedTuple

import numpy as np

from zoo.storage.user_warnings import warn_user

# temperatures that are tried
_LOWEST, _HIGHEST = 0.01, 100.0


class Calibration(NamedTuple):
    """A temperature, and its effect on the data that it was fitted to.

    Args:
        temperature: Divisor of the logits, from 0.01 to 100. A warning is given if it is one of these limits.
        error_before, error_after: Expected calibration error with temperature 1 and with this one.
        loss_before, loss_after: Mean negative log-likelihood in nats, with temperature 1 and with this one.
    """

    temperature: float
    error_before: float
    error_after: float
    loss_before: float
    loss_after: float


def require_temperature(temperature: Any) -> float:
    """Returns a temperature.

    Args:
        temperature: What the user passed.

    Raises:
        ValueError: If it is not a finite number above 0.
    """
    is_number = isinstance(temperature, (int, float, np.integer, np.floating)) and not isinstance(temperature, bool)
    if not is_number or not 0 < temperature < np.inf:
        raise ValueError(f"temperature must be a finite number above 0, got {temperature!r}.")
    return float(temperature)


def require_threshold(threshold: Any, count: int) -> float | tuple[float, ...]:
    """Returns a threshold for all labels, or one for each.

    Args:
        threshold: What the user passed.
        count: Number of labels.

    Raises:
        ValueError: If it is neither, or one is not from 0 to 1.
    """
    values = np.asarray(threshold)
    if values.dtype.kind not in "iuf" or values.shape not in ((), (count,)):
        raise ValueError(f"threshold must be a number, or one for each of the {count} labels, got {threshold!r}.")
    if not np.all((values >= 0) & (values <= 1)):
        raise ValueError(f"threshold must be from 0 to 1, got {threshold!r}.")
    # no list: Keras would track it
    return float(values) if values.ndim == 0 else tuple(map(float, values))


def fit_temperature(logits: np.ndarray, labels: np.ndarray) -> Calibration:
    """Returns the temperature with the highest likelihood of held-out data. Each row counts once.

    Rows are not weighted, even if they were in training, because probabilities must be right for the data as they are.
    If the temperature is the lowest or the highest that is tried, a warning says so and gives the reason.

    Args:
        logits: `(rows, labels)`.
        labels: Index of the label of each row, `(rows,)`, or zeros and ones `(rows, labels)` for several labels.

    Raises:
        ValueError: If the most probable label is right in every row, because the likelihood then has no maximum.

    Example:

    >>> fit_temperature(np.array([[9.0, 0.0]] * 4), np.array([0, 0, 0, 1])).temperature
    8.19...

    Reference:
        Guo et al. 2017, "On Calibration of Modern Neural Networks", section 4.2.
    """
    scipy = _import_scipy()
    logits, labels = np.asarray(logits, "float64"), np.asarray(labels)
    _, right = decisions(probabilities_of(logits, labels.ndim == 2), labels)
    if right.all():
        raise ValueError(
            f"Data to calibrate on must hold wrong predictions, got {len(logits)} rows without any: the likelihood "
            "grows as the temperature falls."
        )

    def loss(temperature: float) -> float:
        return negative_log_likelihood(logits / temperature, labels)

    # in the logarithm of the temperature the loss has one minimum
    bounds = (np.log(_LOWEST), np.log(_HIGHEST))
    found = scipy.optimize.minimize_scalar(lambda power: loss(np.exp(power)), bounds=bounds, method="bounded")
    temperature = float(np.exp(found.x))
    if temperature > 0.99 * _HIGHEST:
        warn_user(f"temperature is {temperature:.4g}, the highest that is tried: {_why_highest(logits, labels)}.")
    elif temperature < 1.01 * _LOWEST:
        few = "logits are very small, and nearly all predictions are right"
        warn_user(f"temperature is {temperature:.4g}, the lowest that is tried: {few}.")
    errors = [
        calibration_error(*decisions(probabilities_of(logits / value, labels.ndim == 2), labels))
        for value in (1.0, temperature)
    ]
    return Calibration(temperature, *errors, loss(1.0), loss(temperature))


def _import_scipy() -> ModuleType:
    try:
        import scipy.optimize
        import scipy.special
    except ImportError as error:
        raise ImportError('Calibration needs scipy: pip install "keras-transformer-zoo[recipes]"') from error
    return scipy


def _why_highest(logits: np.ndarray, labels: np.ndarray) -> str:
    # how the log-likelihood begins to grow with the inverse of the temperature
    if labels.ndim == 2:
        slope = np.mean((labels - 0.5) * logits)
    else:
        chosen = np.take_along_axis(logits, labels[:, None].astype("int64"), axis=1)
        slope = np.mean(chosen - logits.mean(axis=1, keepdims=True))
    if slope > 0:
        return "logits are very large"
    return (
        "equal probabilities of all labels are likelier than any that follow the logits. The model was hardly trained, "
        "labels are in another order, or class weights made rare ones too likely, which no temperature undoes"
    )


def probabilities_of(logits: np.ndarray, are_binary: bool) -> np.ndarray:
    """Returns the sigmoid or softmax of logits `(rows, labels)`, float64.

    Args:
        logits: The logits.
        are_binary: Whether each logit is a separate decision.
    """
    special = _import_scipy().special
    return special.expit(logits) if are_binary else special.softmax(logits, axis=-1)


def negative_log_likelihood(logits: np.ndarray, labels: np.ndarray) -> float:
    """Returns the mean negative log-likelihood of rows, or of their decisions, in nats.

    Args:
        logits, labels: As for `fit_temperature`.
    """
    special = _import_scipy().special
    if labels.ndim == 2:
        return float(np.mean(np.logaddexp(0.0, logits) - labels * logits))
    chosen = np.take_along_axis(logits, labels[:, None].astype("int64"), axis=1)[:, 0]
    return float(np.mean(special.logsumexp(logits, axis=1) - chosen))


def decisions(probabilities: np.ndarray, labels: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Returns the confidence of each decision, and whether it is right, both flat.

    Args:
        probabilities: `(rows, labels)`.
        labels: As for `fit_temperature`. With several labels per row, each label is a decision.
    """
    if labels.ndim == 2:
        holds = probabilities >= 0.5
        return np.where(holds, probabilities, 1 - probabilities).ravel(), (holds == (labels > 0.5)).ravel()
    return probabilities.max(axis=1, initial=0.0), probabilities.argmax(axis=1) == labels


def calibration_error(confidences: np.ndarray, right: np.ndarray, bins: int = 15) -> float:
    """Returns the expected calibration error: the distance of confidence from the share of right decisions.

    Decisions are put into bins of equal width by their confidence. The error is the mean over the bins, weighted by
    their decisions, of the distance between mean confidence and share of right decisions.

    Args:
        confidences: Confidence of each decision, from 0 to 1, `(decisions,)`.
        right: Whether each decision is right.
        bins: Number of bins.

    Example:

    >>> calibration_error([0.9, 0.9, 0.9, 0.9], [True, True, True, False])
    0.15

    Reference:
        Guo et al. 2017, "On Calibration of Modern Neural Networks", equation 3.
    """
    confidences, right = np.asarray(confidences, "float64"), np.asarray(right, "float64")
    if not len(confidences):
        raise ValueError("confidences must hold at least one decision, got none.")
    # a bin holds its upper border
    numbers = np.clip(np.ceil(confidences * bins).astype("int64") - 1, 0, bins - 1)
    gaps = np.bincount(numbers, confidences - right, minlength=bins)
    return float(np.abs(gaps).sum() / len(confidences))


def best_thresholds(probabilities: np.ndarray, labels: np.ndarray, default: float = 0.5) -> np.ndarray:
    """Returns the threshold of each label that gives it the highest F1, float64 `(labels,)`.

    It is half-way between two probabilities of the data. Of equally good thresholds it is the one
    nearest to the default.

    Args:
        probabilities: `(rows, labels)`.
        labels: Zeros and ones, `(rows, labels)`.
        default: Threshold of a label that no row has.

    Example:

    >>> best_thresholds(np.array([[0.1], [0.3], [0.4]]), np.array([[0], [1], [1]]))
    array([0.2])
    """
    found = np.full(probabilities.shape[1], default)
    for label, (scores, truth) in enumerate(zip(probabilities.T, labels.T, strict=True)):
        if not truth.sum():
            continue
        order = np.argsort(-scores, kind="stable")
        scores, hits = np.asarray(scores[order], "float64"), np.cumsum(truth[order])
        # a threshold stands behind the last of equal scores
        last = np.flatnonzero(np.append(scores[1:] != scores[:-1], True))
        f1 = 2 * hits[last] / (last + 1 + truth.sum())
        below = np.append(scores[1:], 0.0)[last]
        candidates = (scores[last] + below) / 2
        # the default, where it stands between the same scores
        candidates = np.where((below < default) & (default <= scores[last]), default, candidates)
        best = np.flatnonzero(f1 >= f1.max() - 1e-12)
        found[label] = candidates[best[np.argmin(np.abs(candidates[best] - default))]]
    return found
