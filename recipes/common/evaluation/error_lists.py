"""Wrong predictions as a table, the surest first: what is systematically wrong, or wrongly labelled, stands on top."""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from typing import Any

import numpy as np

from recipes.common.run_folder import RunFolder

ERRORS_FILE = "errors.tsv"


def write_errors(run: RunFolder, columns: Sequence[str], rows: Iterable[Sequence[Any]]) -> int:
    """Writes `errors.tsv`, sorted by its first column, the largest number first; returns how many rows it has.

    Args:
        run: The run folder.
        columns: Names of the columns.
        rows: The errors, the first value of each a number.
    """
    ordered = sorted(rows, key=lambda row: -row[0])
    lines = ["\t".join(columns), *("\t".join(map(_cell, row)) for row in ordered)]
    run.write_text(ERRORS_FILE, "\n".join(lines) + "\n")
    print(f"{len(ordered)} wrong predictions: {run.path / ERRORS_FILE}")
    return len(ordered)


def _cell(value: Any) -> str:
    if isinstance(value, (float, np.floating)):
        return f"{value:.4f}"
    text = ", ".join(map(str, value)) if isinstance(value, (list, tuple)) else str(value)
    return re.sub(r"[\t\r\n]+", " ", text)


def label_errors(
    labels: Sequence[str],
    truth: Sequence[Any],
    predicted: Sequence[Any],
    probabilities: np.ndarray,
    thresholds: Any,
    where: Sequence[Sequence[str]],
) -> list[tuple[Any, ...]]:
    """Returns the wrong predictions of labels: confidence, predicted, right, probability of the right one, and where.

    Of several labels the confidence is that of the wrong decision that is surest, and the probability is left out.

    Args:
        labels: Names of the labels.
        truth, predicted: Right and predicted labels, or lists of labels.
        probabilities: `(rows, labels)`.
        thresholds: Of several labels, see `TextClassifier`.
        where: Further columns of each row.

    Example:

    >>> label_errors(["a", "b"], ["b"], ["a"], np.array([[0.9, 0.1]]), 0.5, [["text", "data.tsv:1"]])
    [(0.9, 'a', 'b', 0.1, 'text', 'data.tsv:1')]
    """
    numbers = {name: number for number, name in enumerate(labels)}
    found = []
    for right, given, row, more in zip(truth, predicted, probabilities, where, strict=True):
        if isinstance(given, list):
            has, holds = np.array([name in right for name in labels]), row >= np.asarray(thresholds, "float32")
            wrong = np.where(holds, row, 1 - row)[has != holds]
            # of labels that the model does not know it is as sure as can be
            unknown = [1.0] * any(name not in numbers for name in right)
            if len(wrong) or unknown:
                found.append((max([*wrong, *unknown]), given, sorted(right), "", *more))
        elif right != given:
            of_right = float(row[numbers[right]]) if right in numbers else 0.0
            found.append((float(row[numbers[given]]), given, right, of_right, *more))
    return found
