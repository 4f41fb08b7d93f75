"""The code of docs/guides/training.md for W&B, MLflow and Optuna, where these are installed; nothing is trained."""

import re
from pathlib import Path
from types import SimpleNamespace

import keras
import numpy as np
import pytest

from recipes import tag

PAGE = (Path(__file__).parents[2] / "docs" / "guides" / "training.md").read_text(encoding="utf-8")
BLOCKS = re.findall(r"^```py\n(.*?)^```", PAGE, re.MULTILINE | re.DOTALL)


def names_of(package):
    """What the block that imports a package defines; the test is skipped without the package."""
    pytest.importorskip(package, reason=f"{package} is not installed")
    (block,) = [block for block in BLOCKS if f"import {package}\n" in block]
    names = {"__name__": "documentation"}
    exec(compile(block, f"docs/guides/training.md ({package})", "exec"), names)
    return SimpleNamespace(**names)


@pytest.fixture
def config(tmp_path, monkeypatch):
    """A configuration in an empty folder, of a recipe that trains nothing."""
    monkeypatch.chdir(tmp_path)

    def main(config):
        Path(config.run_folder).mkdir(parents=True, exist_ok=True)
        (Path(config.run_folder) / "model_card.md").write_text("# Model\n")
        return {"parameters": 3, "accuracy": 1 - abs(config.training.learning_rate - 0.001)}

    monkeypatch.setattr(tag, "main", main)
    return tag.TagConfig(run_folder="runs/parts")


def fit(callback):
    model = keras.Sequential([keras.layers.Dense(1)])
    model.compile("sgd", "mse", run_eagerly=True)
    model.fit(np.ones((2, 1)), np.ones((2, 1)), epochs=2, verbose=0, callbacks=[callback])


def test_wandb(tmp_path, monkeypatch):
    monkeypatch.setenv("WANDB_MODE", "offline")
    monkeypatch.setenv("WANDB_DIR", str(tmp_path))
    fit(names_of("wandb").WandB(project="dates", name="parts"))
    (written,) = tmp_path.rglob("*.wandb")
    assert "parts" in written.name and written.stat().st_size > 500


def test_mlflow(config, monkeypatch):
    monkeypatch.setenv("MLFLOW_TRACKING_URI", Path("tracked").absolute().as_uri())
    monkeypatch.setenv("MLFLOW_ALLOW_FILE_STORE", "true")  # a database needs more packages
    names = names_of("mlflow")
    assert names.train(config)["accuracy"] == 1
    with names.mlflow.start_run():
        fit(names.Epochs())
        assert names.mlflow.active_run().info.run_id
    (trained,) = names.mlflow.search_runs(filter_string="attributes.run_name = 'runs_parts'", output_format="list")
    assert trained.data.metrics == {"accuracy": 1} and trained.data.params["learning_rate"] == "0.001"


def test_optuna(config):
    best = names_of("optuna").search(config, trials=2)
    assert best.keys() == {"learning_rate", "layer_decay"} and len(list(Path("runs/parts").iterdir())) == 2


def test_each_block_is_of_a_tool():
    assert len(BLOCKS) == 3
