"""Parts that do not train, and heads that stay in floats above 8-bit weights."""

import keras
import numpy as np
import pytest

from zoo.tasks import TextClassifier


def test_frozen_parts_keep_their_values(make_task, texts):
    task = make_task(TextClassifier, labels=2)
    task.compile("sgd", run_eagerly=True)
    before = {weight.path: np.array(weight) for weight in task.weights}
    report = task.freeze("embeddings", "block_0/attention")
    assert report.frozen_parameters + report.trainable_parameters <= report.total_parameters == task.count_params()
    # which an optimizer that was made before would not know
    task.fit(texts[:8], [0, 1] * 4, verbose=0)
    changed = {path for path, value in before.items() if not np.array_equal(value, task_weight(task, path))}
    assert changed == {weight.path for weight in task.trainable_weights}
    assert any("feed_forward" in path for path in changed) and any("head" in path for path in changed)
    assert not any("embedding" in path or "/attention/" in path for path in changed)


def task_weight(task, path):
    (weight,) = [weight for weight in task.weights if weight.path == path]
    return np.array(weight)


def trained_paths(task):
    return {weight.path for weight in task.trainable_weights}


@pytest.mark.parametrize("then", ["merge", "remove", "another", "activate"])
@pytest.mark.parametrize("first", ["freeze", "lora"])
def test_frozen_stays_frozen(make_task, first, then):
    """Below low-rank updates, and the updates themselves, in any order of calls."""
    task = make_task(TextClassifier, labels=2)
    before, part = trained_paths(task), "block_0/attention/"
    if first == "freeze":
        task.freeze(part[:-1])
    task.enable_lora(1, name="one")
    if first == "lora":
        task.freeze(part[:-1])
        assert not any(part in path for path in trained_paths(task))
    if then == "another":
        task.enable_lora(1, name="two")
        task.activate_adapters("one", "two", trainable=["one"])
    elif then == "activate":
        task.activate_adapters()
        task.activate_adapters("one", trainable=["one"])
    if first == "lora":
        assert not any(part in path for path in trained_paths(task))
    task.merge_lora() if then == "merge" else task.remove_adapters(*task.backbone.adapters)
    assert trained_paths(task) == {path for path in before if part not in path}


def test_parts_of_two_stacks(untrained):
    untrained.freeze("decoder/block_0", "encoder/final_norm")
    paths = [weight.path for weight in untrained.trainable_weights]
    assert any("encoder/block_0" in path for path in paths) and any("decoder/final_norm" in path for path in paths)
    assert not any("decoder/block_0" in path or "encoder/final_norm" in path for path in paths)
    with pytest.raises(ValueError, match="parts must have weights that train, got 'decoder/block_0'"):
        untrained.freeze("decoder/block_0")
    with pytest.raises(ValueError, match="got 'decoder/block_7'. Did you mean"):
        untrained.freeze("decoder/block_7")


def test_a_head_in_floats_above_8_bit_weights(make_task, texts, tmp_path):
    task = make_task(TextClassifier, labels=2)
    task.quantize("int8", head=False)
    task.enable_lora(1)
    assert {weight.path.split("/")[-1] for weight in task.trainable_weights} == {"lora_a", "lora_b", "kernel", "bias"}
    task.save(tmp_path / "task.keras")
    loaded = keras.saving.load_model(tmp_path / "task.keras")
    assert [weight.dtype for weight in loaded.weights] == [weight.dtype for weight in task.weights]
    np.testing.assert_allclose(loaded.predict(texts[:3]), task.predict(texts[:3]), rtol=1e-5, atol=1e-6)
