"""Pictures of what a model does: attention with its tokens, training curves, position encodings."""

import logging
import os
import warnings
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from zoo.inspect.fonts import set_fonts
from zoo.storage import atomic_write

_LOG = logging.getLogger(__name__)
_MOST_SHOWN = 20


def _figure(**options: Any) -> Any:
    try:
        from matplotlib.figure import Figure
    except ImportError as error:
        raise ImportError('Plots need matplotlib: pip install "keras-transformer-zoo[recipes]"') from error
    return Figure(**options)


def save_figure(figure: Any, path: str | os.PathLike[str]) -> Path:
    """Writes a figure as PNG, in fonts that have its characters; says so where this system has none for some.

    Args:
        figure: A figure of matplotlib.
        path: PNG file to write.

    Returns:
        The path.

    Example:

    >>> save_figure(figure, "labels.png")
    """
    missing = sorted(set_fonts(figure))
    if missing:
        shown = "".join(missing[:_MOST_SHOWN]) + "\u2026" * (len(missing) > _MOST_SHOWN)
        _LOG.warning(
            "%s: %d characters are drawn as boxes, since no font of this system has them: %s. Install one, for "
            "example of the Noto family.",
            path,
            len(missing),
            shown,
        )
    with atomic_write(Path(path)) as temporary, warnings.catch_warnings():
        warnings.filterwarnings("ignore", message="Glyph ")  # which has been said in one line
        figure.savefig(temporary, format="png", dpi=120, bbox_inches="tight")
    return Path(path)


def plot_attention(
    weights: np.ndarray,
    query_tokens: Sequence[str],
    key_tokens: Sequence[str],
    path: str | os.PathLike[str],
    title: str = "Attention",
) -> Path:
    """Draws attention weights as a heatmap with the tokens on its axes.

    Args:
        weights: `(query_length, key_length)`, or `(heads, query_length, key_length)` for one panel per head.
        query_tokens: Names of the rows.
        key_tokens: Names of the columns.
        path: PNG file to write.
        title: Heading.

    Returns:
        The path.

    Raises:
        ValueError: If the tokens do not fit the weights.

    Example:

    >>> plot_attention(np.eye(2), ["ein", "Hund"], ["a", "dog"], "attention.png")
    """
    panels = np.asarray(weights, "float32")
    panels = panels[None] if panels.ndim == 2 else panels
    if panels.ndim != 3 or panels.shape[1:] != (len(query_tokens), len(key_tokens)):
        raise ValueError(
            "weights must have shape (query_length, key_length) or (heads, query_length, key_length) with "
            f"{len(query_tokens)} query_tokens and {len(key_tokens)} key_tokens, got {np.shape(weights)}."
        )
    columns = min(len(panels), 4)
    rows = -(-len(panels) // columns)
    width, height = max(2.2, 0.26 * len(key_tokens)), max(2.2, 0.26 * len(query_tokens))
    figure = _figure(figsize=(columns * (width + 0.9), rows * (height + 0.9)), layout="constrained")
    axes = figure.subplots(rows, columns, squeeze=False)
    for index, axis in enumerate(axes.flat):
        if index >= len(panels):
            axis.set_visible(False)
            continue
        image = axis.imshow(panels[index], cmap="viridis", vmin=0.0, vmax=max(float(panels.max()), 1e-6), aspect="auto")
        axis.set_xticks(range(len(key_tokens)), _printable(key_tokens), rotation=90, fontsize=8)
        axis.set_yticks(range(len(query_tokens)), _printable(query_tokens), fontsize=8)
        if len(panels) > 1:
            axis.set_title(f"head {index + 1}", fontsize=9)
    figure.colorbar(image, ax=axes, fraction=0.03, pad=0.02, label="weight")
    figure.suptitle(title)
    return save_figure(figure, path)


def _printable(tokens: Sequence[str]) -> list[str]:
    # a dollar sign would start a formula in matplotlib; a space would be invisible
    return [str(token).replace("$", r"\$").replace(" ", "\u2423") or "\u2205" for token in tokens]


def plot_curves(
    series: Mapping[str, tuple[Sequence[float], Sequence[float]]],
    path: str | os.PathLike[str],
    *,
    x_label: str,
    y_label: str,
    title: str,
) -> Path:
    """Draws one or more curves, for example of training and validation loss.

    Args:
        series: `{name: (x values, y values)}`.
        path: PNG file to write.
        x_label, y_label: Axis names with units.
        title: Heading.

    Returns:
        The path.

    Raises:
        ValueError: If a series has not as many x as y values.
    """
    figure = _figure(figsize=(7, 4.2), layout="constrained")
    axis = figure.subplots()
    for name, (x, y) in series.items():
        if len(x) != len(y):
            raise ValueError(f"series[{name!r}] must have as many x as y values, got {len(x)} and {len(y)}.")
        axis.plot(x, y, marker="." if len(x) < 60 else None, label=name)
    if all(float(x).is_integer() for xs, _ in series.values() for x in xs):
        axis.xaxis.get_major_locator().set_params(integer=True)  # there is no epoch 1.5
    axis.set_xlabel(x_label)
    axis.set_ylabel(y_label)
    axis.set_title(title)
    axis.grid(alpha=0.3)
    axis.legend()
    return save_figure(figure, path)


def plot_position_encoding(
    encoding: np.ndarray, path: str | os.PathLike[str], title: str = "Position encoding"
) -> Path:
    """Draws a position encoding as a heatmap of position by coordinate.

    Args:
        encoding: `(positions, dim)`.
        path: PNG file to write.
        title: Heading.

    Returns:
        The path.

    Reference:
        Vaswani et al. 2017, section 3.5.
    """
    encoding = np.asarray(encoding, "float32")
    if encoding.ndim != 2:
        raise ValueError(f"encoding must have shape (positions, dim), got {encoding.shape}.")
    limit = float(np.abs(encoding).max()) or 1.0
    figure = _figure(figsize=(8, 4.2), layout="constrained")
    axis = figure.subplots()
    image = axis.imshow(encoding, cmap="RdBu_r", vmin=-limit, vmax=limit, aspect="auto", interpolation="nearest")
    axis.set_xlabel("coordinate")
    axis.set_ylabel("position (tokens)")
    axis.set_title(title)
    figure.colorbar(image, ax=axis, label="value")
    return save_figure(figure, path)
