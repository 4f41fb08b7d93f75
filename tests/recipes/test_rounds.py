"""Validations after a number of batches, and metrics of one's own choice that decide about the best weights."""

import csv

import numpy as np
import pytest
import safetensors
from tiny_recipes import run

from recipes.common.errors import ConfigError, RunFolderError

# two epochs of two batches
WORDS = ["--training.schedule", "constant", "--training.warmup_steps", "0", "--training.save_every", "1"]


def history(folder):
    with open(folder / "run" / "metrics.csv", newline="") as file:
        rows = list(csv.DictReader(file))
    return {name: [float(row[name]) for row in rows] for name in rows[0]}


@pytest.mark.slow
def test_a_run_in_rounds_that_is_made_longer(tmp_path, capsys):
    """Rounds end within epochs; the resumed run has the numbers of the one that was long from the beginning."""
    for name in ("long", "resumed"):
        (tmp_path / name).mkdir()
    words = [*WORDS, "--training.evaluate_every", "3", "--training.batch_size", "10", "--training.weights", "average"]
    run("classify", tmp_path / "long", *words, "--training.epochs", "3")
    said = capsys.readouterr().out
    # 40 rows are four batches
    assert "a validation every 3 batches, 4 rounds in all; an epoch has 4 batches" in said
    assert [line.split(":")[0] for line in said.splitlines() if line.startswith("round")] == [
        f"round {number}/4" for number in range(1, 5)
    ]
    expected = history(tmp_path / "long")
    assert len(expected["val_loss"]) == 4
    run("classify", tmp_path / "resumed", *words, "--training.epochs", "1")
    assert len(history(tmp_path / "resumed")["val_loss"]) == 1
    run("classify", tmp_path / "resumed", *words, "--training.epochs", "3")
    assert "resuming in round 2" in capsys.readouterr().out
    found = history(tmp_path / "resumed")
    for name, values in expected.items():
        np.testing.assert_allclose(found[name], values, rtol=1e-5, err_msg=name)
    files = {name: tmp_path / "resumed" / "run" / name for name in ("config.yaml", "results.json", "data.json")}
    before = {name: path.read_bytes() for name, path in files.items()}
    with pytest.raises(RunFolderError, match="epochs must give at least 4 rounds, .*, got 2, which gives 3; name"):
        run("classify", tmp_path / "resumed", *words, "--training.epochs", "2")
    assert {name: path.read_bytes() for name, path in files.items()} == before
    report = (tmp_path / "long" / "run" / "report.html").read_text(encoding="utf-8")
    assert ">round 4</text>" in report and ">epoch 4</text>" not in report


def test_the_metric_that_decides(tmp_path, capsys):
    words = [*WORDS, "--training.epochs", "2", "--training.weights", "best"]
    with pytest.raises(ConfigError, match="training.monitor must be one of accuracy, loss, got 'f1'"):
        run("classify", tmp_path, *words, "--training.monitor", "f1")
    with pytest.raises(ConfigError, match=r"training\.monitor must be null with training\.weights 'average'.*'loss'"):
        run("classify", tmp_path, *words, "--training.weights", "average", "--training.monitor", "loss")
    capsys.readouterr()
    results = run("classify", tmp_path, *words, "--training.monitor", "loss", "--training.patience", "0")
    with safetensors.safe_open(tmp_path / "run" / "checkpoints" / "state" / "best.safetensors", "np") as file:
        metadata = file.metadata()
    losses = history(tmp_path)["val_loss"]
    assert metadata["monitor"] == "val_loss" and float(metadata["value"]) == pytest.approx(min(losses), rel=1e-5)
    assert results["best_epoch"] == 1 + int(np.argmin(losses)) == 1 + int(metadata["epoch"])
    assert (
        f"the weights of epoch {results['best_epoch']} are kept: val_loss {min(losses):.4g}" in capsys.readouterr().out
    )
