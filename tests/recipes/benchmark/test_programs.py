"""Programs of training steps: what XLA counts is what the products need."""

import importlib.util
import json
import os
import subprocess
import sys

import keras
import pytest

from recipes.benchmark import programs
from recipes.common.errors import ConfigError

COUNT = """
import json
from recipes.benchmark.programs import count
sizes = {"num_layers": 2, "hidden_dim": 64, "vocabulary_size": 256}
print(json.dumps([count(preset, 4, 64, **sizes) for preset in ("gpt_tiny", "transformer_tiny")]))
"""


@pytest.mark.slow
@pytest.mark.skipif(importlib.util.find_spec("jax") is None, reason="JAX is not installed")
def test_operations_are_those_of_the_products():
    environment = {**os.environ, "KERAS_BACKEND": "jax"}
    done = subprocess.run([sys.executable, "-c", COUNT], capture_output=True, text=True, env=environment)
    assert done.returncode == 0, done.stderr[-3000:]
    for row in json.loads(done.stdout.splitlines()[-1]):
        # norms, softmax and activations of so small a model are a part of it
        assert 0.9 < row["operations"] / row["operations_by_formula"] < 1.4
        assert row["bytes"] > 4 * row["parameters"] and sum(row["kernels"].values()) > 20


@pytest.mark.skipif(keras.backend.backend() == "jax", reason="this is the backend that is wanted")
def test_other_backends_are_refused(tmp_path):
    with pytest.raises(ConfigError, match="set KERAS_BACKEND=jax, got "):
        programs.main(programs.Config(folder=str(tmp_path)))


def test_table():
    row = {
        **{"preset": "gpt2_small", "parameters": 1000, "operations": 2e12, "operations_by_formula": 1.978e12},
        **{"bytes": 6.7e9, "kernels": {"fusion": 3, "dot": 2, "while": 1}, "seconds": 1.0},
    }
    table = programs.table([row], programs.Config())
    assert "| gpt2_small, 8 x 1024 | 1,000 | 2.00 | 1.98 | 7 | 3, 2, 1 | 2.0 | 2 |" in table
