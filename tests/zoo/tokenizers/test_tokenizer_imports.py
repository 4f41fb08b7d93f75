"""The package can be imported without TensorFlow; only using a tokenizer needs it."""

import ast
import sys
from pathlib import Path

import pytest

import zoo.tokenizers
from zoo.tokenizers import SentencePieceTokenizer


def test_no_module_imports_tensorflow_at_its_top():
    (directory,) = zoo.tokenizers.__path__
    for path in Path(directory).glob("*.py"):
        for node in ast.parse(path.read_text(encoding="utf-8")).body:
            names = [alias.name for alias in node.names] if isinstance(node, ast.Import) else []
            names += [node.module] if isinstance(node, ast.ImportFrom) else []
            assert not [name for name in names if name.split(".")[0] in ("tensorflow", "tensorflow_text")], path


@pytest.mark.parametrize("missing", ["tensorflow", "tensorflow_text"])
def test_using_a_tokenizer_without_tensorflow_says_what_to_install(trained, monkeypatch, missing):
    monkeypatch.setitem(sys.modules, missing, None)
    with pytest.raises(ImportError, match="pip install tensorflow tensorflow-text"):
        SentencePieceTokenizer(trained["bpe"].proto)
