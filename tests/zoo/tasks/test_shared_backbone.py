"""Tasks on one backbone: what one of them did to its weights is saved with the others, or an error says why not."""

import keras
import numpy as np
import pytest

tf = pytest.importorskip("tensorflow")

from zoo import Backbone  # noqa: E402
from zoo.backbones.low_rank import kernel_with_update  # noqa: E402
from zoo.tasks import MaskedLM, TextClassifier, TextEmbedder  # noqa: E402


def give_updates(task, **options):
    """Enables low-rank updates that change something; returns the adapted layer and its kernel with the update."""
    task.enable_lora(2, targets=["query"], **options)
    (layer,) = (layer for layer in task._flatten_layers() if getattr(layer, "lora_enabled", False))
    layer.lora_kernel_b.assign(np.random.default_rng(0).normal(size=layer.lora_kernel_b.shape))
    kernel, first, second = (np.array(each) for each in (layer._kernel, layer.lora_kernel_a, layer.lora_kernel_b))
    return layer, kernel, kernel + layer.lora_alpha / 2 * first @ second


def query_of(model):
    (kernel,) = (np.array(weight) for weight in model.weights if weight.path.endswith("query/kernel"))
    return kernel


def test_updates_of_another_task_are_saved(make_task, texts, tmp_path):
    first = make_task(TextClassifier, labels=2, head_dropout=0.0)
    early = TextEmbedder(first.backbone, first.tokenizer)
    layer, kernel, adapted = give_updates(first, alpha=3.0)
    late = TextEmbedder(first.backbone, first.tokenizer)
    late.run_eagerly = True
    expected = late.embed(texts[:4])
    # in turns: what one has saved says nothing about the next
    first.save(tmp_path / "first.keras")
    for name, task in (("early", early), ("late", late)):
        task.save_to_preset(tmp_path / name)
        task.save(tmp_path / f"{name}.keras")
        for loaded in (
            TextEmbedder.from_preset(tmp_path / name),
            keras.models.load_model(tmp_path / f"{name}.keras"),
        ):
            np.testing.assert_allclose(query_of(loaded), adapted, rtol=1e-6, atol=1e-6)
    loaded.run_eagerly = True
    np.testing.assert_allclose(loaded.embed(texts[:4]), expected, rtol=1e-4, atol=1e-5)
    first.backbone.save_weights(tmp_path / "backbone.weights.h5")
    backbone = Backbone.from_config(first.backbone.config)
    backbone.load_weights(tmp_path / "backbone.weights.h5")
    np.testing.assert_allclose(query_of(backbone), adapted, rtol=1e-6, atol=1e-6)
    # the task that they belong to keeps them apart
    np.testing.assert_array_equal(query_of(keras.models.load_model(tmp_path / "first.keras")), kernel)
    np.testing.assert_array_equal(layer._kernel, kernel)


def test_other_tasks_go_on_with_the_weights_of_now(make_task, texts):
    first = make_task(TextClassifier, labels=2)
    embedder = TextEmbedder(first.backbone, first.tokenizer)
    trained = TextClassifier(first.backbone, first.tokenizer, labels=2)
    trained.compile(keras.optimizers.SGD(0.1), run_eagerly=True)
    trained.train_on_batch(texts[:4], [0, 1, 0, 1])
    inputs = {name: np.zeros((2, 3), "int32") for name in embedder.input_names}
    inputs |= {"token_ids": np.array([[1, 2, 3], [4, 5, 6]]), "padding_mask": np.ones((2, 3), bool)}
    before = embedder.predict_on_batch(inputs)
    first.backbone.predict_on_batch(inputs)
    layer, kernel, _ = give_updates(first)
    found = embedder.predict_on_batch(inputs)
    assert np.abs(found - before).max() > 1e-3
    np.testing.assert_allclose(found, embedder(inputs), rtol=1e-5, atol=1e-6)
    states = first.backbone.predict_on_batch(inputs)
    np.testing.assert_allclose(states, first.backbone(inputs), rtol=1e-5, atol=1e-6)
    # what is frozen is so for the others, too
    trained.train_on_batch(texts[:4], [0, 1, 0, 1])
    np.testing.assert_array_equal(layer._kernel, kernel)
    first.merge_lora()
    trained.train_on_batch(texts[:4], [0, 1, 0, 1])
    assert np.abs(np.array(layer._kernel) - kernel).max() > 0
    np.testing.assert_allclose(embedder.predict_on_batch(inputs), embedder(inputs), rtol=1e-5, atol=1e-6)


def test_weights_that_another_task_has_quantized(make_task, texts, tmp_path):
    first = make_task(TextClassifier, labels=2)
    early = MaskedLM(first.backbone, first.tokenizer)
    first.quantize("int8")
    late = MaskedLM(first.backbone, first.tokenizer)
    saved = "needs weights that this task has quantized; .* was stored in int8 by another task"
    for task in (early, late):
        task.run_eagerly = True
        with pytest.raises(ValueError, match="stored in int8 by another task of .* enable_lora.. of that"):
            task.fit(texts[:4], verbose=0)
        for save in (
            lambda: task.save_to_preset(tmp_path / "preset"),  # noqa: B023
            lambda: task.save(tmp_path / "model.keras"),  # noqa: B023
            lambda: task.enable_lora(2),  # noqa: B023
        ):
            with pytest.raises(ValueError, match=saved):
                save()
        with pytest.raises(ValueError, match="is quantized already"):
            task.quantize("int8")
    first.enable_lora(2)
    with pytest.raises(
        ValueError, match="low-rank updates of .*query belong to a task, which alone can.* stored in int8"
    ):
        first.backbone.save_weights(tmp_path / "backbone.weights.h5")
    # its own factors are apart from its kernels
    first.save(tmp_path / "first.keras")


def test_updates_of_another_task_are_not_quantized(make_task):
    first = make_task(TextClassifier, labels=2)
    second = MaskedLM(first.backbone, first.tokenizer)
    give_updates(first)
    for act in (second.quantize, second.merge_lora, lambda: second.enable_lora(2)):
        with pytest.raises(ValueError, match=r"\(\) needs .*belong to another task of the .*, call its merge_"):
            act()


class Watched(dict):
    """A store that looks at a layer, as another thread may, whenever something is written."""

    def __init__(self, layer):
        super().__init__()
        self.layer, self.seen = layer, []

    def __setitem__(self, name, value):
        super().__setitem__(name, np.array(value))
        self.seen.append((self.layer.lora_enabled, np.array(self.layer._kernel)))


def test_saving_leaves_adapted_layers_as_they_are(make_task):
    layer, kernel, adapted = give_updates(make_task(TextClassifier, labels=2))
    store = Watched(layer)
    layer.save_own_variables(store)
    np.testing.assert_allclose(store["0"], adapted, rtol=1e-6, atol=1e-6)
    np.testing.assert_array_equal(store["1"], layer.bias)
    assert len(store.seen) == 2
    for is_enabled, found in store.seen:
        assert is_enabled
        np.testing.assert_array_equal(found, kernel)


class Interrupted(Exception):
    pass


def test_each_file_is_whole_whatever_else_is_saved(make_task, tmp_path):
    """Another thread saves the backbone and a preset while the task is half written; then writing fails half-way."""
    first = make_task(TextClassifier, labels=2)
    other = TextEmbedder(first.backbone, first.tokenizer)
    _, kernel, adapted = give_updates(first)
    backbone, hooks = first.backbone, []

    def save_own_variables(store):
        keras.Model.save_own_variables(backbone, store)
        while hooks:
            hooks.pop()()

    backbone.save_own_variables = save_own_variables
    hooks[:] = [
        lambda: first.save_to_preset(tmp_path / "preset"),
        lambda: first.save_weights(tmp_path / "again.weights.h5"),
        lambda: backbone.save_weights(tmp_path / "backbone.weights.h5"),
        lambda: other.save_weights(tmp_path / "other.weights.h5"),
    ]
    first.save_weights(tmp_path / "first.weights.h5")

    def interrupt():
        raise Interrupted

    hooks[:] = [interrupt]
    with pytest.raises(Interrupted):
        first.save_weights(tmp_path / "half.weights.h5")
    backbone.save_weights(tmp_path / "after.weights.h5")
    for name, make, expected in (
        ("first", lambda: fresh_with_updates(make_task), kernel),
        ("again", lambda: fresh_with_updates(make_task), kernel),
        ("backbone", lambda: Backbone.from_config(backbone.config), adapted),
        ("after", lambda: Backbone.from_config(backbone.config), adapted),
        ("other", lambda: make_task(TextEmbedder), adapted),
    ):
        model = make()
        model.load_weights(tmp_path / f"{name}.weights.h5")
        np.testing.assert_allclose(query_of(model), expected, rtol=1e-6, atol=1e-6, err_msg=name)
    loaded = TextClassifier.from_preset(tmp_path / "preset")
    np.testing.assert_allclose(query_of(loaded), adapted, rtol=1e-6, atol=1e-6)


def fresh_with_updates(make_task):
    fresh = make_task(TextClassifier, labels=2)
    fresh.enable_lora(2, targets=["query"])
    return fresh


class Both(keras.Model):
    """A model that Keras saves the backbone of before the task."""

    def __init__(self, task):
        super().__init__()
        self.backbone, self.task = task.backbone, task
        self.built = True


def test_kernels_that_are_written_before_the_factors(make_task, tmp_path):
    first = make_task(TextClassifier, labels=2)
    _, _, adapted = give_updates(first)
    Both(first).save_weights(tmp_path / "both.weights.h5")
    fresh = fresh_with_updates(make_task)
    Both(fresh).load_weights(tmp_path / "both.weights.h5")
    (layer,) = (layer for layer in fresh._flatten_layers() if getattr(layer, "lora_enabled", False))
    np.testing.assert_allclose(kernel_with_update(layer), adapted, rtol=1e-6, atol=1e-6)
    # of a file that could not be read to its end nothing is left
    first.save_weights(tmp_path / "first.weights.h5")
    backbone, load = fresh.backbone, keras.Model.load_own_variables
    backbone.load_own_variables = lambda store: load(backbone, {"odd": 1.0})
    with pytest.raises(ValueError, match="variables"):
        fresh.load_weights(tmp_path / "first.weights.h5")
    del backbone.load_own_variables
    backbone.save_weights(tmp_path / "backbone.weights.h5")
    backbone.load_weights(tmp_path / "backbone.weights.h5")
    np.testing.assert_allclose(kernel_with_update(layer), adapted, rtol=1e-6, atol=1e-6)
