"""Classes derived from a task: they read what they save; what they derive from does, once they are registered."""

import warnings

import numpy as np
import pytest

pytest.importorskip("tensorflow")

from zoo import Backbone, Task, TextClassifier  # noqa: E402
from zoo.tasks import register_tasks, registry  # noqa: E402


class Plain(TextClassifier):
    """As the task that it derives from."""


class Named(TextClassifier):
    """With an argument of its own."""

    def __init__(self, backbone, preprocessor=None, *, topic: str = "films", **options):
        super().__init__(backbone, preprocessor, **options)
        self.topic = topic

    def own_options(self):
        return {**super().own_options(), "topic": self.topic}


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
