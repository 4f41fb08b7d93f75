"""Models in installed packages, which are found and not imported."""

import shutil
from pathlib import Path

import numpy as np
import pytest

import zoo
from zoo.storage import find_reader

REFERENCE = Path(__file__).parents[2] / "reference" / "huggingface"


@pytest.fixture
def package(tmp_path, monkeypatch):
    """A package that cannot be imported, with a model in it."""
    folder = tmp_path / "a_model"
    shutil.copytree(REFERENCE / "granite", folder / "files" / "granite")
    (folder / "__init__.py").write_text("raise ImportError('it needs others')")
    monkeypatch.syspath_prepend(tmp_path)
    return folder


def test_the_only_model_of_a_package(package):
    found, expected = zoo.Backbone.from_preset("package://a_model"), zoo.Backbone.from_preset(REFERENCE / "granite")
    for ours, theirs in zip(found.weights, expected.weights, strict=True):
        np.testing.assert_array_equal(ours, theirs)


def test_one_of_several(package):
    shutil.copytree(REFERENCE / "gpt2", package / "files" / "gpt2")
    message = "must have one model, .*, got package://a_model/files/gpt2, package://a_model/files/granite"
    with pytest.raises(ValueError, match=message):
        find_reader("package://a_model")
    assert zoo.Backbone.from_preset("package://a_model/files/gpt2").config.position.kind == "learned"


@pytest.mark.parametrize(
    ("address", "message"),
    [
        ("package://no_such_model", "not installed: pip install no-such-model"),
        ("package://a_model/other", "names nothing in the package: there is no .*other"),
        ("package://a_model/../other", "must be package://name"),
        ("package://", "must be package://name"),
        ("package://json", "must have one model, .* got none"),
    ],
)
def test_what_is_refused(package, address, message):
    with pytest.raises(ValueError, match=message):
        find_reader(address)
