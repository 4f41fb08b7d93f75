"""Readers see one version of what several processes save; what a killed one leaves is swept by the next."""

import multiprocessing
import os
import signal
import time
from pathlib import Path

import h5py
import pytest

from zoo.storage import (
    PresetDescription,
    atomic_write,
    h5,
    open_preset,
    read_one_version,
    read_tokenizer,
    replace_folder,
    write_preset,
    write_tokenizer,
)
from zoo.storage.files import temporary_folder


def start(function, *arguments):
    # a fork: a fresh process would import Keras for seconds
    process = multiprocessing.get_context("fork").Process(target=function, args=arguments, daemon=True)
    process.start()
    return process


def wait_for(path, processes):
    while not path.exists() and any(process.is_alive() for process in processes):
        time.sleep(0.001)


def end(processes):
    for process in processes:
        process.join(60)
        assert process.exitcode == 0


def save_numbers(model, first, count):
    """Presets in which number, weights and tokenizer say the same."""

    def weights(path):
        with h5py.File(path, "w") as file:
            file["number"] = [number] * 1000

    def tokenizer(folder):
        write_tokenizer(folder, "none", {"number": number}, {"vocabulary.txt": str(number).encode() * 10})

    for number in range(first, first + count):
        write_preset(model, PresetDescription("None", {}, {"number": number}, number), weights, tokenizer)


def test_readers_see_one_version_while_two_processes_save(tmp_path, monkeypatch):
    # a process for each look at the weights would take longer than all saves
    monkeypatch.setattr(h5, "_shapes_from_outside", lambda path: h5.h5_sizes.shapes_of(str(path)))
    model = tmp_path / "model"
    savers = [start(save_numbers, model, first, 25) for first in (1, 1001)]
    wait_for(model / "config.json", savers)
    seen = set()
    while any(saver.is_alive() for saver in savers):
        with open_preset(model) as preset:
            number = preset.description.parameter_count
            time.sleep(0.002)  # other versions come meanwhile
            with h5py.File(preset.weights.path) as file:
                assert set(file["number"][:]) == {number}
            assert preset.description.options == {"number": number}
            assert preset.tokenizer.files["vocabulary.txt"] == str(number).encode() * 10
            seen.add(number)
    end(savers)
    assert len(seen) > 3
    # a part that was being read may stay until the next save
    save_numbers(model, 7, 1)
    names = sorted(path.name for path in model.iterdir())
    assert len(names) == 3 and not any(name.endswith(".incomplete") for name in names), names


def die(path):
    path.write_bytes(b"half")
    os.kill(os.getpid(), signal.SIGKILL)


def whole(path):
    path.write_bytes(b"whole")


def save_preset(place, fill):
    write_preset(place, PresetDescription("None", {}, {}, 1), fill)


def save_folder(place, fill):
    with replace_folder(place, lambda old: True, "model", ["file"]) as folder:
        fill(folder / "file")


def save_file(place, fill):
    with atomic_write(place) as temporary:
        fill(temporary)


@pytest.mark.parametrize("save", [save_preset, save_folder, save_file])
def test_the_next_save_sweeps_what_a_killed_one_left(tmp_path, save):
    def left():
        return [path for path in tmp_path.rglob("*") if path.name.endswith(".incomplete")]

    place = tmp_path / "model"
    killed = start(save, place, die)
    killed.join(60)
    assert killed.exitcode == -signal.SIGKILL and len(left()) == 1
    with temporary_folder(left()[0].parent, "model") as other:  # of somebody who is writing just now
        save(place, whole)
        assert left() == [other]
    assert not left() and place.exists()


def save_folders(model, name):
    for number in range(100):
        with replace_folder(model, lambda old: True, "model", ["a", "b"]) as folder:
            for file in "ab":
                (folder / file).write_text(name + str(number))


def test_replacing_a_folder_while_others_do(tmp_path):
    model = tmp_path / "model"
    savers = [start(save_folders, model, name) for name in "xy"]
    wait_for(model, savers)
    while any(saver.is_alive() for saver in savers):
        first, second = read_one_version(model, lambda: [(model / name).read_text() for name in "ab"])
        assert first == second
    end(savers)
    assert os.listdir(tmp_path) == ["model"]


def save_tokenizers(folder):
    for number in range(40):
        write_tokenizer(folder, "none", {"number": number % 2}, {"vocabulary.txt": b"x" * (number % 2)})
        stored = read_tokenizer(folder)
        assert stored.files["vocabulary.txt"] == b"x" * stored.config["number"]


def test_a_tokenizer_that_is_saved_by_several(tmp_path):
    end([start(save_tokenizers, tmp_path / "tokenizer") for _ in range(2)])


def test_saving_to_the_working_directory(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "notes").write_text("mine")
    for content in (b"one", b"two"):
        save_preset(".", lambda path, content=content: path.write_bytes(content))
    names = sorted(os.listdir("."))
    assert os.getcwd() == str(tmp_path) and names[0] == "config.json" and names[-1] == "notes" and len(names) == 3
    assert Path(names[1]).read_bytes() == b"two"


def test_replacing_the_working_directory(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    for number in range(2):
        with replace_folder(".", lambda old: (old / "config").exists(), "model", ["config", "only *"]) as folder:
            (folder / "config").write_text(str(number))
            (folder / f"only {number}").mkdir()
    assert os.getcwd() == str(tmp_path) and (tmp_path / "config").read_text() == "1"
    assert sorted(os.listdir(".")) == ["config", "only 1"]
