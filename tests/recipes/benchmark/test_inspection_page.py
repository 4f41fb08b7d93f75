"""Figures of the page of an inspection in a browser."""

import json

import pytest
from chromium import CHROMIUM

from recipes.benchmark import inspection_page
from recipes.common.errors import ConfigError

pytest.importorskip("playwright", reason="the extra benchmark is not installed")


@pytest.mark.slow
@pytest.mark.skipif(CHROMIUM is None, reason="there is no Chromium on this machine")
def test_figures(tmp_path):
    config = inspection_page.Config(layers=2, heads=2, tokens=5, rounds=2, output=str(tmp_path / "figures.json"))
    results = inspection_page.main(config)
    assert results["bytes"] > 10_000 and list(results["milliseconds"]) == ["Lines", "All heads", "Matrix"]
    for sliders in results["milliseconds"].values():
        for figures in sliders.values():
            assert 0 < figures["median"] <= figures["largest"]
    assert json.loads((tmp_path / "figures.json").read_text())["milliseconds"] == results["milliseconds"]


def test_without_a_browser(tmp_path, monkeypatch):
    monkeypatch.setattr(inspection_page.shutil, "which", lambda name: None)
    with pytest.raises(ConfigError, match="needs a browser, one of chromium, .*; none is installed"):
        inspection_page.main(inspection_page.Config(output=str(tmp_path / "figures.json")))
