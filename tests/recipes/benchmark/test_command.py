"""Figures of the command `zoo`."""

import json

import pytest

from recipes.benchmark import command


@pytest.mark.slow
def test_figures(tmp_path, monkeypatch):
    monkeypatch.setattr(command, "_WORDS", ("--help",))
    results = command.main(command.Config(rounds=2, output=str(tmp_path / "figures.json")))
    # a process of Python that imports argparse cannot take less
    assert 0.005 < results["--help"]["processor_seconds"] and 0.005 < results["--help"]["seconds"] < 600
    stored = json.loads((tmp_path / "figures.json").read_text())
    assert stored["commands"] == results
    assert results["import classify"]["modules"] > 100
    # scikit-learn and SciPy alone have more
    assert stored["bytes"]["core"] > stored["bytes"]["recipes"] > 1e8


@pytest.mark.slow
def test_what_is_installed():
    core, more = command.installed(), command.installed("recipes")
    # which need it themselves
    assert {"keras", "numpy", "tensorflow", "requests"} <= core.keys() < more.keys()
    assert {"scikit-learn", "joblib", "pooch"} <= more.keys() - core.keys() and "babel" not in more
