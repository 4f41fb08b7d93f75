"""Weights in HDF5 files: what is read of them, by whom, and what is refused."""

import subprocess
import sys
from pathlib import Path

import h5py
import numpy as np
import pytest

from zoo.storage import h5_sizes, open_h5


@pytest.fixture
def path(tmp_path):
    with h5py.File(tmp_path / "model.weights.h5", "w") as file:
        file["layers/dense/vars/0"] = np.zeros((3, 4), "float32")
        file["layers/dense/vars/1"] = np.float32(7)
        file["layers/empty"] = np.zeros((0, 4), "float32")
    return tmp_path / "model.weights.h5"


def test_this_process_and_another_see_the_same(path):
    assert open_h5(path) == open_h5(path, is_own=True)
    weights = open_h5(path)
    assert weights.shapes == {"/layers/dense/vars/0": (3, 4), "/layers/dense/vars/1": (), "/layers/empty": (0, 4)}
    assert weights.elements == 13


def change(path, name, make):
    with h5py.File(path, "r+") as file:
        del file[name]
        make(file, name)


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda file, name: file.__setitem__(name, h5py.ExternalLink("/etc/passwd", "/x")), "must be in this file"),
        (lambda file, name: file.__setitem__(name, h5py.SoftLink("/")), "must be in this file"),
        (lambda file, name: file.__setitem__(name, file["layers"]), "must be there once"),
        (lambda file, name: file.__setitem__(name, [b"text"]), "must hold numbers"),
        (
            lambda file, name: file.create_dataset(name, shape=(10**6, 10**6), dtype="f4", chunks=(1000, 1000)),
            "must be stored in one piece",
        ),
        (lambda file, name: file.create_dataset(name, shape=(10**6, 10**6), dtype="f4"), "and holds 0 bytes"),
    ],
)
def test_what_is_refused(path, make, message):
    change(path, "layers/dense/vars/0", make)
    with pytest.raises(ValueError, match=f"model.weights.h5: /layers/dense/vars/0 {message}|{message}"):
        open_h5(path, is_own=True)


@pytest.mark.parametrize(
    ("script", "message"),
    [
        ("import os; os.kill(os.getpid(), 11)", r"ends the process that reads it \(signal 11\)"),
        ("raise SystemExit(3)", r"ends the process that reads it \(exit code 3\)"),
    ],
)
def test_a_file_that_ends_the_process_that_reads_it(path, tmp_path, monkeypatch, script, message):
    (tmp_path / "reader.py").write_text(script)
    monkeypatch.setattr(h5_sizes, "__file__", str(tmp_path / "reader.py"))
    with pytest.raises(ValueError, match=f"model.weights.h5 is damaged: the HDF5 library {message}"):
        open_h5(path)


def test_a_file_that_keeps_the_process_waiting(path, tmp_path, monkeypatch):
    (tmp_path / "reader.py").write_text("import time; time.sleep(60)")
    monkeypatch.setattr(h5_sizes, "__file__", str(tmp_path / "reader.py"))
    monkeypatch.setattr(h5_sizes, "most_seconds", lambda path: 0.05)
    with pytest.raises(
        ValueError, match="model.weights.h5 takes more than 1.0 seconds to read: it is damaged, or .* busy"
    ):
        open_h5(path)


@pytest.mark.skipif(sys.platform != "linux", reason="Other systems set no such limits.")
def test_time_and_memory_are_bounded_by_the_size(path):
    script = f"""
import sys, resource
sys.path.insert(0, {str(Path(h5_sizes.__file__).parent)!r})
import h5_sizes
h5_sizes.limit({str(path)!r})
assert resource.getrlimit(resource.RLIMIT_CPU) == (6, 6)
bytearray(300 * 2**20)
try:
    bytearray(500 * 2**20)
except MemoryError:
    print("no memory")
"""
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True)
    assert done.stdout == "no memory\n", done.stderr
    with open(path, "r+b") as file:
        file.truncate(10 * 2**30)  # of nothing: it takes no place on the disk
    assert h5_sizes.most_seconds(str(path)) == 6 + 640


def test_damaged_files(path):
    content = path.read_bytes()
    for damaged in (b"", content[:100], content[:-50], b"\x89HDF\r\n\x1a\n" + b"\xff" * 2000):
        path.write_bytes(damaged)
        with pytest.raises(ValueError, match="model.weights.h5"):
            open_h5(path, is_own=True)
