"""The benchmark of several devices: what is compared with what, and a small run."""

import json

import numpy as np
import pytest
from distributed_runs import needs_jax

from recipes.benchmark import distribution
from recipes.common.errors import ConfigError, RecipeError


def test_each_way_is_compared_with_one_device_of_its_backend(tmp_path, monkeypatch, capsys):
    begun = []

    def fit(way, options, folder):
        begun.append((way, options))
        if "timed_updates" in options:
            return {"tokens_per_second": np.asarray(200.0 * way.processes + len(begun))}
        one = {"tensorflow": 1.0, "jax": 2.0}[way.backend]
        moved = 0.0 if way.distribution is None else 0.25
        # the largest of all, and it is left out
        return {"weights/a": np.array([one, one + moved]), "weights/attention/key/bias": np.array([9 * moved])}

    monkeypatch.setattr(distribution, "fit", fit)
    monkeypatch.setattr("importlib.util.find_spec", lambda name: True)
    path = tmp_path / "figures.json"
    ways = ["mirrored, two logical processors", "data, four simulated devices", "model, two processes"]
    options = {"models": ["encoder", "decoder with experts"], "rounds": 3, "updates": 7}
    results = distribution.main(distribution.Config(ways=ways, output=str(path), **options))
    mirrored, data, model = (distribution.WAYS[way] for way in ways)
    tensorflow, jax = distribution.ONE["tensorflow"], distribution.ONE["jax"]
    encoder, experts = {"shape": "encoder", "texts": 75}, {"shape": "decoder", "experts": 4, "texts": 75}
    expected = [(tensorflow, encoder), (mirrored, encoder), (jax, encoder), (data, encoder), (jax, experts)]
    expected += [(data, experts), (model, encoder), (model, experts)]
    timed = [(jax, {"timed_updates": 7}), (distribution.WAYS["data, two processes"], {"timed_updates": 7})]
    assert begun == expected + 3 * timed
    assert results["equality"][ways[0]] == {"encoder": 0.25, "decoder with experts": None}
    assert results["equality"][ways[2]] == {"encoder": 0.25, "decoder with experts": 0.25}
    assert results["scaling"]["tokens_per_second"] == {"one process": 211.0, "two processes": 412.0}
    assert results["scaling"]["ratio"] == pytest.approx(412 / 211)
    assert json.loads(path.read_text())["scaling"] == results["scaling"]
    out = capsys.readouterr().out
    assert "| mirrored, two logical processors | 2e-01 |  |" in out and "| two processes | 412 | 1.95 |" in out


def test_mistakes(monkeypatch):
    for options, message in (
        ({"parts": ["speed"]}, "parts must be among equality, scaling, got 'speed'"),
        ({"models": ["llama"]}, "models must be among decoder, .*got 'llama'"),
        ({"ways": ["data"]}, "ways must be among mirrored, .*got 'data'"),
    ):
        with pytest.raises(ConfigError, match=message):
            distribution.main(distribution.Config(**options))
    with pytest.raises(RecipeError, match=r"one training has only: \['weights/b'\]"):
        distribution.difference({"weights/a": np.zeros(1)}, {"weights/a": np.zeros(1), "weights/b": np.zeros(1)})
    monkeypatch.setattr("importlib.util.find_spec", lambda name: None)
    with pytest.raises(ImportError, match="needs jax, jaxlib, of the extra jax: pip install"):
        distribution.main(distribution.Config())


@needs_jax
@pytest.mark.slow
def test_small_run(tmp_path):
    config = distribution.Config(
        models=["decoder"], ways=["data, two processes"], texts=16, updates=2, rounds=1, output=str(tmp_path / "out")
    )
    results = distribution.main(config)
    assert 0 <= results["equality"]["data, two processes"]["decoder"] < 2e-5
    speeds = results["scaling"]["tokens_per_second"]
    assert speeds["one process"] > 0 and speeds["two processes"] > 0


@pytest.mark.slow
def test_a_training_that_fails(tmp_path):
    way = distribution.Way("tensorflow", "data")
    with pytest.raises(RecipeError, match="needs KERAS_BACKEND=jax"):
        distribution.fit(way, {"shape": "decoder"}, tmp_path)
