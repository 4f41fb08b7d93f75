"""BLEU by source length, on translations that are right up to a length."""

import json

import pytest

from recipes import bleu_by_length
from recipes.common.config import parse
from recipes.common.errors import ConfigError, DataError
from recipes.common.evaluation.translation_metrics import bleu


def test_report(tmp_path):
    words = "one two three four five six seven eight nine ten".split()
    rows = [
        (" ".join(words[:n]), " ".join(words[:n] if n < 7 else words[n:0:-1]), " ".join(words[:n]))
        for n in range(4, 10)
    ]
    for run in ("a", "b"):
        (tmp_path / run / "samples").mkdir(parents=True)
        text = "".join("\t".join(row) + "\n" for row in [("source", "output", "reference"), *rows])
        (tmp_path / run / "samples" / "test.tsv").write_text(text)
    options = ["--runs", str(tmp_path / "a"), str(tmp_path / "b"), "--bounds", "3", "6", "8"]
    config = parse(bleu_by_length.BleuByLengthConfig, [*options, "--run_folder", str(tmp_path / "report")])
    scores = bleu_by_length.main(config)
    assert json.loads((tmp_path / "report" / "bleu_by_length.json").read_text()) == scores
    assert scores["a"] == scores["b"]
    row = scores["a"]
    # no source has three words or fewer
    assert {key: value["texts"] for key, value in row.items()} == {"4-6": 3, "7-8": 2, "over 8": 1, "all": 6}
    assert row["4-6"]["sacreBLEU"] == 100 and row["7-8"]["sacreBLEU"] < 30
    everything = bleu([r[1] for r in rows], [r[2] for r in rows])
    assert row["all"]["sacreBLEU"] == round(everything.value, 2) and row["all"]["signature"] == everything.signature
    assert "| a | 100.0 (3) |" in (tmp_path / "report" / "bleu_by_length.md").read_text()


def test_characters_are_the_words_of_scripts_without_spaces():
    rows = [("我们走吧。", "我们走吧。", "我们走吧。"), ("今天天气很好", "今天天气不好", "今天天气很好")]
    scores = bleu_by_length.by_length(rows, [4, 6])
    assert {key: value["texts"] for key, value in scores.items()} == {"1-4": 1, "5-6": 1, "all": 2}
    # a row is scored as all are, whatever it holds
    assert all("tok:zh" in value["signature"] for value in scores.values())
    chosen = bleu_by_length.by_length(rows, [4], "char")
    assert all("tok:char" in value["signature"] for value in chosen.values())


def test_what_cannot_be(tmp_path):
    with pytest.raises(DataError, match="test.tsv does not exist"):
        bleu_by_length.read_outputs(str(tmp_path))
    (tmp_path / "samples").mkdir()
    for text, message in (
        ("ein Hund\ta dog\ta dog\n", "tsv:1 must name the columns source, output, reference"),
        ("", "tsv:1 must name the columns"),
        ("source\toutput\treference\n", "test.tsv is empty"),
        ("source\toutput\treference\nein Hund\ta dog\n", "tsv:2 has 2 columns, expected source, output, reference"),
    ):
        (tmp_path / "samples" / "test.tsv").write_text(text)
        with pytest.raises(DataError, match=message):
            bleu_by_length.read_outputs(str(tmp_path))
    for options, message in (
        (["--bounds", "5", "3"], "bounds must be numbers that grow"),
        (["--runs", "x/a", "y/a"], "names must be 2 different ones"),
    ):
        with pytest.raises(ConfigError, match=message):
            bleu_by_length.main(parse(bleu_by_length.BleuByLengthConfig, options))
