"""Each recipe on JAX, from data to a SavedModel that answers as the model does."""

import keras
import pytest
import tensorflow as tf
from tiny_recipes import RECIPES, run

pytestmark = [
    pytest.mark.backends,
    pytest.mark.skipif(keras.backend.backend() != "jax", reason="test_scripts.py runs them on TensorFlow"),
]
# they train as language_model and translate do
SLOW = ("finetune", "summarize")


@pytest.mark.parametrize("recipe", [pytest.param(name, marks=[pytest.mark.slow] * (name in SLOW)) for name in RECIPES])
def test_a_model_leaves_as_a_saved_model(recipe, tmp_path, capsys):
    # it is compared with the model before it gets its place
    results = run(recipe, tmp_path, "--export", "true")
    assert "failed" not in results and results["export_megabytes"] > 0
    (version,) = (tmp_path / "run" / "export").rglob("saved_model.pb")
    assert tf.saved_model.load(str(version.parent)).signatures
    assert "export: " in capsys.readouterr().out


def test_an_export_that_fails_says_why(tmp_path):
    from recipes.common.errors import RecipeError
    from recipes.common.export_process import export_with_tensorflow

    with pytest.raises(RecipeError, match=r"(?s)status 1:.*no_such_model"):
        export_with_tensorflow(tmp_path / "no_such_model", tmp_path / "out", {}, [], "TextClassifier")


def test_programs_for_an_accelerator_are_kept(tmp_path, monkeypatch):
    import jax
    import pooch

    from recipes.common.training.fitting import _keep_programs

    before = jax.config.jax_compilation_cache_dir
    monkeypatch.setattr(pooch, "os_cache", lambda name: tmp_path / name)
    try:
        jax.config.update("jax_compilation_cache_dir", None)
        _keep_programs()
        assert jax.config.jax_compilation_cache_dir is None  # a processor
        monkeypatch.setattr(jax, "default_backend", lambda: "gpu")
        _keep_programs()
        assert jax.config.jax_compilation_cache_dir == str(tmp_path / "keras_transformer_zoo" / "jax")
        jax.config.update("jax_compilation_cache_dir", "mine")
        _keep_programs()
        assert jax.config.jax_compilation_cache_dir == "mine"
    finally:
        jax.config.update("jax_compilation_cache_dir", before)
