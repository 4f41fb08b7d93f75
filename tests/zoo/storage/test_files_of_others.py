"""What writes a folder removes nothing there that it has not written itself."""

import threading

import pytest

pytest.importorskip("tensorflow")

import zoo  # noqa: E402
from zoo.export.endpoint import Endpoint  # noqa: E402
from zoo.export.folder import export_folder  # noqa: E402
from zoo.storage.files import locked  # noqa: E402
from zoo.training import CheckpointAveraging  # noqa: E402
from zoo.training.state_folder import StateFolder  # noqa: E402

# files beside, and within, the folders that are written; the last two look like what a killed process leaves
STRANGE = (
    *("notes.txt", ".git/config", "own/model.safetensors", "own/variables/variables.index", "pytorch_model.bin"),
    *("tokenizer/notes.txt", "variables/notes.txt", "assets/words.txt", "assets.extra/notes.txt", "1_Pooling/notes"),
    *("epoch-1/notes", "weights-step-7.txt", "mine.onnx", "mine.bin", "model-of-mine.safetensors"),
    *(".download.incomplete", ".mine.abcdefgh.incomplete"),
)


def fill(folder):
    """Files and an empty folder of somebody else."""
    for name in STRANGE:
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).write_text(f"mine: {name}")
    (folder / "nothing").mkdir()


def are_there(folder):
    return (folder / "nothing").is_dir() and all((folder / name).read_text() == f"mine: {name}" for name in STRANGE)


def files(folder):
    return {str(path.relative_to(folder)) for path in folder.rglob("*") if path.is_file()} - set(STRANGE)


def save_export(folder, endpoints=("serve",)):
    """What the formats write, by another hand."""
    made = {name: Endpoint(len, (), ()) for name in endpoints}
    with export_folder(folder, made, save_assets=lambda place: tokenizer().save(place)) as place:
        for name in ("saved_model.pb", "variables/variables.index", "variables/variables.data-00000-of-00001"):
            (place / name).parent.mkdir(exist_ok=True)
            (place / name).write_bytes(b"new")
        for name in endpoints:
            (place / f"{name}.onnx").write_bytes(b"new")
        (place / "assets").mkdir()


def tokenizer():
    return zoo.tokenizers.ByteLevelBPETokenizer.train(["a b"], 258)


@pytest.fixture(scope="module")
def classifier(tiny_tokenizer):
    config = zoo.preset_config(
        *("encoder_tiny",),
        **{"vocabulary_size": tiny_tokenizer.vocabulary_size, "hidden_dim": 16, "num_layers": 1, "max_length": 20},
        attention={"num_heads": 2},
        feed_forward={"intermediate_dim": 32},
        pooler=True,
    )
    task = zoo.TextClassifier(zoo.Backbone.from_config(config), tiny_tokenizer, labels=["no", "yes"])
    task.compile()
    return task


@pytest.mark.parametrize("kind", ["preset", "huggingface", "export", "tokenizer", "average"])
def test_files_of_others_stay(tmp_path, classifier, kind):
    def save(folder):
        if kind == "preset":
            classifier.save_to_preset(folder)
        elif kind == "huggingface":
            classifier.save_to_huggingface(folder, model_type="bert")
        elif kind == "export":
            save_export(folder)
        elif kind == "tokenizer":
            tokenizer().save(folder)
        else:
            callback = CheckpointAveraging(folder, keep=1)
            callback.set_model(classifier)
            callback.on_train_begin()
            callback.on_epoch_end(0)

    save(tmp_path / "alone")
    save(tmp_path / "model")
    fill(tmp_path / "model")
    for _ in range(2):
        save(tmp_path / "model")
        assert are_there(tmp_path / "model")
    if kind in ("huggingface", "export", "tokenizer"):
        assert files(tmp_path / "model") == files(tmp_path / "alone")
    if kind in ("preset", "huggingface"):
        zoo.Task.from_preset(tmp_path / "model")
    # a folder of others alone
    fill(tmp_path / "others")
    if kind in ("huggingface", "export"):
        with pytest.raises(FileExistsError, match="others exists and is no"):
            save(tmp_path / "others")
    else:
        save(tmp_path / "others")
    assert are_there(tmp_path / "others")


def test_what_an_export_has_no_longer_goes(tmp_path):
    save_export(tmp_path / "model", ["serve", "generate"])
    (tmp_path / "model" / "assets" / "words.txt").write_text("mine")
    save_export(tmp_path / "model", ["serve"])
    assert (tmp_path / "model" / "assets" / "words.txt").read_text() == "mine"
    assert (tmp_path / "model" / "serve.onnx").exists() and not (tmp_path / "model" / "generate.onnx").exists()


def test_what_is_in_the_folder_of_a_training_state_stays(tmp_path):
    states = StateFolder(tmp_path, keep=1)
    for epoch in range(3):
        states.write(epoch, 0, {}, {})
        if epoch < 2:
            (tmp_path / f"epoch-{epoch:05d}-batch-00000000" / "notes.txt").write_text("mine")
    kept = {str(path.relative_to(tmp_path)) for path in tmp_path.rglob("*") if path.is_file()}
    last = "epoch-00002-batch-00000000"
    assert kept == {f"{last}/state.json", f"{last}/tensors.safetensors"} | {
        f"epoch-{epoch:05d}-batch-00000000.others/notes.txt" for epoch in range(2)
    }


def test_a_card_of_somebody_else_stays(tmp_path, classifier):
    def save():
        zoo.huggingface.write_backbone(classifier.backbone, tmp_path / "model", model_type="bert")

    save()
    (tmp_path / "model" / "README.md").write_text("mine")
    save()
    assert (tmp_path / "model" / "README.md").read_text() == "mine"


def test_writers_of_a_folder_with_files_of_others_wait_for_each_other(tmp_path):
    save_export(tmp_path, ["serve", "generate"])
    (tmp_path / "notes.txt").write_text("mine")
    with locked(tmp_path):
        writer = threading.Thread(target=save_export, args=(tmp_path, ["serve"]))
        writer.start()
        writer.join(2)
        assert writer.is_alive() and (tmp_path / "generate.onnx").exists()
    writer.join()
    assert not (tmp_path / "generate.onnx").exists()


def test_a_link_to_a_folder_stays(tmp_path):
    save_export(tmp_path / "disk", ["serve", "generate"])
    (tmp_path / "model").symlink_to(tmp_path / "disk")
    save_export(tmp_path / "model", ["serve"])
    assert (tmp_path / "model").is_symlink()
    assert (tmp_path / "disk" / "serve.onnx").exists() and not (tmp_path / "disk" / "generate.onnx").exists()
    assert {path.name for path in tmp_path.iterdir()} == {"disk", "model"}


def test_a_file_in_the_way_of_a_folder(tmp_path):
    save_export(tmp_path / "model")
    for path in (tmp_path / "model" / "variables").iterdir():
        path.unlink()
    (tmp_path / "model" / "variables").rmdir()
    (tmp_path / "model" / "variables").write_text("mine")
    with pytest.raises(FileExistsError, match=r"model/variables is in the way"):
        save_export(tmp_path / "model")
    assert (tmp_path / "model" / "variables").read_text() == "mine"
    assert "serve" in (tmp_path / "model" / "signature.json").read_text()


def test_a_model_of_somebody_else_is_no_export(tmp_path):
    (tmp_path / "saved_model.pb").write_text("mine")
    with pytest.raises(FileExistsError, match="is no export"):
        save_export(tmp_path)
