"""Pictures of results that a table alone does not show, by scikit-learn and matplotlib."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from typing import Any

import zoo

# labels that are drawn, that are named next to the picture, and whose pairs are counted in it
_MOST_LABELS, _MOST_NAMES, _MOST_COUNTS = 500, 50, 25


def title_of(what: str, is_validation: bool) -> str:
    """Returns the title of a picture of test data, which may be the validation data.

    Args:
        what: What the rows are.
        is_validation: Whether they are the validation data.

    Example:

    >>> title_of("examples", True)
    'Validation examples'
    """
    return f"{'Validation' if is_validation else 'Test'} {what}"


def plot_confusion(truth: Sequence[str], predicted: Sequence[str], path: str | os.PathLike, title: str = "") -> None:
    """Draws the confusion matrix: counts, colored by share of the right label. Too many labels are not drawn.

    Args:
        truth: Right labels.
        predicted: Predicted ones.
        path: PNG file to write.
        title: Title.

    Example:

    >>> plot_confusion(["good", "bad"], ["good", "good"], "confusion.png")
    """
    from matplotlib.figure import Figure
    from sklearn.metrics import ConfusionMatrixDisplay, confusion_matrix

    number = len({*truth, *predicted})
    if number > _MOST_LABELS:
        print(f"{path} is left out: {number} labels are too many to draw")
        return
    has_counts = number <= _MOST_COUNTS
    size = 2.5 + (0.7 if has_counts else 0.45) * min(number, _MOST_NAMES)
    figure = Figure(figsize=(size + 1, size), layout="constrained")
    display = ConfusionMatrixDisplay.from_predictions(
        truth,
        predicted,
        normalize="true",
        include_values=has_counts,
        xticks_rotation="vertical",
        cmap="Blues",
        text_kw={"fontsize": 9},
        ax=figure.subplots(),
    )
    if has_counts:
        for text, count in zip(display.text_.flat, confusion_matrix(truth, predicted).flat, strict=True):
            text.set_text(f"{count:,}")
    display.ax_.set_title(title)
    if number > _MOST_NAMES:
        display.ax_.set(xticks=[], yticks=[])
    zoo.inspect.save_figure(figure, path)


def plot_agreement(
    truth: Sequence[float], predicted: Sequence[float], path: str | os.PathLike, title: str = ""
) -> None:
    """Draws predicted values over the right ones.

    Args:
        truth: Right values.
        predicted: Predicted values.
        path: PNG file to write.
        title: Title.

    Example:

    >>> plot_agreement([0.0, 5.0], [0.5, 4.5], "similarity.png")
    """
    from matplotlib.figure import Figure
    from sklearn.metrics import PredictionErrorDisplay

    figure = Figure(figsize=(5, 4), layout="constrained")
    display = PredictionErrorDisplay.from_predictions(
        y_true=truth,
        y_pred=predicted,
        kind="actual_vs_predicted",
        scatter_kwargs={"s": 6, "alpha": 0.4},
        ax=figure.subplots(),
    )
    display.ax_.set(xlabel="predicted value", ylabel="right value", title=title)
    zoo.inspect.save_figure(figure, path)


# a value, its interval if it is known, and what it is the mean of
Interval = tuple[float, tuple[float, float] | None, Sequence[float]]


def plot_intervals(panels: Mapping[str, Mapping[str, Interval]], path: str | os.PathLike, title: str = "") -> None:
    """Draws values with their intervals, a line for each name, and the points that they are means of.

    Args:
        panels: For each measure the values by name.
        path: PNG file to write.
        title: Title.

    Example:

    >>> plot_intervals({"accuracy": {"rotary": (0.8, (0.7, 0.9), [0.75, 0.85])}}, "comparison.png")
    """
    from matplotlib.figure import Figure

    names = list(dict.fromkeys(name for values in panels.values() for name in values))
    figure = Figure(figsize=(2 + 4 * len(panels), 1.4 + 0.45 * len(names)), layout="constrained")
    axes = figure.subplots(1, len(panels), sharey=True, squeeze=False)[0]
    for axis, (measure, values) in zip(axes, panels.items(), strict=True):
        for name, (value, interval, points) in values.items():
            place = names.index(name)
            axis.plot(points, [place] * len(points), "o", color="tab:blue", alpha=0.35, markersize=5)
            if interval is not None:
                axis.plot(interval, [place] * 2, "-", color="tab:blue", linewidth=2)
            axis.plot([value], [place], "D", color="tab:blue", markersize=6)
        axis.set(yticks=range(len(names)), yticklabels=names, xlabel=measure, ylim=(len(names) - 0.5, -0.5))
        axis.grid(axis="x", alpha=0.3)
    figure.suptitle(title, fontsize="medium")
    zoo.inspect.save_figure(figure, path)


def plot_histogram(values: Sequence[float], path: str | os.PathLike, x_label: str, title: str = "") -> None:
    """Draws how often values occur, with a line at 0.

    Args:
        values: The values.
        path: PNG file to write.
        x_label: What they are.
        title: Title.

    Example:

    >>> plot_histogram([-0.5, 0.1, 0.2], "margins.png", "margin")
    """
    from matplotlib.figure import Figure

    figure = Figure(figsize=(6, 3.6), layout="constrained")
    axis = figure.subplots()
    axis.hist(values, bins="auto" if len(values) > 20 else 10)
    axis.axvline(0, color="black", linewidth=1)
    axis.set(xlabel=x_label, ylabel="number", title=title)
    zoo.inspect.save_figure(figure, path)


def plot_reliability(series: Mapping[str, tuple[Any, Any]], path: str | os.PathLike, title: str = "") -> None:
    """Draws how many decisions of each confidence are right, and how many decisions there are.

    Args:
        series: For each label in the legend how sure each decision is, and whether it is right.
        path: PNG file to write.
        title: Title.

    Example:

    >>> plot_reliability({"temperature 1": ([0.9, 0.6], [True, False])}, "reliability.png")

    Reference:
        Guo et al. 2017, "On Calibration of Modern Neural Networks", section 2.
    """
    import numpy as np
    from matplotlib.figure import Figure
    from sklearn.calibration import CalibrationDisplay

    figure = Figure(figsize=(5, 6), layout="constrained")
    upper, lower = figure.subplots(2, height_ratios=(3, 1), sharex=True)
    for name, (confidences, right) in series.items():
        confidences, right = np.asarray(confidences, "float64"), np.asarray(right, "int64")
        CalibrationDisplay.from_predictions(right, confidences, n_bins=10, name=name, ax=upper, pos_label=1)
        lower.hist(confidences, bins=20, range=(0, 1), histtype="step", label=name)
    upper.set(xlabel="", ylabel="share of right decisions", title=title)
    lower.set(xlabel="confidence", ylabel="decisions")
    zoo.inspect.save_figure(figure, path)
