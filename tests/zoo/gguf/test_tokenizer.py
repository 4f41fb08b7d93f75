"""Tokenizers in GGUF files give the ids of the files of Hugging Face from which they were made."""

import io
import json
from pathlib import Path

import gguf
import pytest
import sentencepiece
import tokenizers
from gguf_files import TOKENS, add_sentencepiece, add_tokenizer, add_wordpiece

from zoo.gguf.header import read_gguf
from zoo.gguf.tokenizer import from_files
from zoo.tokenizers import Tokenizer

REFERENCE = Path(__file__).parents[2] / "reference" / "tokenizers"


def written(path, **options):
    writer = gguf.GGUFWriter(str(path), "llama")
    add_tokenizer(writer, **options)
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.close()
    return path


def same(content, pre, path):
    """The tokenizer of a `tokenizer.json`, read from a GGUF file."""
    control = [token["content"] for token in content["added_tokens"]]
    tokens = sorted(content["model"]["vocab"], key=content["model"]["vocab"].get)
    tokens += [token for token in control if token not in tokens]
    merges = [merge if isinstance(merge, str) else " ".join(merge) for merge in content["model"]["merges"]]
    return Tokenizer.from_preset(str(written(path, tokens=tokens, merges=merges, pre=pre, control=control)))


@pytest.mark.parametrize(("case", "pre"), [("gpt2", "gpt-2"), ("qwen2", "qwen2")])
def test_ids_are_those_of_the_library(case, pre, tmp_path):
    content = json.loads((REFERENCE / case / "tokenizer.json").read_text())
    golden = json.loads((REFERENCE / case / "golden.json").read_text())
    tokenizer = same(content, pre, tmp_path / "a.gguf")
    assert tokenizer.tokenize(golden["texts"]).to_list() == golden["plain"]


# as the file of DeepSeek V3 has them
STEPS = (
    *(r"\p{N}{1,3}", "[一-龥\u3040-\u309f\u30a0-\u30ff]+"),
    "[!\"#$%&'()*+,\\-./:;<=>?@\\[\\\\\\]^_`{|}~][A-Za-z]+|[^\r\n\\p{L}\\p{P}\\p{S}]?[\\p{L}\\p{M}]+"
    "| ?[\\p{P}\\p{S}]+[\r\n]*|\\s*[\r\n]+|\\s+(?!\\S)|\\s+",
)


def test_steps_of_deepseek_v3(tmp_path):
    content = json.loads((REFERENCE / "gpt2" / "tokenizer.json").read_text())
    splits = [{"type": "Split", "pattern": {"Regex": step}, "behavior": "Isolated", "invert": False} for step in STEPS]
    last = {"type": "ByteLevel", "add_prefix_space": False, "trim_offsets": True, "use_regex": False}
    content["pre_tokenizer"] = {"type": "Sequence", "pretokenizers": [*splits, last]}
    library = tokenizers.Tokenizer.from_str(json.dumps(content))
    tokenizer = same(content, "deepseek-v3", tmp_path / "a.gguf")
    texts = [*TEXTS, "1234567 kana かな漢字12 .NET (a)b\r\n\t\t!x  \n y\u0301 \u0301", "\x02\x03é --flag=5%"]
    assert tokenizer.tokenize(texts).to_list() == [library.encode(text).ids for text in texts]
    assert from_files(content)[0] == "deepseek-v3"


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


TEXTS = [
    "The quick brown fox jumps over the lazy dog.",
    "  two  spaces and a trailing one ",
    "línea número 12\nsecond\tline",
    "敏捷的棕色狐狸跳过了懒狗",
    "الثعلب البني السريع",
    "สุนัขจิ้งจอกสีน้ำตาล",
    "तेज़ भूरी लोमड़ी",
    "🙂 e\u0301 ﬁ ①",
    "",
]


def trained(**options):
    model = io.BytesIO()
    sentencepiece.SentencePieceTrainer.train(
        sentence_iterator=iter(TEXTS[:5] * 20), model_writer=model, minloglevel=2, **options
    )
    return model.getvalue()


OF_LLAMA = {
    "model_type": "bpe",
    "vocab_size": 400,
    "byte_fallback": True,
    "normalization_rule_name": "identity",
    "remove_extra_whitespaces": False,
    "user_defined_symbols": ["<|user|>"],
}


@pytest.mark.parametrize(
    "options",
    [
        OF_LLAMA,
        OF_LLAMA | {"add_dummy_prefix": False},
        {"model_type": "unigram", "vocab_size": 110, "hard_vocab_limit": False},
    ],
    ids=["llama", "gemma", "t5"],
)
def test_ids_of_sentencepiece(options, tmp_path):
    proto, path = trained(**options), tmp_path / "a.gguf"
    writer = gguf.GGUFWriter(str(path), "llama")
    add_sentencepiece(writer, proto)
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.close()
    tokenizer, expected = Tokenizer.from_preset(str(path)), sentencepiece.SentencePieceProcessor(model_proto=proto)
    texts = [*TEXTS, "a <|user|> b"]
    assert tokenizer.tokenize(texts).to_list() == [expected.encode(text) for text in texts]
    assert tokenizer.get_vocabulary() == [expected.id_to_piece(index) for index in range(expected.vocab_size())]
    assert (tokenizer.start_id, tokenizer.end_id) == (1, 2)
    # as llama.cpp does where the file does not say it
    assert (bool(tokenizer.adds_start), bool(tokenizer.adds_end)) == (options["model_type"] == "bpe", False)


@pytest.mark.parametrize("lowercase", [True, False])
def test_ids_of_wordpiece(lowercase, tmp_path):
    library = tokenizers.BertWordPieceTokenizer(lowercase=lowercase)
    library.train_from_iterator(TEXTS[:5] * 20, vocab_size=200, min_frequency=1, show_progress=False)
    vocabulary = library.get_vocab()
    path = tmp_path / "a.gguf"
    writer = gguf.GGUFWriter(str(path), "bert")
    add_wordpiece(writer, sorted(vocabulary, key=vocabulary.get))
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.close()
    tokenizer = Tokenizer.from_preset(str(path))
    expected = [library.encode(text, add_special_tokens=False).ids for text in TEXTS]
    assert tokenizer.tokenize(TEXTS).to_list() == expected
    assert (tokenizer.start_id, tokenizer.mask_id) == (vocabulary["[CLS]"], vocabulary["[MASK]"])


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"add_token_scores": [[0.0]]}, "tokenizer.ggml.scores must be 48 numbers, .*, got 1"),
        ({"add_token_types": [[9] * 48]}, "tokenizer.ggml.token_type from 1 to 6"),
        ({"add_tokenizer_model": ["rwkv"]}, "tokenizer.ggml.model must be one of .*, got 'rwkv'"),
    ],
)
def test_what_is_refused_of_other_kinds(change, message, tmp_path):
    path = tmp_path / "a.gguf"
    writer = gguf.GGUFWriter(str(path), "llama")
    calls = {
        "add_tokenizer_model": ["llama"],
        "add_token_list": [TOKENS],
        "add_token_scores": [[0.0] * 48],
        "add_token_types": [[1] * 48],
    }
    for name, arguments in {**calls, **change}.items():
        getattr(writer, name)(*arguments)
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.close()
    with pytest.raises(ValueError, match=message):
        Tokenizer.from_preset(str(path))
