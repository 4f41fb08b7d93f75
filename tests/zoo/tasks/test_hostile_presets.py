"""Saved models of others: they name tasks, options and files that are theirs, and nothing else."""

import functools
import json
import shutil

import pytest

pytest.importorskip("tensorflow_text")

from zoo.huggingface.sentence import read_sentence_options  # noqa: E402
from zoo.storage import open_h5, preset  # noqa: E402
from zoo.tasks import TextClassifier  # noqa: E402


@pytest.fixture(scope="module")
def saved(make_task, tmp_path_factory):
    folder = tmp_path_factory.mktemp("saved") / "model"
    make_task(TextClassifier, labels=2).save_to_preset(folder)
    return folder


@pytest.fixture
def load(saved, tmp_path, monkeypatch):
    """`load(**changes)`: loads the model with another `config.json`."""
    # the process of its own is not what is tested
    monkeypatch.setattr(preset, "open_h5", functools.partial(open_h5, is_own=True))

    def read(**changes):
        folder = shutil.copytree(saved, tmp_path / "model")
        values = json.loads((folder / "config.json").read_text())
        options = {**values["options"], **changes.pop("options", {})}
        (folder / "config.json").write_text(json.dumps({**values, "options": options, **changes}))
        return TextClassifier.from_preset(folder)

    return read


@pytest.mark.parametrize(
    "task", ["os", "load_task", "Task", "Backbone", "TransformerConfig", "__builtins__", "zoo.CausalLM", ""]
)
def test_only_tasks_are_made(load, task):
    with pytest.raises(ValueError, match=f"config.json: task must be 'TextClassifier' or one of .*, got '{task}'"):
        load(task=task)


@pytest.mark.parametrize("task", [None, 3, ["TextClassifier"], {}])
def test_the_task_is_a_text(load, task):
    with pytest.raises(ValueError, match="config.json: task must be a text, got "):
        load(task=task)


@pytest.mark.parametrize("name", ["backbone", "tokenizer", "preprocessor_class", "trainable", "name", "__class__", "x"])
def test_options_of_the_task_alone(load, name):
    with pytest.raises(ValueError, match=f"config.json: options of a TextClassifier must be among .*, got '{name}'"):
        load(options={name: {"architecture": "decoder"}})


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"labels": 10**9}, "options.labels must be at most as many as .* holds numbers, .*, got 1000000000"),
        ({"labels": [None]}, "options.labels"),
        ({"labels": -1}, "labels must be"),
        ({"truncate": "yes"}, "options.truncate must be true or false, got 'yes'"),
        ({"sequence_length": "12"}, "options.sequence_length must be an integer or null, got '12'"),
        ({"pooling": ["mean"]}, "options.pooling must be"),
        ({"quantization": 8}, "options.quantization must be a text or null, got 8"),
    ],
)
def test_types_of_options(load, options, message):
    with pytest.raises(ValueError, match=f"config.json: .*{message}") as caught:
        load(options=options)
    assert len(str(caught.value)) < 1500


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"options": {}, "backbone": []}, r"backbone must be an object, got \[\]"),
        ({"parameter_count": "12"}, "parameter_count must be an integer, got '12'"),
        ({"weights": None}, "weights must be an object, got None"),
        ({"weights": {"file": "../model.weights.h5", "bytes": 1, "sha256": ""}}, "weights.file must be the name of a"),
        ({"weights": {"file": "/etc/passwd", "bytes": 1, "sha256": ""}}, "weights.file must be the name of a part"),
        ({"replaced": ["../other"]}, r"replaced\[0\] must be the name of a part, such as .*, got '../other'"),
        ({"replaced": ["config.json"]}, r"replaced\[0\] must be the name of a part"),
        ({"tokenizer": {"file": "tokenizer/../x", "bytes": 1, "sha256": ""}}, "tokenizer.file must be the name of a"),
    ],
)
def test_parts(load, changes, message):
    with pytest.raises(ValueError, match=f"config.json: {message}"):
        load(**changes)


def test_more_tokens_than_the_backbone_knows(load, saved):
    values = json.loads((saved / "config.json").read_text())
    backbone = {**values["backbone"], "vocabulary_size": 7}
    with pytest.raises(ValueError, match="size must be at least 27, .*tokenizer.json .sentencepiece-.*, got 7"):
        load(backbone=backbone)


def modules(directory, path, changes=()):
    """A sentence model whose pooling is at a path, with the same file in the folders around it."""
    flags = json.dumps({"pooling_mode_mean_tokens": True})
    for folder in (directory, directory / "1_Pooling", directory.parent, directory.parent / "other"):
        folder.mkdir(exist_ok=True, parents=True)
        (folder / "config.json").write_text(flags)
    entries = [{"type": "sentence_transformers.models.Transformer", "path": ""}]
    entries.append({"type": "sentence_transformers.models.Pooling", "path": path, **dict(changes)})
    (directory / "modules.json").write_text(json.dumps(entries))
    return directory


@pytest.mark.parametrize(
    "path", ["..", ".", "../other", "1_Pooling/..", "1_Pooling/../../other", "/etc", "..\\other", "a\0", "absent", ""]
)
def test_modules_are_in_the_directory(tmp_path, path):
    with pytest.raises(ValueError, match=r"modules.json: \[1\].path must be the name of a folder in .*, got"):
        read_sentence_options(modules(tmp_path / "model", path))


def test_modules_behind_a_link(tmp_path):
    directory = modules(tmp_path / "model", "2_Pooling")
    (directory / "2_Pooling").symlink_to(tmp_path / "other")
    with pytest.raises(ValueError, match=r"modules.json: \[1\].path must be the name of a folder in .*, got '2_Pooli"):
        read_sentence_options(directory)


def test_modules_that_are_right(tmp_path):
    expected = {"pooling": "mean", "projections": [], "normalize": False}
    directory = modules(tmp_path / "model", "1_Pooling")
    assert read_sentence_options(directory) == expected
    # without the tokens of prompts there is pooling here only where there are none
    flags = {"pooling_mode_mean_tokens": True, "include_prompt": False}
    (directory / "1_Pooling" / "config.json").write_text(json.dumps(flags))
    prompts = directory / "config_sentence_transformers.json"
    prompts.write_text(json.dumps({"prompts": {"none": ""}}))
    assert read_sentence_options(directory) == {**expected, "prompts": {"none": ""}, "default_prompt": None}
    prompts.write_text(json.dumps({"prompts": {"query": "q: "}}))
    with pytest.raises(ValueError, match="1_Pooling/config.json: include_prompt must be true with prompts"):
        read_sentence_options(directory)
    assert read_sentence_options(directory, prompts=False) == expected


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"path": None}, r"\[1\].path must be a text, got None"),
        ({"path": ["1_Pooling"]}, r"\[1\].path must be a text, got \['1_Pooling'\]"),
        ({"type": 3}, r"\[1\].type must be a text, got 3"),
        ({"type": "os.system"}, "type must be Transformer, Pooling, .* then Normalize or nothing, got"),
    ],
)
def test_types_of_modules(tmp_path, changes, message):
    with pytest.raises(ValueError, match=f"modules.json: {message}"):
        read_sentence_options(modules(tmp_path / "model", "1_Pooling", changes))
