import errno
import os

import pytest

from zoo.storage import write_text_atomically


def test_writes_text_as_it_is(tmp_path):
    file = tmp_path / "a.txt"
    write_text_atomically(file, "é\r\nb\n")
    assert file.read_bytes() == "é\r\nb\n".encode()
    assert os.listdir(tmp_path) == ["a.txt"]


@pytest.mark.parametrize("step", ["fsync", "replace"])
def test_full_disk_leaves_the_previous_content(tmp_path, monkeypatch, step):
    file = tmp_path / "a.txt"
    write_text_atomically(file, "old")

    def fail(*_):
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr(os, step, fail)
    with pytest.raises(OSError, match="No space left"):
        write_text_atomically(file, "new")
    assert file.read_text() == "old"
    assert os.listdir(tmp_path) == ["a.txt"]


def test_mode_follows_the_umask(tmp_path):
    previous = os.umask(0o027)
    try:
        write_text_atomically(tmp_path / "a.txt", "x")
    finally:
        os.umask(previous)
    assert (tmp_path / "a.txt").stat().st_mode & 0o777 == 0o640


def test_makes_the_folder(tmp_path):
    write_text_atomically(tmp_path / "new" / "a.txt", "x")
    assert (tmp_path / "new" / "a.txt").read_text() == "x"
