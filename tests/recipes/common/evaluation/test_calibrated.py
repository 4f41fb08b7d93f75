"""Scores of a temperature on test data."""

from types import SimpleNamespace

import numpy as np
import pytest

from recipes.common.evaluation import calibrated
from zoo.training.calibration import fit_temperature


def test_error_on_the_data_that_the_temperature_was_fitted_to():
    drawn = []
    task = SimpleNamespace(temperature=2.0)
    run = SimpleNamespace(draw=lambda name, plot, series, **options: drawn.append(list(series)))
    # logits 2 log 3, 0
    probabilities, labels = np.array([[0.75, 0.25]] * 4), np.array([0, 0, 0, 1])
    scores = calibrated.calibration_scores(run, task, probabilities, labels, is_fitted=False)["calibration"]
    assert scores == {"temperature": 2.0, "error_without": pytest.approx(0.15), "error": 0.0}
    scores = calibrated.calibration_scores(run, task, probabilities, labels, is_fitted=True)["calibration"]
    assert scores == {"temperature": 2.0, "error_without": pytest.approx(0.15)}
    assert drawn[1] == ["temperature 1", "temperature 2.00, fitted to these data"]


def test_a_temperature_at_its_bound_is_said(capsys):
    logits, labels = np.array([[1.0, 0.0]] * 4), np.array([0, 1, 1, 1])
    calibrated.calibrate(SimpleNamespace(calibrate=fit_temperature), logits, labels)
    said = capsys.readouterr()
    assert said.err.startswith("calibration: temperature is 100, the highest that is tried: equal probabilities")
    assert "temperature 100.000" in said.out
