"""The report of exposure bias: what is counted, on outputs that are known."""

import json

import numpy as np
import pytest
import sacrebleu

from recipes import exposure_bias
from recipes.common.config import parse
from recipes.common.data.data_sets import TextPair
from recipes.common.errors import ConfigError

pytestmark = pytest.mark.usefixtures("without_xla")


@pytest.mark.slow
def test_predictions_and_measures(trained, copied, texts):
    """A model that copies what it was taught, given pairs of which it can know only some."""
    pairs = [TextPair(text, text, "") for text in copied[:6]] + [TextPair(texts[60], texts[61], "")]
    gold, forced, own = exposure_bias.predict(trained, pairs, batch_size=4)
    tokenizer = trained.tokenizer
    for pair, truth, with_truth, alone in zip(pairs[:6], gold, forced, own, strict=False):
        assert truth.tolist() == [*tokenizer.tokenize(pair.target).numpy(), tokenizer.end_id]
        assert with_truth.tolist() == truth.tolist() == alone.tolist()
    generated = trained.generate(texts[60], jit_compile=False)
    assert own[6].tolist() == [*tokenizer.tokenize(generated).numpy(), tokenizer.end_id]
    report = exposure_bias.measure(trained, pairs[:6], 4, 2)
    assert all(row["true"] == row["own"] == 1 for row in report["accuracy"].values())
    assert sum(row["tokens"] for row in report["accuracy"].values()) == sum(map(len, gold[:6]))


def test_accuracy_by_position(monkeypatch, tiny_tokenizer):
    gold = [np.array([3, 4, 5, 2]), np.array([6, 2])]
    forced = [np.array([3, 4, 9, 2]), np.array([6, 2])]
    own = [np.array([3, 9, 9]), np.array([7, 6, 2])]
    monkeypatch.setattr(exposure_bias, "predict", lambda *arguments: (gold, forced, own))

    class Model:
        tokenizer = tiny_tokenizer

    pairs = [TextPair("", "alpha beta gamma kappa", ""), TextPair("", "beta", "")]
    report = exposure_bias.measure(Model(), pairs, 2, 2)
    assert report["accuracy"] == {
        "1-2": {"true": 1.0, "own": 0.25, "tokens": 4},
        "3-4": {"true": 0.5, "own": 0.0, "tokens": 2},
    }
    assert list(report["sacreBLEU"]) == ["first 2 words", "whole texts"]
    table = exposure_bias.make_table({"model": report})
    assert "| model | 100.0 / 25.0 (75.0) | 50.0 / 0.0 (50.0) |" in table


def test_an_end_predicted_too_early(monkeypatch, tiny_tokenizer):
    """After the true prefix the text goes on, whatever was predicted before."""
    words = "alpha beta gamma kappa iota"
    ids, end = tiny_tokenizer.tokenize(words).numpy(), tiny_tokenizer.end_id
    gold = np.array([*ids, end])
    forced = gold.copy()
    forced[1] = end
    monkeypatch.setattr(exposure_bias, "predict", lambda *arguments: ([gold], [forced], [gold]))

    class Model:
        tokenizer = tiny_tokenizer

    report = exposure_bias.measure(Model(), [TextPair("", words, "")], 1, 2)
    without = tiny_tokenizer.detokenize([[ids[0], *ids[2:]]]).numpy()[0].decode()
    expected = sacrebleu.corpus_bleu([without], [[words]]).score
    assert report["sacreBLEU"]["whole texts"] == {"true": round(expected, 2), "own": 100.0}


def test_what_is_drawn():
    rows = {
        "1-5": {"true": 0.9, "own": 0.8, "tokens": 1000},
        "6-10": {"true": 0.7, "own": 0.5, "tokens": 50},
        "11-15": {"true": 1.0, "own": 0.0, "tokens": 2},  # too few to draw
    }
    assert exposure_bias.curve(rows, "own") == ([5, 10], [0.8, 0.5])
    rows = {"first 5 words": {"true": 40.0, "own": 30.0}, "whole texts": {"true": 35.0, "own": 25.0}}
    assert exposure_bias.curve(rows, "true") == ([5], [40.0])


def test_whole_report(untrained, tmp_path):
    untrained.save_to_preset(tmp_path / "model")
    (tmp_path / "pairs.tsv").write_text("alpha beta\tbeta alpha\nkappa\tomega theta beta alpha iota beta\n")
    arguments = ["--models", str(tmp_path / "model"), "--names", "random", "--data", str(tmp_path / "pairs.tsv")]
    config = parse(exposure_bias.ExposureBiasConfig, [*arguments, "--run_folder", str(tmp_path / "report")])
    reports = exposure_bias.main(config)
    assert json.loads((tmp_path / "report" / "exposure_bias.json").read_text()) == reports
    written = sorted(path.name for path in (tmp_path / "report").iterdir())
    assert written == ["exposure_bias.json", "exposure_bias.md", "exposure_bias.png"]


def test_wrong_arguments():
    for options, message in ((["--names", "a"], "names must be as many as models"), (["--bucket", "0"], "bucket must")):
        with pytest.raises(ConfigError, match=message):
            exposure_bias.main(parse(exposure_bias.ExposureBiasConfig, options))
