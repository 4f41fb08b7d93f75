"""Classes derived from a task: they read what they save; what they derive from does, once they are registered."""

import warnings

import keras
import numpy as np
import pytest
from keras import ops

tf = pytest.importorskip("tensorflow")

from zoo import Backbone, Task, TextClassifier  # noqa: E402
from zoo.export import Field  # noqa: E402
from zoo.preprocessing import TextClassifierPreprocessor  # noqa: E402
from zoo.tasks import EncoderTask, register_tasks, registry  # noqa: E402


class Plain(TextClassifier):
    """As the task that it derives from."""


class Named(TextClassifier):
    """With an argument of its own."""

    def __init__(self, backbone, preprocessor=None, *, topic: str = "films", **options):
        super().__init__(backbone, preprocessor, **options)
        self.topic = topic

    def own_options(self):
        return {**super().own_options(), "topic": self.topic}


class Short(EncoderTask):
    """The shortest task: a head of Keras, which computes in the type of the policy."""

    preprocessor_class = TextClassifierPreprocessor
    pooling = "mean"

    def __init__(self, backbone, preprocessor=None, **options):
        super().__init__(backbone, preprocessor, **options)
        self.add_head(keras.layers.Dense(len(self.labels), name="head", dtype=self.dtype_policy))

    def default_loss(self):
        return keras.losses.SparseCategoricalCrossentropy(from_logits=True)

    def result_fields(self):
        return (Field("probabilities", ("batch", len(self.labels)), "float32", "of each label"),)

    def results(self, outputs):
        return {"probabilities": ops.softmax(outputs)}


class OfTokens(Short):
    """With results for each token, and nothing said of the tokens of a text."""

    pooling = None

    def result_fields(self):
        return (Field("probabilities", ("batch", "length", len(self.labels)), "float32", "of each label"),)


@pytest.fixture
def registered(monkeypatch):
    """The tasks that are registered, as they were before."""
    monkeypatch.setattr(registry, "_TASKS", dict(registry._TASKS))


@pytest.fixture(scope="module")
def saved(make_task, tmp_path_factory):
    """A folder with a model of each class and an adapter, and what they predict."""
    folder = tmp_path_factory.mktemp("own")
    task = make_task(Named, labels=["bad", "good"], topic="books")
    task.temperature = 2.0
    base = TextClassifier(task.backbone, task.tokenizer, labels=["bad", "good"], temperature=2.0)
    base.run_eagerly = True
    base.head.set_weights(task.head.get_weights())
    task.save_to_preset(folder / "named")
    base.save_to_preset(folder / "base")
    return folder, task.predict(["alpha"])


def check(task, kind, expected):
    assert type(task) is kind and task.labels.strings == ["bad", "good"] and task.temperature == 2.0
    task.run_eagerly = True
    np.testing.assert_allclose(task.predict(["alpha"]), expected, rtol=1e-5)


def test_own_files_and_those_of_the_base(saved):
    folder, expected = saved
    with warnings.catch_warnings():
        warnings.simplefilter("error", UserWarning)  # no head starts untrained
        own, others, plain = (
            kind.from_preset(folder / name) for kind, name in ((Named, "named"), (Named, "base"), (Plain, "base"))
        )
    check(own, Named, expected)
    check(others, Named, expected)
    check(plain, Plain, expected)
    assert (own.topic, others.topic) == ("books", "films")


def test_the_base_reads_what_is_registered(saved, registered):
    folder, expected = saved
    for load in (TextClassifier.from_preset, Task.from_preset, Backbone.from_preset):
        with pytest.raises(ValueError, match="got 'Named'. A class of one's own is read by its own from_preset"):
            load(folder / "named")
    register_tasks(Named)
    for kind in (TextClassifier, Task):
        task = kind.from_preset(folder / "named")
        check(task, Named, expected)
        assert task.topic == "books"
    # of a class that derives from another one, files are those of another task
    with pytest.raises(ValueError, match="labels must be names or a number of labels, got none: .* holds a Named"):
        Plain.from_preset(folder / "named")


def test_adapters(saved, registered, tmp_path):
    folder, _ = saved
    task = Named.from_preset(folder / "named")
    task.run_eagerly = True
    task.enable_lora(1)
    task.save_adapter(tmp_path / "adapter", base_model=str(folder / "base"))
    check(Named.from_preset(tmp_path / "adapter"), Named, task.predict(["alpha"]))
    with pytest.raises(ValueError, match="got 'Named'. A class of one's own"):
        TextClassifier.from_preset(tmp_path / "adapter")
    register_tasks(Named)
    check(TextClassifier.from_preset(tmp_path / "adapter"), Named, task.predict(["alpha"]))


def test_results_are_float32_whatever_the_policy(make_task, tmp_path):
    """Those of exports and of an inspection are those of `predict`, computed from the outputs in float32."""
    before = keras.config.dtype_policy()
    try:
        keras.config.set_dtype_policy("mixed_bfloat16")
        task = make_task(Short, labels=["bad", "good"])
        task.head.set_weights([3 * weight + 1 for weight in task.head.get_weights()])
        texts, found = ["alpha", "beta gamma"], task.predict(["alpha", "beta gamma"])
        logits = np.array(task(task.preprocessor(texts), training=False), "float64")
        exact = np.exp(logits) / np.exp(logits).sum(axis=1, keepdims=True)
        np.testing.assert_allclose(found, exact, rtol=1e-5)
        task.export(tmp_path / "export")
        forward = task.token_endpoints()["forward"]
        rows = task.preprocessor(texts)
        outputs = forward.function(*(rows[field.name] for field in forward.inputs))
        decisions = task.decisions(task(rows, training=False)[:1], ())
    finally:
        keras.config.set_dtype_policy(before)
    served = tf.saved_model.load(tmp_path / "export")
    # the logits of a graph are rounded to bfloat16 at other places
    np.testing.assert_allclose(served.serve(texts)["probabilities"], exact, rtol=0.03)
    np.testing.assert_allclose(outputs["probabilities"], exact, rtol=1e-5)
    np.testing.assert_allclose(np.exp(decisions.scores[0, 0]), exact[0], rtol=1e-5)


def test_results_of_tokens_have_no_predictions_of_their_own(make_task):
    """Arrays of texts of one length would hold the results of padding."""
    task = make_task(OfTokens, labels=["bad", "good"])
    with pytest.raises(NotImplementedError, match=r"OfTokens has results for each token: define predict_texts\(\) and"):
        task.predict(["alpha", "beta"])
    rows = task.preprocessor(["alpha", "beta"])
    forward = task.token_endpoints()["forward"]
    assert forward.function(*(rows[field.name] for field in forward.inputs))["probabilities"].shape[2] == 2
