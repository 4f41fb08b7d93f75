"""The translate recipe: a whole run of a few steps, a resume after kill -9, and what it says to bad input."""

import csv
import dataclasses
import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import numpy as np
import pytest
import tensorflow as tf

import zoo
from recipes import evaluate, translate
from recipes.common.config import parse
from recipes.common.errors import ConfigError, DataError, RunFolderError
from recipes.common.run_folder import RunFolder
from recipes.common.seq2seq_recipe import make_pair_batches

pytestmark = pytest.mark.usefixtures("without_xla")

ROOT = Path(__file__).parents[2]
TINY = [
    *("--tokenizer.vocabulary_size", "24"),
    *("--model.options", '{"num_layers": 1, "hidden_dim": 16, "dropout": 0.1}'),
    *("--training.tokens_per_batch", "512"),
    *("--training.number_of_buckets", "2"),
    *("--training.warmup_steps", "20"),
    *("--training.samples", "1"),
]
TRAINING = ["--training.epochs", "3", "--training.average_checkpoints", "2", "--data.target_language", "de"]


def write_sums(folder):
    """Parallel text: sums in words and in digits."""
    generator = np.random.default_rng(0)
    for part, count in (("train", 200), ("validation", 20), ("test", 10)):
        rows = generator.integers(0, 50, (count, 2))
        lines = [f"{a} plus {b}\t{a + b}\n" for a, b in rows]
        (folder / f"{part}.tsv").write_text("".join(lines), encoding="utf-8")
    return folder


@pytest.fixture
def sums(tmp_path):
    return write_sums(tmp_path)


@pytest.fixture(scope="module")
def whole(tmp_path_factory, without_xla):
    """The folder of an uninterrupted run, and its results."""
    folder = write_sums(tmp_path_factory.mktemp("sums"))
    results = translate.main(parse(translate.TranslateConfig, arguments(folder, "run", *TRAINING)))
    return folder / "run", results


def arguments(folder, run_folder, *more):
    files = [
        word for part in ("train", "validation", "test") for word in (f"--data.{part}", str(folder / f"{part}.tsv"))
    ]
    return [*files, *TINY, "--run_folder", str(folder / run_folder), *more]


def read_metrics(run_folder):
    with open(run_folder / "metrics.csv", encoding="utf-8") as file:
        return list(csv.DictReader(file))


def test_a_run_leaves_everything(whole):
    run, results = whole
    assert json.loads((run / "results.json").read_text()) == results
    assert results["test_sentences"] == 10
    assert "sacremoses" in results["tokenised BLEU"]["signature"]
    assert len(read_metrics(run)) == 3
    assert len((run / "samples" / "test.tsv").read_text().splitlines()) == 10
    for picture in ("cross_attention.png", "loss.png", "positions.png"):
        assert (run / "plots" / picture).stat().st_size > 5000
    assert "TranslateConfig" not in (run / "model_card.md").read_text()
    assert "exact_match" in (run / "model_card.md").read_text()
    assert list((run / "tensorboard").rglob("events.*"))
    assert (run / "export" / "saved_model.pb").exists()
    assert len(list((run / "checkpoints" / "last_epochs").iterdir())) == 2


def test_resume_after_kill_gives_the_losses_of_an_uninterrupted_run(sums, whole):
    environment = {**os.environ, "PYTHONPATH": str(ROOT), "TF_CPP_MIN_LOG_LEVEL": "3"}
    options = [*TRAINING, "--training.save_every", "2", "--export", "false"]
    command = [sys.executable, "-m", "recipes.translate", *arguments(sums, "killed", *options)]
    process = subprocess.Popen(
        command, cwd=sums, env=environment, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True
    )
    states = sums / "killed" / "checkpoints" / "state"
    deadline = time.monotonic() + 240
    # in the middle of the second epoch
    while not list(states.glob("epoch-00001-batch-0000000[2-9]")):
        assert process.poll() is None, process.stderr.read()
        assert time.monotonic() < deadline
        time.sleep(0.01)
    process.send_signal(signal.SIGKILL)
    process.communicate()
    resumed = subprocess.run(command, cwd=sums, env=environment, capture_output=True, text=True)
    assert resumed.returncode == 0, resumed.stderr
    assert "resuming in epoch 2" in resumed.stdout
    rows, expected = read_metrics(sums / "killed"), read_metrics(whole[0])
    assert [row["epoch"] for row in rows] == ["0", "1", "2"]
    for row, other in zip(rows, expected, strict=True):
        for name in ("loss", "nll", "val_loss", "val_nll"):
            # the last bits may differ with the order in which threads add up
            assert float(row[name]) == pytest.approx(float(other[name]), rel=1e-5)
    texts = [(run / "samples" / "test.tsv").read_text() for run in (sums / "killed", whole[0])]
    assert texts[0] == texts[1]


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
    served = tf.saved_model.load(str(tmp_path / "run" / "export"))
    command = ["--model", str(tmp_path / "run" / "model"), "--data", str(tmp_path / "test.tsv")]
    scores = evaluate.main(parse(evaluate.EvaluateConfig, [*command, "--language_tokens", *tokens]))
    assert {token: scores[token] for token in tokens} == {token: results[token] for token in tokens}
    for token, answer in zip(tokens, words["two"], strict=True):
        ids = model.tokenizer.tokenize(f"{token} two").numpy().tolist()
        assert ids.count(model.tokenizer.token_to_id(token)) == 1
        assert model.tokenizer.detokenize([ids]).numpy().tolist() == [b"two"]
        assert model.generate(f"{token} two", jit_compile=False) == answer
        assert served.serve([f"{token} two"]).numpy().tolist() == [answer.encode()]


def test_sources_without_a_language_token_are_bad_rows(sums, tiny_tokenizer, capsys):
    (sums / "train.tsv").write_text("<2de> one\teins\none\tun\n" * 2, encoding="utf-8")
    (sums / "validation.tsv").write_text("<2de> one\teins\n", encoding="utf-8")
    tokens = ["--data.language_tokens", "<2de>", "<2fr>"]
    with pytest.raises(DataError, match=r"train\.tsv:2: no language token: 'one' begins with none of <2de>, <2fr>"):
        translate.main(parse(translate.TranslateConfig, arguments(sums, "run", *tokens)))
    config = parse(translate.TranslateConfig, arguments(sums, "skipping", *tokens, "--data.on_error", "skip"))
    train, validation = (translate.open_split(config.data, part) for part in ("train", "validation"))
    sizes = {"vocabulary_size": tiny_tokenizer.vocabulary_size, "num_layers": 1}
    model = zoo.Seq2SeqLM.from_preset("transformer_tiny", load_weights=False, tokenizer=tiny_tokenizer, **sizes)
    batches, _ = make_pair_batches(
        config.training, model, train, validation, max_source_length=32, max_target_length=32
    )
    assert batches.number_of_pairs == 2
    assert "training: skipped 2: no language token 2" in capsys.readouterr().out
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


def test_too_large_vocabulary_names_the_largest(sums):
    config = parse(translate.TranslateConfig, arguments(sums, "run", "--tokenizer.vocabulary_size", "5000"))
    with pytest.raises(ConfigError, match="at most"):
        translate.main(config)


def test_missing_validation_is_said(sums):
    config = parse(translate.TranslateConfig, arguments(sums, "run"))
    config = dataclasses.replace(config, data=dataclasses.replace(config.data, validation=[]))
    with pytest.raises(DataError, match="validation"):
        translate.main(config)


def test_changed_config_is_listed_on_resume(sums):
    RunFolder(sums / "run", parse(translate.TranslateConfig, arguments(sums, "run"))).close()
    changed = parse(translate.TranslateConfig, arguments(sums, "run", "--training.learning_rate", "0.1"))
    with pytest.raises(RunFolderError, match="learning_rate"):
        translate.main(changed)
