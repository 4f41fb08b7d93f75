"""A preprocessor of one's own comes back from presets and `.keras` files, by its name in Keras's registry alone."""

import json

import keras
import numpy as np
import pytest

tf = pytest.importorskip("tensorflow")

from zoo import TextClassifier  # noqa: E402
from zoo.preprocessing import TextClassifierPreprocessor  # noqa: E402


@keras.saving.register_keras_serializable("tests_of_tasks")
class Prefixed(TextClassifierPreprocessor):
    """Puts a word before each text."""

    def __init__(self, tokenizer=None, *, prefix: str, **options):
        super().__init__(tokenizer, **options)
        self.prefix = prefix

    def tokens(self, x):
        return super().tokens(tf.strings.join([self.prefix + " ", x]))


class Unregistered(TextClassifierPreprocessor):
    pass


@pytest.fixture(scope="module")
def task(make_task, mask_tokenizer):
    given = make_task(TextClassifier, labels=2)
    task = TextClassifier(given.backbone, Prefixed(mask_tokenizer, prefix="omega", labels=["bad", "good"]))
    task.run_eagerly = True
    return task


def test_presets_and_keras_files(task, make_task, tmp_path):
    texts = ["alpha beta", "kappa"]
    expected = task.predict(texts)
    plain = TextClassifier(task.backbone, task.tokenizer, labels=2)
    plain.head.set_weights(task.head.get_weights())
    assert np.abs(plain.predict(texts) - expected).max() > 1e-4
    task.save_to_preset(tmp_path / "preset")
    task.save(tmp_path / "model.keras")
    for loaded in (
        TextClassifier.from_preset(tmp_path / "preset"),
        keras.models.load_model(tmp_path / "model.keras"),
    ):
        assert type(loaded.preprocessor) is Prefixed and loaded.preprocessor.options() == task.preprocessor.options()
        np.testing.assert_allclose(loaded.predict(texts), expected, rtol=1e-5)
    # and from an adapter
    task.enable_lora(1)
    task.save_adapter(tmp_path / "adapter", base_model=str(tmp_path / "preset"))
    task.remove_adapters("default")
    adapted = TextClassifier.from_preset(tmp_path / "adapter")
    assert type(adapted.preprocessor) is Prefixed and adapted.preprocessor.options() == task.preprocessor.options()
    other = TextClassifier.from_preset(tmp_path / "preset", prefix="theta", head_dropout=0.3)
    assert other.preprocessor.prefix == "theta" and other.head.dropout == 0.3
    np.testing.assert_allclose(other.predict(["alpha"]), task.predict(["alpha"]), atol=1)
    with pytest.raises(ValueError, match=r"brings its own configuration and tokenizer, .*; got \['suffix'\] too"):
        TextClassifier.from_preset(tmp_path / "preset", suffix="theta")


@pytest.mark.parametrize("name", ["builtins>eval", "keras_transformer_zoo>TextClassifier", "os.system", 3])
def test_only_registered_preprocessors_are_made(task, tmp_path, name):
    task.save_to_preset(tmp_path / "preset")
    path = tmp_path / "preset/config.json"
    config = json.loads(path.read_text())
    assert config["options"]["preprocessor"] == "tests_of_tasks>Prefixed"
    config["options"]["preprocessor"] = name
    path.write_text(json.dumps(config))
    with pytest.raises(ValueError, match="config.json: options.preprocessor needs the preprocessor .* not registered"):
        TextClassifier.from_preset(tmp_path / "preset")


def test_a_clone_has_the_tokenizer(task):
    clone = keras.models.clone_model(task)
    assert clone.tokenizer is task.tokenizer and clone.preprocessor.prefix == "omega"
    clone.set_weights(task.get_weights())
    clone.run_eagerly = True
    np.testing.assert_allclose(clone.predict(["alpha"]), task.predict(["alpha"]), rtol=1e-5)


def test_of_another_task(task, tmp_path):
    task.save_to_preset(tmp_path / "preset")
    path = tmp_path / "preset/config.json"
    path.write_text(path.read_text().replace("tests_of_tasks>Prefixed", "keras_transformer_zoo>CausalLMPreprocessor"))
    with pytest.raises(ValueError, match="must name a TextClassifierPreprocessor for a TextClassifier, got 'keras_tr"):
        TextClassifier.from_preset(tmp_path / "preset")


def test_what_is_not_registered_is_not_saved(make_task, mask_tokenizer, tmp_path):
    task = TextClassifier(make_task(TextClassifier, labels=2).backbone, Unregistered(mask_tokenizer, labels=2))
    for save in (lambda: task.save_to_preset(tmp_path / "preset"), lambda: task.save(tmp_path / "model.keras")):
        with pytest.raises(ValueError, match="must be registered with .*register_keras_serializable.*, got Unregist"):
            save()
    assert not (tmp_path / "preset").exists()
