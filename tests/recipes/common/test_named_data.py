"""The parts of the data of a recipe, by what its keys name."""

from types import SimpleNamespace

import pytest

from recipes.common.errors import DataError
from recipes.common.named_data import is_name, open_parts, part_files
from recipes.common.text_lines import BadLines


def data(train, **others):
    return SimpleNamespace(**{"train": train, "validation": [], **others})


def read(files, split):
    """The letters of the part; a data set without a test part."""
    bad = BadLines("skip")
    if is_name(files):
        return (None if split == "test" else [files[0], split]), bad
    bad.add("empty line", f"{files[0]}:3")
    return [letter for letter in files[0] if letter != "."], bad


def test_a_name_stands_for_all_parts(tmp_path, monkeypatch):
    assert part_files(data(["sst2"]), "validation") == ["sst2"]
    assert part_files(data(["a.tsv"]), "validation") == []
    monkeypatch.chdir(tmp_path)
    (tmp_path / "sst2").touch()
    assert not is_name(["sst2"]) and not is_name(["a", "b"])


def test_without_a_test_part_the_validation_part_takes_its_place(capsys):
    assert open_parts(data(["toy"], test=[]), read) == [["toy", "train"], ["toy", "validation"], ["toy", "validation"]]
    parts = open_parts(data(["a.b"], validation=["c.d"]), read)
    assert parts == [["a", "b"], ["c", "d"]]
    assert "train: skipped 1: empty line 1 (a.b:3)\nvalidation: skipped 1" in capsys.readouterr().out


def test_parts_that_are_missing_or_empty():
    with pytest.raises(DataError, match="data.validation must be given"):
        open_parts(data(["a.b"]), read)
    with pytest.raises(DataError, match=r"nothing is left of \.\.: skipped 1: empty line 1"):
        open_parts(data([".."]), read)
