"""The benchmark of layers: its parts, and a run with tiny sizes."""

import json

import keras
import numpy as np
import pytest

from recipes.benchmark import attention_layers, layer_growth, layers, peak_memory
from recipes.benchmark.attention_layers import AttentionConfig
from recipes.benchmark.layer_growth import GrowthConfig
from recipes.benchmark.timing import calls_per_turn
from recipes.common.errors import RecipeError

pytestmark = pytest.mark.skipif(keras.backend.backend() != "tensorflow", reason="the benchmark measures TensorFlow")


def test_exponent_of_a_power():
    values = {length: 3e-6 * length**1.5 for length in (8, 512, 1024, 4096)}
    values[8] = 1.0  # too short to count
    assert layer_growth.exponent(values, 512) == pytest.approx(1.5)
    assert layer_growth.exponent(values, 4096) is None


def test_memory_of_a_call():
    size = 64 * 2**20
    kept = []
    assert peak_memory.measure(lambda: kept.append(np.ones(size, "uint8"))) == pytest.approx(size, rel=0.1)
    kept.clear()
    assert peak_memory.measure(lambda: np.ones(2**20, "uint8")) < size / 4


def test_error_of_the_process_that_measures():
    with pytest.raises(RecipeError, match="(?s)memory of json:nothing .*ended with code 1.*no attribute"):
        peak_memory.peak_memory("json:nothing")


def test_calls_per_turn():
    assert calls_per_turn(lambda: None, most=7) == 7
    assert calls_per_turn(lambda: sum(range(10**6)), seconds=1e-6) == 1


def test_layers_of_all_libraries_give_the_same():
    pytest.importorskip("keras_nlp")
    assert attention_layers.check_equal_outputs(AttentionConfig(width=16, num_heads=4)) < 1e-4


def test_other_outputs_are_noticed(monkeypatch):
    pytest.importorskip("keras_nlp")
    monkeypatch.setitem(attention_layers.RIVALS, "keras.layers.GroupQueryAttention", attention_layers.OURS)
    with pytest.raises((RecipeError, ValueError)):
        attention_layers.check_equal_outputs(AttentionConfig(width=16, num_heads=4))


def test_growth_leaves_out_what_would_take_too_long():
    assert not layer_growth._too_slow({}, 512, 1.0)
    assert not layer_growth._too_slow({256: 0.1, 512: 0.2}, 1024, 1.0)
    assert layer_growth._too_slow({256: 0.1, 512: 0.3}, 1024, 1.0)


def test_unknown_kind_of_layer():
    with pytest.raises(RecipeError, match="kinds must be among 'self-attention', .*got 'magic'"):
        layer_growth.make_layer("magic", GrowthConfig())


@pytest.mark.slow
def test_tiny_run(tmp_path, monkeypatch, capsys):
    pytest.importorskip("keras_nlp")

    def peak(make, **arguments):
        # the process of its own is left out: starting it takes seconds
        step = (layer_growth if "growth" in make else attention_layers).make_step(**arguments)
        return max(1, peak_memory.measure(step))

    monkeypatch.setattr(layer_growth, "peak_memory", peak)
    monkeypatch.setattr(attention_layers, "peak_memory", peak)
    config = layers.Config(
        growth=GrowthConfig([8, 16], ["recurrent", "self-attention"], width=8, num_heads=2, fit_from=8, rounds=1),
        attention=AttentionConfig(lengths=[8], width=8, memory_from=8, rounds=1),
        folder=str(tmp_path),
    )
    results = layers.main(config)
    assert json.loads((tmp_path / "results.json").read_text())["config"]["growth"]["width"] == 8
    assert len(results["growth"]) == 4
    for row in results["growth"]:
        assert list(row["seconds"]) == [8, 16] and row["exponent_of_seconds"] is not None
    assert len(results["attention"]) == 5 * 2 * 2  # layers, masks, directions
    assert all(row["bytes"] > 0 for row in results["attention"])
    assert all(
        row["time_ratio"] > 0 < row["processor_ratio"]
        for row in results["attention"]
        if row["layer"] in attention_layers.RIVALS
    )
    text = (tmp_path / "results.md").read_text()
    assert "| recurrent | O(n d²) | O(n) | O(n) |" in text and "| keras.layers.GroupQueryAttention |" in text
    assert text in capsys.readouterr().out
    for name in ("growth", "attention"):
        assert (tmp_path / f"{name}.png").read_bytes()[:4] == b"\x89PNG"
