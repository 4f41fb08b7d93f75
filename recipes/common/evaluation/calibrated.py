"""Calibration of a trained classifier of texts or words: fitted to validation data, shown on test data."""

from __future__ import annotations

from typing import Any

import numpy as np

import zoo
from recipes.common.charts import plot_reliability, title_of
from recipes.common.errors import warnings_of
from recipes.common.run_folder import RunFolder


def calibrate(task: Any, x: Any, y: Any) -> None:
    """Fits the temperature of a task; says where there is nothing to fit it to, or no best one.

    Rows of the validation data count alike, whatever the class weights of the training: the probabilities are for data
    like these.

    Args:
        task: The task.
        x, y: Validation data.
    """
    try:
        with warnings_of("calibration"):
            found = task.calibrate(x, y)
    except ValueError as error:
        # the rows themselves were checked for training
        print(f"calibration is left out: {error}")
        return
    before, after = f"{found.error_before:.4f}", f"{found.error_after:.4f}"
    print(f"temperature {found.temperature:.3f}: calibration error of the validation data {before} -> {after}")


def calibration_scores(
    run: RunFolder, task: Any, probabilities: np.ndarray, labels: np.ndarray, *, is_fitted: bool
) -> dict[str, Any]:
    """Returns temperature and calibration error on test data, with and without it, and draws both.

    Args:
        run: The run folder.
        task: The task.
        probabilities: What it gives, `(rows, labels)`.
        labels: Number of each row's label `(rows,)`, -1 for one that the task does not know; or zeros and ones `(rows,
            labels)`, where each label holds or not.
        is_fitted: Whether the temperature was fitted to these data: the error with it says nothing about others then,
            and is left out.
    """
    are_binary = labels.ndim == 2
    given = np.clip(np.asarray(probabilities, "float64"), 1e-12, 1 - 1e-12 if are_binary else 1)
    # up to a constant, which changes no softmax, the logits themselves
    logits = np.log(given / (1 - given) if are_binary else given) * task.temperature
    plain = zoo.training.calibration.decisions(zoo.training.calibration.probabilities_of(logits, are_binary), labels)
    series = {"temperature 1": plain}
    scores = {
        "temperature": round(task.temperature, 4),
        "error_without": round(zoo.training.calibration.calibration_error(*plain), 4),
    }
    if task.temperature != 1:
        calibrated = zoo.training.calibration.decisions(given, labels)
        series[f"temperature {task.temperature:.2f}{', fitted to these data' if is_fitted else ''}"] = calibrated
    if task.temperature != 1 and not is_fitted:
        scores["error"] = round(zoo.training.calibration.calibration_error(*calibrated), 4)
    run.draw("reliability.png", plot_reliability, series, title=title_of("data", is_fitted))
    return {"calibration": scores}
