"""The benchmark of first calls, on a model of two tiny layers."""

import json

import pytest

from recipes.benchmark import tracing
from recipes.common.config import parse


@pytest.mark.slow
def test_a_table_and_a_picture(tmp_path, capsys):
    sizes = ["--num_layers", "[2]", "--hidden_dim", "64", "--vocabulary_size", "64", "--rounds", "1"]
    rows = tracing.main(parse(tracing.Config, [*sizes, "--works", "generation", "--output", str(tmp_path / "a.json")]))
    (row,) = rows
    assert row["num_layers"] == 2 and all(row[name] > 0 for name in ("once", "each", "then_once", "then_each"))
    assert row["then_once"] < row["once"]
    assert json.loads((tmp_path / "a.json").read_text())["rows"] == rows
    assert (tmp_path / "a.png").read_bytes()[:4] == b"\x89PNG"
    assert "| an answer of 8 tokens to 42 | 2 |" in capsys.readouterr().out
