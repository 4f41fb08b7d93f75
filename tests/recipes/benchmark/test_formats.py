"""Exports in the formats of other runtimes by a command, and their figures."""

import json

import pytest

from recipes import export
from recipes.benchmark import formats
from recipes.common.config import parse
from recipes.common.errors import ConfigError


@pytest.fixture
def lines(tmp_path, texts):
    (tmp_path / "texts.txt").write_text("\n".join(texts[:33]) + "\n\n", encoding="utf-8")
    return str(tmp_path / "texts.txt")


@pytest.mark.slow
def test_figures_of_each_format(trained, lines, tmp_path):
    for package in ("tf2onnx", "onnxruntime", "onnxruntime_extensions"):
        pytest.importorskip(package, reason="the extra onnx is not installed")
    trained.save_to_preset(tmp_path / "model")
    options = {"max_new_tokens": 4, "rounds": 1, "output": str(tmp_path / "figures.json")}
    chosen = {"formats": ["tf_saved_model", "onnx"], "weights": ["float32"]}
    rows = formats.main(formats.Config(str(tmp_path / "model"), lines, **chosen, **options))
    assert [row["format"] for row in rows] == ["tf_saved_model", "onnx"]
    for row in rows:
        assert row["same"] == 1.0 and row["bytes"] > 10_000 and row["start"] > 0
        assert list(row["milliseconds"]) == [1, 32] and min(row["milliseconds"].values()) > 0
    assert len(json.loads((tmp_path / "figures.json").read_text())["formats"]) == 2


def test_wrong_choices(lines, tmp_path):
    with pytest.raises(ConfigError, match=r"formats must be among tf_saved_model, onnx, .*, got \['torch'\]"):
        formats.main(formats.Config("model", lines, formats=["torch"]))
    (tmp_path / "few.txt").write_text("alpha\n")
    with pytest.raises(ConfigError, match="must hold at least 32 texts, got 1"):
        formats.main(formats.Config("model", str(tmp_path / "few.txt")))


def test_the_command_exports(untrained, tmp_path, capsys):
    for package in ("tf2onnx", "onnxruntime_extensions", "ai_edge_litert"):
        pytest.importorskip(package, reason="the extras onnx and litert are not installed")
    untrained.save_to_preset(tmp_path / "model")
    words = [str(tmp_path / "model"), "--output", str(tmp_path / "out"), "--format"]

    def run(*more):
        return export.main(parse(export.ExportConfig, [f"--model={words[0]}", *words[1:], *more]))

    assert (run("onnx", "--weights", "int8", "--options", "{max_new_tokens: 5}") / "step.onnx").exists()
    assert "a Seq2SeqLM with the endpoints encode, step" in capsys.readouterr().out
    with pytest.raises(ConfigError, match="format: format must be one of 'tf_saved_model', .*, got 'torch'"):
        run("torch")
    with pytest.raises(ConfigError, match="options: strings must be False for the format 'litert'"):
        run("litert", "--strings", "true")
