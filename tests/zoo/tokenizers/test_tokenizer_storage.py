"""Saving and loading: round trips, damaged files, and interrupted writing."""

import json
import os
import shutil

import pytest

from zoo.tokenizers import ByteLevelBPETokenizer, SentencePieceTokenizer, Tokenizer


def vocabulary_file(directory):
    (path,) = directory.glob("sentencepiece-*.model")
    return path


def edit(directory, **changes):
    path = directory / "tokenizer.json"
    path.write_text(json.dumps(json.loads(path.read_text()) | changes))


@pytest.fixture
def saved(tmp_path, trained):
    trained["unigram"].save(tmp_path / "tokenizer")
    return tmp_path / "tokenizer"


def test_round_trip(tmp_path, trained):
    tokenizer = SentencePieceTokenizer(trained["unigram"].proto, pad_token="<eos>", start_token="<mask>")
    tokenizer.save(tmp_path / "new" / "directory")
    loaded = Tokenizer.load(tmp_path / "new" / "directory")
    assert type(loaded) is SentencePieceTokenizer
    assert loaded.proto == tokenizer.proto
    assert (loaded.pad_id, loaded.start_id, loaded.end_id) == (2, 4, 2)
    assert sorted(path.name.split("-")[0] for path in (tmp_path / "new" / "directory").iterdir()) == [
        "sentencepiece",
        "tokenizer.json",
    ]


def test_absent_special_token_stays_absent(tmp_path, data_directory):
    tokenizer = SentencePieceTokenizer.from_file(data_directory / "tokenizers" / "mistral_tokenizer.model.v1")
    tokenizer.save(tmp_path)
    assert Tokenizer.load(tmp_path).pad_id is None


def test_saving_again_replaces_and_leaves_other_files(saved, trained):
    (saved / "weights.h5").write_bytes(b"weights")
    trained["bpe"].save(saved)
    assert Tokenizer.load(saved).proto == trained["bpe"].proto
    assert len(list(saved.iterdir())) == 3
    trained["bpe"].save(saved)
    assert Tokenizer.load(saved).proto == trained["bpe"].proto
    assert len(list(saved.iterdir())) == 3


@pytest.mark.parametrize("fail_at", ["sentencepiece", "tokenizer.json"])
@pytest.mark.parametrize("function", ["fsync", "replace"])
def test_interrupted_saving_keeps_the_old_tokenizer(saved, trained, monkeypatch, function, fail_at):
    original = {"fsync": os.fsync, "replace": os.replace}[function]

    def fail(*arguments):
        name = os.readlink(f"/proc/self/fd/{arguments[0]}") if function == "fsync" else str(arguments[1])
        if os.path.basename(name).lstrip(".").startswith(fail_at):
            raise OSError(28, "No space left on device")
        return original(*arguments)

    monkeypatch.setattr(os, function, fail)
    with pytest.raises(OSError, match="No space left"):
        trained["bpe"].save(saved)
    monkeypatch.undo()
    assert Tokenizer.load(saved).proto == trained["unigram"].proto
    assert not [path for path in saved.iterdir() if path.name.startswith(".")]
    trained["bpe"].save(saved)
    assert Tokenizer.load(saved).proto == trained["bpe"].proto


@pytest.mark.parametrize("fail_at", ["vocab-", "tokenizer.json"])
def test_what_a_killed_writer_left_is_removed_by_the_next(tmp_path, trained, monkeypatch, fail_at):
    class Killed(BaseException):
        pass

    def kill(source, target):
        if os.path.basename(target).startswith(fail_at):
            raise Killed
        return os.rename(source, target)

    # nothing is tidied up by a process that is killed
    monkeypatch.setattr(shutil, "rmtree", lambda *arguments, **options: None)
    monkeypatch.setattr(os, "replace", kill)
    folder = tmp_path / "tokenizer"
    with pytest.raises(Killed):
        ByteLevelBPETokenizer.train(["a b"], 258).save(folder)
    monkeypatch.undo()
    assert any(path.name.endswith(".incomplete") for path in folder.iterdir())
    assert len(list(folder.glob("[!.]*-*"))) == (0 if fail_at == "vocab-" else 2)
    own = {"notes-0123456789abcdef.txt": b"mine", "notes.txt": b""}
    for name, content in own.items():
        (folder / name).write_bytes(content)
    trained["bpe"].save(folder)
    assert {path.name for path in folder.iterdir()} == {*own, "tokenizer.json", vocabulary_file(folder).name}
    assert Tokenizer.load(folder).proto == trained["bpe"].proto


def test_saving_over_a_damaged_tokenizer(saved, trained):
    (saved / "tokenizer.json").write_text("{")
    trained["bpe"].save(saved)
    assert Tokenizer.load(saved).proto == trained["bpe"].proto


def test_a_file_in_the_way(tmp_path, trained):
    (tmp_path / "taken").write_text("")
    with pytest.raises(OSError, match="taken"):
        trained["bpe"].save(tmp_path / "taken")


def test_missing_files(tmp_path, saved):
    with pytest.raises(FileNotFoundError, match="absent"):
        Tokenizer.load(tmp_path / "absent")
    with pytest.raises(FileNotFoundError, match="holds no 'tokenizer.json'"):
        Tokenizer.load(tmp_path)
    vocabulary_file(saved).unlink()
    with pytest.raises(FileNotFoundError, match="sentencepiece-.*missing"):
        Tokenizer.load(saved)


def test_damaged_vocabulary_file(saved):
    path = vocabulary_file(saved)
    content = path.read_bytes()
    for damaged in (content[:-1], content + b" ", bytes([content[0] ^ 1]) + content[1:], b""):
        path.write_bytes(damaged)
        with pytest.raises(ValueError, match=f"is damaged: .* has {len(damaged)} bytes.* are {len(content)} and "):
            Tokenizer.load(saved)


@pytest.mark.parametrize("content", [b"", b"{", b"\xff\xfe", b'{"kind": "sentencepiece"}', b"[]"])
def test_damaged_config(saved, content):
    (saved / "tokenizer.json").write_bytes(content)
    with pytest.raises(ValueError, match="tokenizer.json"):
        Tokenizer.load(saved)


@pytest.mark.parametrize(
    "changes, message",
    [
        ({"kind": "syllables"}, r"tokenizer.json: kind must be one of \[.*'sentencepiece'.*got 'syllables'"),
        ({"version": 2}, "version must be 1, got 2"),
        ({"config": {"pad_tokn": "<pad>"}}, "tokenizer.json: config.pad_tokn is not known"),
        ({"config": {"pad_token": "<none>"}}, "pad_token must be in the vocabulary of 72 tokens, got '<none>'"),
        ({"config": {"special_tokens": [{}]}}, r"tokenizer.json: config.special_tokens\[0\] must be a text, got {}"),
        ({"config": {"special_tokens": "<a>"}}, "tokenizer.json: config.special_tokens must be a list of a text, got"),
        ({"files": {}}, "needs the file 'sentencepiece.model'"),
        (
            {"files": {"sentencepiece.model": {"file": "../../secret", "bytes": 1, "sha256": ""}}},
            "must be the name of a file",
        ),
        ({"files": {"sentencepiece.model": "x"}}, "files.sentencepiece.model must be an object, got 'x'"),
    ],
)
def test_unusable_config(saved, changes, message):
    edit(saved, **changes)
    with pytest.raises(ValueError, match=message):
        Tokenizer.load(saved)
