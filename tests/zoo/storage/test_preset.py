"""Saved models: what is loaded is what was saved, and whatever goes wrong leaves the one before."""

import json
import os
import threading

import h5py
import numpy as np
import pytest

from zoo import Seq2SeqLM, Task, TextEmbedder
from zoo.storage import replace_folder

SOURCES, TARGETS = ["alpha beta", "gamma"], ["beta", "gamma iota"]


def files(directory):
    return sorted(str(path.relative_to(directory)) for path in directory.rglob("*"))


@pytest.fixture
def saved(untrained, tmp_path):
    untrained.save_to_preset(tmp_path / "model")
    return tmp_path / "model"


def scores_of(directory):
    return Seq2SeqLM.from_preset(directory).score(SOURCES, TARGETS)


def change(directory, **values):
    path = directory / "config.json"
    description = json.loads(path.read_text())
    path.write_text(json.dumps({**description, **values}))


def test_round_trip(untrained, saved):
    loaded = Seq2SeqLM.from_preset(saved)
    assert loaded.backbone.config == untrained.backbone.config
    assert loaded.tokenizer.get_vocabulary() == untrained.tokenizer.get_vocabulary()
    for first, second in zip(loaded.weights, untrained.weights, strict=True):
        np.testing.assert_array_equal(first, second)
    np.testing.assert_array_equal(loaded.score(SOURCES, TARGETS), untrained.score(SOURCES, TARGETS))
    names = files(saved)
    assert {"config.json", "model.weights.h5", "tokenizer", "tokenizer/tokenizer.json"} < set(names)
    assert os.stat(saved).st_mode & 0o777 == 0o755
    assert files(saved.parent) == ["model", *(f"model/{name}" for name in names)]


def test_saving_to_the_working_directory(make_task, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "notes").write_text("mine")
    for seed in range(2):
        task = make_task(TextEmbedder, seed=seed)
        task.save_to_preset(".")
        loaded = TextEmbedder.from_preset(".")
        for first, second in zip(loaded.weights, task.weights, strict=True):
            np.testing.assert_array_equal(first, second)
    names = os.listdir()
    assert "notes" in names and len(names) == 4 and not any(name.endswith(".incomplete") for name in names)


def test_tasks_that_are_loaded_while_others_are_saved(make_task, tmp_path):
    tasks = [make_task(TextEmbedder, seed=seed, sequence_length=10 + seed) for seed in range(2)]
    tables = [np.asarray(task.backbone.token_embedding.table.embeddings) for task in tasks]
    tasks[0].save_to_preset(tmp_path / "model")
    is_over = threading.Event()

    def save() -> None:
        while not is_over.is_set():
            for task in tasks:
                task.save_to_preset(tmp_path / "model")

    saver = threading.Thread(target=save)
    saver.start()
    try:
        for _ in range(4):
            loaded = TextEmbedder.from_preset(tmp_path / "model")
            table = tables[loaded.longest - 10]
            np.testing.assert_array_equal(loaded.backbone.token_embedding.table.embeddings, table)
    finally:
        is_over.set()
        saver.join()


def test_without_weights(untrained, saved):
    loaded = Seq2SeqLM.from_preset(str(saved), load_weights=False)
    table, other = (model.backbone.token_embedding.table.embeddings for model in (loaded, untrained))
    assert loaded.backbone.config == untrained.backbone.config and not np.array_equal(table, other)


def test_the_optimizer_stays_out(tmp_path, tiny_tokenizer):
    task = Seq2SeqLM.from_preset("transformer_tiny", load_weights=False, tokenizer=tiny_tokenizer, num_layers=1)
    task.compile("adam")
    task.optimizer.build(task.trainable_variables)
    task.save_to_preset(tmp_path / "model")
    sizes = {}
    with h5py.File(tmp_path / "model" / "model.weights.h5") as file:
        file.visititems(lambda name, item: sizes.update({name: item.size} if isinstance(item, h5py.Dataset) else {}))
    assert sum(sizes.values()) == sum(int(np.prod(weight.shape)) for weight in task.weights)
    assert task.optimizer is not None  # training goes on


def test_saving_again_replaces(untrained, saved):
    (saved / "leftover.txt").write_text("of a run before")
    untrained.backbone.weights[0].assign(untrained.backbone.weights[0] + 1)
    untrained.save_to_preset(saved)
    np.testing.assert_array_equal(scores_of(saved), untrained.score(SOURCES, TARGETS))
    names = files(saved)
    # what was there is gone, but for what is not of the model
    assert "leftover.txt" in names and "model.weights.h5" not in names and "tokenizer" not in names
    assert sum(name.endswith(".weights.h5") for name in names) == 1 and os.listdir(saved.parent) == ["model"]
    untrained.save_to_preset(saved)
    assert {"model.weights.h5", "tokenizer/tokenizer.json"} <= set(files(saved))


def test_what_could_not_be_read_again_is_not_saved(untrained, saved, monkeypatch):
    before = files(saved)
    monkeypatch.setattr(type(untrained), "own_options", lambda self: {"length_penalty": float("nan")})
    with pytest.raises(ValueError, match="not JSON compliant"):
        untrained.save_to_preset(saved)
    assert files(saved) == before
    monkeypatch.undo()
    np.testing.assert_array_equal(scores_of(saved), untrained.score(SOURCES, TARGETS))


@pytest.mark.parametrize("step", ["save_weights", "tokenizer.save"])
def test_full_disk_leaves_the_old_model(untrained, saved, monkeypatch, step):
    before = scores_of(saved)

    def fail(path, *arguments, **options):
        with open(path if "weights" in str(path) else f"{path}.part", "wb") as file:
            file.write(b"half of it")
        raise OSError(28, "No space left on device")

    owner, name = (untrained.tokenizer, "save") if "." in step else (untrained, step)
    monkeypatch.setattr(owner, name, fail)
    untrained.backbone.weights[0].assign(untrained.backbone.weights[0] + 1)
    with pytest.raises(OSError, match="No space left"):
        untrained.save_to_preset(saved)
    np.testing.assert_array_equal(scores_of(saved), before)
    assert os.listdir(saved.parent) == ["model"]


def test_failing_rename_puts_the_old_model_back(tmp_path, monkeypatch):
    (tmp_path / "model").mkdir()
    (tmp_path / "model" / "file").write_text("old")
    rename, calls = os.rename, []

    def fail_second(*arguments):
        calls.append(arguments)
        if len(calls) == 2:
            raise OSError("device is gone")
        rename(*arguments)

    monkeypatch.setattr(os, "rename", fail_second)
    with pytest.raises(OSError, match="device is gone"):
        with replace_folder(tmp_path / "model", lambda old: True, "model", ["file"]) as folder:
            (folder / "file").write_text("new")
    assert (tmp_path / "model" / "file").read_text() == "old" and os.listdir(tmp_path) == ["model"]


def test_kill_between_the_renames(tmp_path, monkeypatch):
    """The moment at which nothing is at the directory's place: what was set aside is found by who reads or writes."""

    class Killed(BaseException):
        pass

    def kill_at_second(old, new):
        if str(old).endswith(".old") or calls:
            raise Killed
        calls.append(old)
        rename(old, new)

    model, rename, calls = tmp_path / "model", os.rename, []
    model.mkdir()
    (model / "config.json").write_text("{}")
    with monkeypatch.context() as patch:
        patch.setattr(os, "rename", kill_at_second)
        with pytest.raises(Killed):
            with replace_folder(model, lambda old: True, "model", ["config.json"]) as folder:
                (folder / "config.json").write_text("[]")
    assert not model.exists()
    before = sorted(tmp_path.rglob("*"))
    with pytest.raises(ValueError, match="old/config.json"):  # of the model that was there, not "no such preset"
        Seq2SeqLM.from_preset(model)
    assert sorted(tmp_path.rglob("*")) == before  # reading renames nothing
    with replace_folder(model, lambda old: True, "model", ["config.json"]) as folder:
        (folder / "config.json").write_text("new")
    assert (model / "config.json").read_text() == "new" and os.listdir(tmp_path) == ["model"]


@pytest.mark.parametrize("content", ["a text", json.dumps({"model_type": "bert"})])
def test_never_overwrites_something_else(untrained, tmp_path, content):
    # the configuration of a Hugging Face model has the same name
    (tmp_path / "config.json").write_text(content)
    (tmp_path / "precious.bin").write_text("data")
    with pytest.raises(FileExistsError, match="exists and is no saved model: it will not be overwritten"):
        untrained.save_to_preset(tmp_path)
    assert files(tmp_path) == ["config.json", "precious.bin"]


def test_saving_over_a_file_or_into_an_empty_directory(untrained, tmp_path):
    (tmp_path / "file").write_text("data")
    with pytest.raises(FileExistsError, match="file exists and is no saved model"):
        untrained.save_to_preset(tmp_path / "file")
    (tmp_path / "empty").mkdir()
    untrained.save_to_preset(tmp_path / "empty")
    assert (tmp_path / "empty" / "config.json").is_file()


def test_no_such_directory_or_preset():
    with pytest.raises(ValueError, match="no preset 'runs/model' and no such directory.*a name of zoo.list_presets"):
        Seq2SeqLM.from_preset("runs/model", load_weights=False)
    with pytest.raises(ValueError, match="'transformer_tiny' names an architecture and has no weights: pass"):
        Seq2SeqLM.from_preset("transformer_tiny")


def test_named_architecture(tiny_tokenizer):
    options = {"load_weights": False, "tokenizer": tiny_tokenizer, "num_layers": 1}
    model = Seq2SeqLM.from_preset("transformer_tiny", vocabulary_size=tiny_tokenizer.vocabulary_size, **options)
    assert model.backbone.config.vocabulary_size == tiny_tokenizer.vocabulary_size
    assert len(model.backbone.encoder.blocks) == 1 and model.tokenizer is tiny_tokenizer
    with pytest.raises(
        ValueError, match="vocabulary_size must be at least .*, the number of tokens in the tokenizer, got 7"
    ):
        Seq2SeqLM.from_preset("transformer_tiny", vocabulary_size=7, **options)


def test_saved_model_brings_its_own_choices(saved, tiny_tokenizer):
    with pytest.raises(ValueError, match="brings its own configuration and tokenizer"):
        Seq2SeqLM.from_preset(saved, vocabulary_size=7)
    with pytest.raises(ValueError, match="brings its own configuration and tokenizer"):
        Seq2SeqLM.from_preset(saved, tokenizer=tiny_tokenizer)


def test_another_task(saved):
    class Classifier(Task):
        pass

    with pytest.raises(ValueError, match="holds a Seq2SeqLM, not a Classifier"):
        Classifier.from_preset(saved)


@pytest.mark.parametrize(
    ("text", "message"),
    [
        (None, "is no saved model: the directory holds 'model.weights.h5', 'tokenizer'. It must be "),
        ("{", "config.json is not valid JSON"),
        ("[]", r"config.json must be an object, got \[\]"),
        ("{}", "config.json must have a format_version, as a saved model has, or a model_type"),
        ('{"format_version": 7}', "format_version 7; this version of the library reads 2"),
        ('{"format_version": 2, "task": "Seq2SeqLM"}', "config.json: backbone is missing"),
        (f"[{'1,' * 200_001}1]", "config.json must hold at most 200000 values .*, got more at byte 400002"),
    ],
)
def test_damaged_description(saved, text, message):
    (saved / "config.json").unlink() if text is None else (saved / "config.json").write_text(text)
    with pytest.raises(ValueError, match=message):
        Seq2SeqLM.from_preset(saved)


def test_weights_of_another_configuration(untrained, saved):
    description = json.loads((saved / "config.json").read_text())
    # fewer layers would load, were it not for the count: the weights of the others would stay unread
    change(saved, backbone={**description["backbone"], "num_decoder_layers": 3})
    with pytest.raises(
        ValueError,
        match="config.json: backbone: .*num_layers=.* must fit the .* numbers in|config.json: parameter_count must be ",
    ):
        Seq2SeqLM.from_preset(saved)
    change(saved, backbone=description["backbone"], task="x" * 10**6)
    with pytest.raises(ValueError, match="config.json: task must be .*, got 'xxx.* .1000000 characters.") as caught:
        Seq2SeqLM.from_preset(saved)
    assert len(str(caught.value)) < 1000
    change(saved, task=description["task"], parameter_count=3)
    with pytest.raises(ValueError, match=r"config.json: parameter_count must be \d+, .*, got 3"):
        Seq2SeqLM.from_preset(saved)
    change(saved, backbone={**description["backbone"], "hiden_dim": 3})
    with pytest.raises(ValueError, match="must be known ones, got 'hiden_dim'. Did you mean 'hidden_dim'"):
        Seq2SeqLM.from_preset(saved)


def test_cut_weights(saved):
    path = saved / "model.weights.h5"
    path.write_bytes(path.read_bytes()[:1000])
    with pytest.raises(ValueError, match="model.weights.h5 is damaged: it is not the file that was saved. It has 1000"):
        Seq2SeqLM.from_preset(saved)
