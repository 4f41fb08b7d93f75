"""What recipes make of the keys of `training`, against formulas."""

import dataclasses
from types import SimpleNamespace

import numpy as np
import pytest

from recipes.common import training
from recipes.common.errors import ConfigError, RecipeError
from recipes.common.training import TrainingConfig, make_schedule

T = np.arange(1, 61, dtype="float64")


def learning_rates(**options):
    """Those of 60 updates, of a training of 50."""
    schedule = make_schedule(dataclasses.replace(TrainingConfig(), **options), 50)
    return [float(schedule(step)) for step in range(60)]


@pytest.mark.parametrize("final", [0.0, 0.1])
@pytest.mark.parametrize("warmup", [1, 2, 10])
@pytest.mark.parametrize(
    ("name", "shape"), [("linear", lambda p: 1 - p), ("cosine", lambda p: np.cos(np.pi * p / 2) ** 2)]
)
def test_warm_up_and_decay(name, shape, warmup, final):
    progress = np.clip((T - warmup) / (50 - warmup), 0, 1)
    expected = np.where(T <= warmup, 2.0 * T / warmup, final + (2.0 - final) * shape(progress))
    found = learning_rates(schedule=name, learning_rate=2.0, warmup_steps=warmup, final_learning_rate=final)
    np.testing.assert_allclose(found, expected, atol=1e-6)


def test_a_warm_up_as_a_share_and_none_at_all():
    assert learning_rates(warmup_steps=0.2) == learning_rates(warmup_steps=10)
    assert learning_rates(warmup_steps=0)[0] == pytest.approx(0.001) and learning_rates(warmup_steps=0)[49] < 1e-9
    with pytest.raises(ConfigError, match="training.warmup_steps must be below the 50 updates .* got 50"):
        learning_rates(warmup_steps=50)


def test_no_epoch_was_the_best(tmp_path, monkeypatch):
    """A validation that was never finite leaves no best weights: an error that says so, not one about a file."""
    monkeypatch.setattr(
        training,
        "TrainingState",
        lambda folder, *arguments, **options: SimpleNamespace(
            resumed=False, initial_epoch=0, best_weights_path=folder / "best.safetensors"
        ),
    )
    model = SimpleNamespace(fit=lambda *arguments, **options: SimpleNamespace(history={"loss": [1.0]}))
    run = SimpleNamespace(path=tmp_path, folder=lambda name: tmp_path / name)
    config = dataclasses.replace(TrainingConfig(), weights="best")
    with pytest.raises(RecipeError, match="training.weights 'best': val_loss was finite after no epoch"):
        training.train(model, run, config, SimpleNamespace(dataset=None), None, curves={})
