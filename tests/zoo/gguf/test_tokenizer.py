"""Tokenizers in GGUF files give the ids of the files of Hugging Face from which they were made."""

import json
from pathlib import Path

import gguf
import pytest
from gguf_files import add_tokenizer

from zoo.gguf.header import read_gguf
from zoo.tokenizers import Tokenizer

REFERENCE = Path(__file__).parents[2] / "reference" / "tokenizers"


def written(path, **options):
    writer = gguf.GGUFWriter(str(path), "llama")
    add_tokenizer(writer, **options)
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.close()
    return path


@pytest.mark.parametrize(("case", "pre"), [("gpt2", "gpt-2"), ("qwen2", "qwen2")])
def test_ids_are_those_of_the_library(case, pre, tmp_path):
    content = json.loads((REFERENCE / case / "tokenizer.json").read_text())
    golden = json.loads((REFERENCE / case / "golden.json").read_text())
    control = [token["content"] for token in content["added_tokens"]]
    tokens = sorted(content["model"]["vocab"], key=content["model"]["vocab"].get)
    tokens += [token for token in control if token not in tokens]
    merges = [merge if isinstance(merge, str) else " ".join(merge) for merge in content["model"]["merges"]]
    tokenizer = Tokenizer.from_preset(
        str(written(tmp_path / "a.gguf", tokens=tokens, merges=merges, pre=pre, control=control))
    )
    assert tokenizer.tokenize(golden["texts"]).to_list() == golden["plain"]


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"pre": "deepseek-llm"}, "tokenizer.ggml.pre must be one of .*, got 'deepseek-llm'"),
        ({"tokens": ["a", "b", "a", "<end>"]}, "tokenizer.ggml.tokens must be different .*, got 4 tokens"),
        ({}, "have no tokenizer.ggml.merges"),
    ],
)
def test_what_is_refused(options, message, tmp_path):
    path = written(tmp_path / "a.gguf", **options)
    with pytest.raises(ValueError, match=message):
        Tokenizer.from_preset(str(path))


def test_a_template_of_chats(tmp_path):
    template = "{% for message in messages %}{{ message.content }}{% endfor %}"
    header = read_gguf(written(tmp_path / "a.gguf", template=template))
    assert header.metadata["tokenizer.chat_template"] == template
