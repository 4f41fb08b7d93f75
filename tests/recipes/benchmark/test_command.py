"""Figures of the command `zoo`."""

import json

from recipes.benchmark import command


def test_figures(tmp_path, monkeypatch):
    monkeypatch.setattr(command, "_WORDS", ("--help",))
    results = command.main(command.Config(rounds=2, output=str(tmp_path / "figures.json")))
    # a process of Python that imports argparse cannot take less
    assert 0.005 < results["--help"]["processor_seconds"] and 0.005 < results["--help"]["seconds"] < 600
    assert json.loads((tmp_path / "figures.json").read_text())["commands"] == results
