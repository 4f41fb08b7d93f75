"""Tasks on one backbone: what one of them did to its weights is saved with the others, or an error says why not."""

import keras
import numpy as np
import pytest

tf = pytest.importorskip("tensorflow")

from zoo.tasks import MaskedLM, TextClassifier, TextEmbedder  # noqa: E402


def give_updates(task, **options):
    """Enables low-rank updates that change something; returns the adapted layer and its kernel with the update."""
    task.enable_lora(2, targets=["query"], **options)
    ((_, update),) = task.backbone.adapters.updates("default").items()
    update.lora_b.assign(np.random.default_rng(0).normal(size=update.lora_b.shape))
    (layer,) = (layer for layer in task._flatten_layers() if getattr(layer, "updates", None))
    kernel, first, second = (np.array(each) for each in (layer.kernel, update.lora_a, update.lora_b))
    return layer, kernel, kernel + update.alpha / 2 * first @ second


def query_of(model):
    """Its own kernel, and what it computes with."""
    (layer,) = (layer for layer in model._flatten_layers() if layer.name == "query")
    return np.array(layer.kernel), np.array(layer.updated_kernel())


def test_updates_are_saved_with_each_task(make_task, texts, tmp_path):
    first = make_task(TextClassifier, labels=2, head_dropout=0.0)
    early = TextEmbedder(first.backbone, first.tokenizer)
    _, kernel, adapted = give_updates(first, alpha=3.0)
    late = TextEmbedder(first.backbone, first.tokenizer)
    late.run_eagerly = True
    expected = late.embed(texts[:4])
    for name, task in (("early", early), ("late", late)):
        task.save_to_preset(tmp_path / name)
        task.save(tmp_path / f"{name}.keras")
        for loaded in (
            TextEmbedder.from_preset(tmp_path / name),
            keras.models.load_model(tmp_path / f"{name}.keras"),
        ):
            own, updated = query_of(loaded)
            np.testing.assert_array_equal(own, kernel)
            np.testing.assert_allclose(updated, adapted, rtol=1e-6, atol=1e-6)
            assert [weight.path.rpartition("/")[2] for weight in loaded.trainable_variables] == ["lora_a", "lora_b"]
    loaded.run_eagerly = True
    np.testing.assert_allclose(loaded.embed(texts[:4]), expected, rtol=1e-4, atol=1e-5)
    first.backbone.save(tmp_path / "backbone.keras")
    np.testing.assert_allclose(
        query_of(keras.models.load_model(tmp_path / "backbone.keras"))[1], adapted, rtol=1e-6, atol=1e-6
    )
    # another kind of task made of what was saved has them, too
    other = MaskedLM.from_preset(tmp_path / "late")
    np.testing.assert_allclose(query_of(other)[1], adapted, rtol=1e-6, atol=1e-6)


def test_weights_of_other_updates_are_refused(make_task, tmp_path):
    adapted, plain = make_task(TextClassifier, labels=2), make_task(TextClassifier, labels=2)
    give_updates(adapted)
    for task, name in ((adapted, "adapted"), (plain, "plain")):
        task.save_weights(tmp_path / f"{name}.weights.h5")
    for task, name in ((adapted, "plain"), (plain, "adapted")):
        with pytest.raises(ValueError, match="low-rank updates of .*query must be those of the weights"):
            task.load_weights(tmp_path / f"{name}.weights.h5")
    fresh = make_task(TextClassifier, labels=2)
    fresh.enable_lora(2, targets=["query"])
    fresh.load_weights(tmp_path / "adapted.weights.h5")
    np.testing.assert_array_equal(query_of(fresh)[1], query_of(adapted)[1])


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
        with pytest.raises(ValueError, match="stored in int8 by another task of .* enable_lora.. after it"):
            task.fit(texts[:4], verbose=0)
        for save in (
            lambda: task.save_to_preset(tmp_path / "preset"),  # noqa: B023
            lambda: task.save(tmp_path / "model.keras"),  # noqa: B023
        ):
            with pytest.raises(ValueError, match=saved):
                save()
        with pytest.raises(ValueError, match="is quantized already"):
            task.quantize("int8")
    # its updates are apart from its kernels
    first.enable_lora(2)
    first.save(tmp_path / "first.keras")
