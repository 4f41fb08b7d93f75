"""Which paths can be written and read again, beside what TensorFlow and the file system make of them."""

import os

import numpy as np
import pytest

from zoo.storage import check_path, replace_folder, write_text_atomically

# TensorFlow takes `*` and `?` for patterns too, which match themselves
READABLE = ["a*", "a?b", "a]", "a%20b", "a\nb", " b ", "#b", "{b,c}", "~", "-b", "ü語\U0001f642", "$a;'\"|:,^!"]
UNREADABLE = ["a[1]", "[[]", "a[b", "a\\b", "a\\"]


@pytest.mark.parametrize("name", [*READABLE, *UNREADABLE])
def test_folders_of_saved_models_are_those_that_tensorflow_loads(name, tmp_path):
    import tensorflow as tf

    folder = tmp_path / name / "model"
    module = tf.Module()
    module.weight = tf.Variable([1.0, 2.0])
    tf.saved_model.save(module, str(folder))
    try:
        loads = np.array_equal(tf.saved_model.load(str(folder)).weight, [1.0, 2.0])
    except OSError:
        loads = False
    if name == "a[b":  # no pattern here, but one for other readers
        assert loads
        loads = False
    assert loads == (name in READABLE)
    check_path(folder, "directory")
    if loads:
        check_path(folder, "directory", saved_model=True)
    else:
        with pytest.raises(ValueError, match="^directory must .*"):
            check_path(folder, "directory", saved_model=True)


@pytest.mark.parametrize("name", [*READABLE, *UNREADABLE, "x" * 234, "ü" * 117])
def test_files_and_folders_of_any_name_are_written_whole(name, tmp_path):
    check_path(tmp_path / name, "directory")
    for text in ("first", "second"):
        with replace_folder(tmp_path / name, lambda old: True, "folder") as folder:
            (folder / "file").write_text(text)
        write_text_atomically(tmp_path / name / name, text)
        assert (tmp_path / name / "file").read_text() == (tmp_path / name / name).read_text() == text
    assert os.listdir(tmp_path) == [name]


@pytest.mark.parametrize("name", ["x" * 235, "ü" * 118])
def test_names_that_are_too_long_are_refused(name, tmp_path):
    with pytest.raises(ValueError, match="output must .* 234 bytes, got one of 23[56] bytes"):
        check_path(tmp_path / name, "output")
    with pytest.raises(OSError):
        write_text_atomically(tmp_path / name, "a")


def test_paths_that_are_too_long_are_refused(tmp_path):
    path = tmp_path
    while len(os.fsencode(path / ("y" * 200))) < 4096 - 256 - 200:
        path /= "y" * 200
    check_path(path, "run_folder")
    with pytest.raises(ValueError, match="run_folder must be a path of at most"):
        check_path(path / ("y" * 200), "run_folder")


def test_what_is_relative_is_looked_at_from_the_root_on(tmp_path, monkeypatch):
    (tmp_path / "a[1]").mkdir()
    monkeypatch.chdir(tmp_path / "a[1]")
    with pytest.raises(ValueError, match="output must have neither"):
        check_path("runs", "output", saved_model=True)
