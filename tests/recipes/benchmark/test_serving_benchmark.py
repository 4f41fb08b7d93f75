"""The benchmark of the server: what it counts as wrong, its table, and a short run of the whole."""

import dataclasses
import importlib.util

import pytest

from recipes.benchmark import serving, serving_jobs
from recipes.common.errors import ConfigError


def row(**changes):
    times = {"50": 10.0, "95": 20.0, "99": 30.0}
    figures = {"requests": 1000, "errors": 0, "wrong": 0, "seconds": 10.0, "per_second": 100.0}
    memory = {"bytes_before": 2**30, "bytes_after": 2**30}
    rest = {"milliseconds": times, "first_milliseconds": times, "tokens_per_second": 600.0}
    return {**figures, **rest, **memory, **changes}


def test_table_and_picture(tmp_path):
    results = {
        "classify": row(tokens_per_second=0.0),
        "complete": row(),
        serving.ALONE: row(tokens_per_second=150.0),
        serving.TRANSFORMERS: row(tokens_per_second=300.0, wrong=2),
    }
    table = serving.table(results)
    assert "| classify | 1,000 | 0 | 0 | 100.0 |  | 10 | 20 | 30 | 10 | 30 | 1,024 | 1,024 |" in table
    assert "4.0 times as fast as: complete, one at a time" in table and "2.0 times as fast as" in table
    serving.plot(results, tmp_path / "picture.png")
    assert (tmp_path / "picture.png").stat().st_size > 5000


@pytest.mark.slow
def test_plans_hold_what_the_export_says(trained, copied, tmp_path, monkeypatch):
    trained.export(tmp_path / "copies" / "1", max_new_tokens=12, jit_compile=False)
    name, export = serving_jobs.job_of(tmp_path, "translate")
    monkeypatch.setattr(serving_jobs, "make_texts", lambda count, seed: copied[:count])
    plan = serving_jobs.make_plan("translate", name, export, 3, 64)
    assert [body["prompt"] for body in plan["asked"]] == plan["expected"] == copied[:3] and name == "copies"


def test_what_is_asked_for_that_there_is_not(tmp_path):
    with pytest.raises(ConfigError, match="jobs must be of classify, embed, translate, complete, got sing"):
        serving.main(serving.Config(jobs=["sing"]))


@pytest.mark.slow
def test_a_short_run(tmp_path):
    """All four jobs, and one text at a time: nothing fails, and every answer is that of the export."""
    # not imported here: it changes the sockets of the whole process
    if importlib.util.find_spec("locust") is None:
        pytest.skip("the extra benchmark is not installed")
    sizes = {"num_layers": 1, "hidden_dim": 32}
    config = serving.Config(seconds=2, clients=8, texts=8, max_new_tokens=8, sizes=sizes)
    results = serving.main(dataclasses.replace(config, output=str(tmp_path / "serving.json")))
    assert list(results) == ["classify", "embed", "translate", "complete", serving.ALONE]
    for found in results.values():
        assert found["requests"] > 8 and found["errors"] == found["wrong"] == 0, found
        assert 0 < found["first_milliseconds"]["50"] <= found["milliseconds"]["50"]
    assert results["complete"]["tokens_per_second"] > 0
    assert {path.suffix for path in tmp_path.iterdir()} == {".json", ".md", ".png"}
