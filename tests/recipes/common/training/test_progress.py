"""What is printed of an epoch."""

import io
import sys
import types

import keras
import numpy as np
import pytest

from recipes.common.training import progress
from recipes.common.training.progress import EpochLines, epoch_line


def test_metrics_side_by_side():
    logs = {"accuracy": 0.51234, "loss": 2.0, "tokens": 9.0, "val_accuracy": 0.25, "val_loss": 1e-7, "val_tokens": 3.0}
    assert epoch_line("epoch 2/10", logs, 3.4) == "epoch 2/10: accuracy 0.5123, val 0.25; loss 2, val 1e-07; 3 s"
    # the first batch is not measured
    assert epoch_line("epoch 1/1", {"nll": 1.0, "tokens_per_second": float("nan")}, 0.0) == "epoch 1/1: nll 1; 0 s"
    assert epoch_line("round 1/1", {"nll": 1.0, "tokens_per_second": 2345.6}, 1234) == (
        "round 1/1: nll 1; 2,346 tokens/s; 1,234 s"
    )


def test_no_line_is_longer_than_a_screen():
    names = ["loss", "reward_accuracy", "reward_margin", "tokens_per_second", "hard_loss", "soft_loss", "cosine_loss"]
    logs = {f"{part}{name}": 0.123456 for part in ("", "val_") for name in names}
    lines = epoch_line("epoch 1/100", logs, 10.0).splitlines()
    assert len(lines) > 2 and max(map(len, lines)) <= 80
    # each measure is in one line, all but the first line indented
    text = "\n".join(lines)
    assert all(f"{name} 0.1235, val 0.1235" in text for name in names if name != "tokens_per_second")
    assert all(line.startswith("    ") for line in lines[1:])


def fit(**options):
    model = keras.Sequential([keras.layers.Dense(1)])
    model.compile("sgd", "mse")
    x, y = np.ones((8, 2)), np.ones((8, 1))
    model.fit(x, y, 2, epochs=2, validation_data=(x, y), callbacks=[EpochLines(2, **options)], verbose=0)


def test_lines_of_a_log(capsys):
    fit(unit="round")
    out, err = capsys.readouterr()
    lines = out.splitlines()
    assert [line.split(":")[0] for line in lines] == ["round 1/2", "round 2/2"] and not err
    assert all(", val " in line and line.endswith(" s") for line in lines)


@pytest.mark.parametrize(
    ("steps", "told"),
    [
        (200, "the first step took 7 s, the training of one epoch takes about 10 min"),
        (15, None),
        (None, None),
    ],
)
def test_how_long_an_epoch_will_take(monkeypatch, capsys, steps, told):
    """A first step of seven seconds, and batches of three."""
    times = iter([100.0, 107.0, *(107.0 + 3 * batch for batch in range(1, 12))])
    monkeypatch.setattr(progress, "time", types.SimpleNamespace(monotonic=lambda: next(times)))
    lines = EpochLines(2)
    lines.set_params({"steps": steps})
    lines.on_epoch_begin(0)
    for batch in range(10):
        lines.on_train_batch_end(batch)
    assert capsys.readouterr().out.splitlines() == ([told] if told else [])


def test_a_bar_on_a_terminal(monkeypatch):
    monkeypatch.delenv("NO_COLOR", raising=False)
    drawn = io.StringIO()
    drawn.isatty = lambda: True
    monkeypatch.setattr(sys, "stderr", drawn)
    fit()
    monkeypatch.undo()
    assert "epoch 1 of 2" in drawn.getvalue() and "0/4" in drawn.getvalue()
    assert max(map(len, drawn.getvalue().replace("\n", "\r").split("\r"))) <= 80
