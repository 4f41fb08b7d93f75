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
