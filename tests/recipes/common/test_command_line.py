import dataclasses
import logging
import os
import subprocess
import sys

import pytest

from recipes.common.config import run_recipe, setting
from recipes.common.errors import DataError


@dataclasses.dataclass(frozen=True)
class Config:
    """A config."""

    seed: int = setting(1, "Seed.")


def test_recipe_gets_the_config():
    seen = []
    run_recipe(seen.append, Config, "learn", ["--seed", "4"])
    assert seen == [Config(4)]


@pytest.mark.parametrize("arguments", [["--sead", "4"], []])
def test_mistake_of_the_user_is_one_message(capsys, arguments):
    def main(config):
        raise DataError("file not found: a.txt")

    with pytest.raises(SystemExit) as stop:
        run_recipe(main, Config, "learn", arguments)
    assert stop.value.code == 2
    message = "unknown key --sead; did you mean --seed?" if arguments else "file not found: a.txt"
    assert capsys.readouterr().err == f"recipes.learn: error: {message}\n"


@pytest.mark.parametrize("backend", ["jacks", "JAX", "torch"])
def test_a_backend_that_recipes_cannot_use(monkeypatch, capsys, backend):
    """Keras would say so of the key that happened to need it first, or end in a traceback."""
    monkeypatch.setenv("KERAS_BACKEND", backend)
    with pytest.raises(SystemExit) as stop:
        run_recipe(print, Config, "learn", [])
    assert stop.value.code == 2
    message = f"KERAS_BACKEND must be tensorflow or jax, got '{backend}'"
    assert capsys.readouterr().err == f"recipes.learn: error: {message}\n"


def test_jax_that_is_not_installed(monkeypatch, capsys):
    monkeypatch.setenv("KERAS_BACKEND", "jax")
    monkeypatch.setattr("importlib.util.find_spec", lambda name: None)
    with pytest.raises(SystemExit) as stop:
        run_recipe(print, Config, "learn", [])
    assert stop.value.code == 2
    message = 'KERAS_BACKEND=jax needs jax, jaxlib, of the extra jax: pip install "keras-transformer-zoo[jax]"'
    assert capsys.readouterr().err == f"recipes.learn: error: {message}\n"


def test_a_model_traced_for_each_length_is_not_warned_about():
    seen = []
    logger, handler = logging.getLogger("tensorflow"), logging.Handler()
    handler.emit = lambda record: seen.append(record.getMessage())

    def main(config):
        logger.warning("5 out of the last 5 calls to %s triggered tf.function retracing.", "f")
        logger.warning("something else")

    logger.addHandler(handler)
    try:
        run_recipe(main, Config, "learn", [])
    finally:
        logger.removeHandler(handler)
    assert seen == ["something else"]


def test_bug_keeps_its_traceback():
    def main(config):
        raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError):
        run_recipe(main, Config, "learn", [])


@pytest.mark.parametrize("training", [False, True])
def test_ctrl_c_ends_in_one_line_that_says_how_to_go_on(capsys, training):
    def main(config):
        raise KeyboardInterrupt

    kind = Config
    if training:
        kind = dataclasses.make_dataclass("Trained", [("training", Config, Config())], bases=(Config,), frozen=True)
    with pytest.raises(SystemExit) as stop:
        run_recipe(main, kind, "learn", ["--seed", "4"])
    assert stop.value.code == 130
    goes_on = "the same command resumes from the last saved state" if training else "again"
    expected = f"\nrecipes.learn: interrupted; {goes_on}: python -m recipes.learn --seed 4\n"
    assert capsys.readouterr().err == expected


def test_an_interruption_of_the_imports_is_one_line(tmp_path):
    (tmp_path / "keras.py").write_text("raise KeyboardInterrupt")
    paths = [str(tmp_path), os.environ.get("PYTHONPATH", "")]
    result = subprocess.run(
        [sys.executable, "-m", "recipes.generate", "--model", "m", "--texts", "a"],
        **{"env": {**os.environ, "PYTHONPATH": os.pathsep.join(paths)}, "capture_output": True, "text": True},
    )
    assert result.returncode == 130
    expected = "\nrecipes.generate: interrupted; again: python -m recipes.generate --model m --texts a\n"
    assert result.stderr == expected and not result.stdout
