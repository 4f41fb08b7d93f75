"""Pictures of results that a table alone does not show."""

from __future__ import annotations

import os
from collections.abc import Sequence

import numpy as np


def plot_confusion(counts: np.ndarray, labels: Sequence[str], path: str | os.PathLike, title: str = "") -> None:
    """Draws how often each label was taken for each other.

    Args:
        counts: Numbers `(labels, labels)`; rows are the right labels, columns the predicted ones.
        labels: Names.
        path: PNG file to write.
        title: Title.

    Example:

    >>> plot_confusion(np.array([[9, 1], [2, 8]]), ["bad", "good"], "confusion.png")
    """
    from matplotlib.figure import Figure

    shares = counts / np.maximum(counts.sum(axis=1, keepdims=True), 1)
    size = 2.5 + 0.45 * len(labels)
    figure = Figure(figsize=(size + 1, size), layout="constrained")
    axes = figure.subplots()
    image = axes.imshow(shares, vmin=0, vmax=1, cmap="Blues")
    axes.set_xticks(range(len(labels)), labels, rotation=90)
    axes.set_yticks(range(len(labels)), labels)
    axes.set_xlabel("predicted")
    axes.set_ylabel("right")
    axes.set_title(title)
    if len(labels) <= 20:
        for row, column in np.ndindex(*counts.shape):
            if counts[row, column]:
                color = "white" if shares[row, column] > 0.5 else "black"
                axes.text(column, row, str(counts[row, column]), ha="center", va="center", color=color, fontsize=7)
    figure.colorbar(image, ax=axes, label="share of the row", shrink=0.8)
    figure.savefig(path, dpi=120)


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

    >>> plot_agreement([0.0, 5.0], [0.1, 0.9], "similarity.png")
    """
    from matplotlib.figure import Figure

    figure = Figure(figsize=(5, 4), layout="constrained")
    axes = figure.subplots()
    axes.scatter(truth, predicted, s=6, alpha=0.4)
    axes.set_xlabel("right value")
    axes.set_ylabel("predicted value")
    axes.set_title(title)
    figure.savefig(path, dpi=120)
