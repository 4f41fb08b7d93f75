"""The translate recipe: a whole run of a few steps, languages by a token, and what it says to bad input."""

import csv
import dataclasses
import json
import re
from types import SimpleNamespace

import numpy as np
import pytest
import tensorflow as tf

import zoo
from recipes import evaluate, translate
from recipes.common.config import parse
from recipes.common.errors import ConfigError, DataError, RecipeError, RunFolderError
from recipes.common.run_folder import RunFolder

pytestmark = pytest.mark.usefixtures("without_xla")

TINY = [
    *("--tokenizer.vocabulary_size", "24"),
    *("--model.options", '{"num_layers": 1, "hidden_dim": 16, "dropout": 0.1}'),
    *("--training.tokens_per_batch", "512"),
    *("--training.number_of_buckets", "2"),
    *("--training.warmup_steps", "20"),
    *("--training.samples", "1"),
    # untrained models write as much as they may
    *("--data.max_length", "24"),
]


@pytest.fixture
def sums(tmp_path):
    """The folder of parallel text: sums in words and in digits."""
    generator = np.random.default_rng(0)
    for part, count in (("train", 64), ("validation", 10), ("test", 10)):
        rows = generator.integers(0, 50, (count, 2))
        lines = [f"{a} plus {b}\t{a + b}\n" for a, b in rows]
        (tmp_path / f"{part}.tsv").write_text("".join(lines), encoding="utf-8")
    return tmp_path


def arguments(folder, run_folder, *more):
    files = [
        word for part in ("train", "validation", "test") for word in (f"--data.{part}", str(folder / f"{part}.tsv"))
    ]
    return [*files, *TINY, "--run_folder", str(folder / run_folder), *more]


def read_metrics(run_folder):
    with open(run_folder / "metrics.csv", encoding="utf-8") as file:
        return list(csv.DictReader(file))


def test_a_run_leaves_everything(sums):
    # the export is tested with two languages
    options = [
        *("--training.epochs", "3", "--training.average_checkpoints", "2"),
        *("--data.target_language", "de", "--export", "false"),
    ]
    results = translate.main(parse(translate.TranslateConfig, arguments(sums, "run", *options)))
    run = sums / "run"
    assert json.loads((run / "results.json").read_text()) == results
    assert results["test_sentences"] == 10
    assert "sacremoses" in results["tokenised lower-cased BLEU"]["signature"]
    assert len(read_metrics(run)) == 3
    assert "\n  (reference: " in (run / "samples" / "epoch-0003.txt").read_text()
    lines = (run / "samples" / "test.tsv").read_text().splitlines()
    assert lines[0] == "source\toutput\treference" and len(lines) == 11
    for picture in ("cross_attention.png", "loss.png", "positions.png"):
        assert (run / "plots" / picture).stat().st_size > 5000
    assert "TranslateConfig" not in (run / "model_card.md").read_text()
    assert "exact_match" in (run / "model_card.md").read_text()
    assert list((run / "tensorboard").rglob("events.*"))
    assert len(list((run / "checkpoints" / "last_epochs").iterdir())) == 2


@pytest.mark.parametrize(
    ("kind", "title"),
    [("encoder_decoder", "Cross-attention of the last block, mean over heads"), ("recurrent", "Alignment: .*decoder")],
)
def test_picture_of_the_attention_is_called_what_it_is(tiny_tokenizer, tiny_config, tmp_path, monkeypatch, kind, title):
    config = tiny_config
    if kind == "recurrent":
        config = zoo.RecurrentConfig(vocabulary_size=26, hidden_dim=4, max_length=16, attention="previous_state")
    model = zoo.Seq2SeqLM(zoo.Backbone.from_config(config), tiny_tokenizer)
    monkeypatch.setattr(model, "generate", lambda source, **options: "omega theta beta")
    monkeypatch.setattr(zoo.inspect, "plot_position_encoding", lambda *arguments: None)
    drawn = []
    monkeypatch.setattr(zoo.inspect, "plot_attention", lambda *arguments, title: drawn.append((*arguments, title)))
    run = SimpleNamespace(plots=tmp_path)
    translate.draw_seq2seq(run, model, "alpha iota")
    ((weights, targets, sources, path, drawn_title),) = drawn
    assert re.match(title, drawn_title) and path == tmp_path / "cross_attention.png"
    assert weights.shape == (len(targets), len(sources))
    assert [token.strip() for token in targets[:3]] == ["omega", "theta", "beta"]
    np.testing.assert_allclose(weights.sum(axis=-1), 1, rtol=1e-5)


@pytest.mark.slow
def test_one_text_into_two_languages_by_a_token(tmp_path):
    """The languages share no word, so a model that does not look at the token is wrong in half of the texts."""
    words = {"one": ("eins", "un"), "two": ("zwei", "deux"), "six": ("sechs", "six"), "ten": ("zehn", "dix")}
    tokens = ("<2de>", "<2fr>")
    rows = [f"{token} {word}\t{words[word][index]}\n" for word in words for index, token in enumerate(tokens)]
    for part, count in (("train", 100), ("validation", 1), ("test", 1)):
        (tmp_path / f"{part}.tsv").write_text("".join(rows * count), encoding="utf-8")
    options = [
        *("--data.language_tokens", *tokens, "--tokenizer.vocabulary_size", "30"),
        *("--model.options", '{"num_layers": 1, "hidden_dim": 32, "dropout": 0.0}'),
        *("--training.epochs", "3", "--training.learning_rate", "0.01", "--training.label_smoothing", "0.0"),
    ]
    results = translate.main(parse(translate.TranslateConfig, arguments(tmp_path, "run", *options)))
    assert [results[token]["exact_match"] for token in tokens] == [1.0, 1.0]
    assert [results[token]["sentences"] for token in tokens] == [4, 4]

    model = zoo.Seq2SeqLM.from_preset(tmp_path / "run" / "model")
    served = tf.saved_model.load(str(zoo.export.newest_version(tmp_path / "run" / "export" / "run")))
    command = [str(tmp_path / "run" / "model"), "--output", str(tmp_path / "scores")]
    scores = evaluate.main(parse(evaluate.EvaluateConfig, command))["models"]["run"]
    assert {token: scores[token] for token in tokens} == {token: results[token] for token in tokens}
    for token, answer in zip(tokens, words["two"], strict=True):
        ids = model.tokenizer.tokenize(f"{token} two").numpy().tolist()
        assert ids.count(model.tokenizer.token_to_id(token)) == 1
        assert model.tokenizer.detokenize([ids]).numpy().tolist() == [b"two"]
        assert model.generate(f"{token} two", jit_compile=False) == answer
        assert served.serve([f"{token} two"]).numpy().tolist() == [answer.encode()]


def test_sources_without_a_language_token_are_bad_rows(sums, monkeypatch, capsys):
    (sums / "train.tsv").write_text("<2de> one\teins\none\tun\n" * 2, encoding="utf-8")
    for part in ("validation", "test"):
        (sums / f"{part}.tsv").write_text("<2de> one\teins\n", encoding="utf-8")
    tokens = ["--data.language_tokens", "<2de>", "<2fr>"]
    with pytest.raises(DataError, match=r"train\.tsv:2: no language token: 'one' begins with none of <2de>, <2fr>"):
        translate.main(parse(translate.TranslateConfig, arguments(sums, "run", *tokens)))

    class Trained(Exception):
        """The data have been read."""

    def train(model, run, config, training, validation, **options):
        assert [pair.source for pair in training] == ["<2de> one"] * 2
        raise Trained

    monkeypatch.setattr(translate, "train_seq2seq", train)
    options = [*tokens, "--data.on_error", "skip", "--tokenizer.vocabulary_size", "14"]
    with pytest.raises(Trained):
        translate.main(parse(translate.TranslateConfig, arguments(sums, "skipping", *options)))
    assert "train: skipped 2: no language token 2" in capsys.readouterr().out
    config = parse(translate.TranslateConfig, arguments(sums, "run", *tokens, "--data.target_language", "de"))
    with pytest.raises(ConfigError, match="target_language must be null where data.language_tokens name several"):
        translate.main(config)


@pytest.mark.parametrize(
    ("part", "content", "message"),
    [
        ("train", "", "empty|no pair"),
        ("train", "one\ttwo\nno tab\n", r"train\.tsv:2"),
        ("validation", "one\t\n", r"validation\.tsv:1"),
    ],
)
def test_bad_data_names_the_line(sums, part, content, message):
    (sums / f"{part}.tsv").write_text(content, encoding="utf-8")
    with pytest.raises(DataError, match=message):
        translate.main(parse(translate.TranslateConfig, arguments(sums, "run")))


def test_unknown_preset_names_the_nearest(sums):
    config = parse(translate.TranslateConfig, arguments(sums, "run", "--model.preset", "transformer_tini"))
    with pytest.raises(ConfigError, match="transformer_tiny"):
        translate.main(config)


def test_missing_validation_is_said(sums):
    config = parse(translate.TranslateConfig, arguments(sums, "run"))
    config = dataclasses.replace(config, data=dataclasses.replace(config.data, validation=[]))
    with pytest.raises(DataError, match="validation"):
        translate.main(config)


def test_changed_config_is_listed_on_resume(sums):
    RunFolder(sums / "run", parse(translate.TranslateConfig, arguments(sums, "run"))).close()
    (sums / "run" / "checkpoints" / "state" / "epoch-00001-batch-00000000").mkdir(parents=True)
    changed = parse(translate.TranslateConfig, arguments(sums, "run", "--training.learning_rate", "0.1"))
    with pytest.raises(RunFolderError, match="learning_rate"):
        translate.main(changed)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (["--model.options", '{"name": 5}'], "model: A configuration has no 'name' to override"),
        (["--model.options", '{"num_layers": "x"}'], "model: "),
        (["--model.options", '{"num_layers": -1}'], "model: "),
        (["--sampler", '{"name": 5}'], "sampler: "),
        (["--sampler", '{"name": "beam", "num_beams": 0}'], "sampler: "),
        (["--training.dtype", "float7"], "training.dtype: "),
        (["--training.dtype", "int32"], "training.dtype: dtype must be a policy of floating-point numbers"),
        (["--training.decay_share", "0.5"], "training.decay_share must be 0.2"),
        (["--training.warmup_steps", "1.5"], "training.warmup_steps must be a whole number"),
        (["--training.final_learning_rate", "0.1"], "training.final_learning_rate must be 0"),
    ],
)
def test_wrong_values_are_one_line_before_anything_is_read(tmp_path, options, message):
    config = parse(translate.TranslateConfig, ["--run_folder", str(tmp_path / "run"), *options])
    with pytest.raises(ConfigError) as error:
        translate.main(config)
    assert str(error.value).startswith(message) and "\n" not in str(error.value)
    assert not (tmp_path / "run").exists()


@pytest.mark.usefixtures("eagerly")
def test_a_loss_that_is_no_number_is_one_line(sums):
    options = ["--training.learning_rate", "1e30", "--training.warmup_steps", "1", "--export", "false"]
    with pytest.raises(
        RecipeError, match=r"training.learning_rate 1e\+30\? The training loss .* is (nan|inf)"
    ) as error:
        translate.main(parse(translate.TranslateConfig, arguments(sums, "run", *options)))
    assert "\n" not in str(error.value)
