"""Tokenizers from the files of Hugging Face, against the library that wrote them."""

import json

import pytest
import tokenizers
from sentencepiece import sentencepiece_model_pb2

from zoo.tokenizers import (
    ByteLevelBPETokenizer,
    SentencePieceTokenizer,
    Tokenizer,
    WordPieceTokenizer,
    load_huggingface,
)
from zoo.tokenizers.split_patterns import PATTERNS

decoders, models, normalizers = tokenizers.decoders, tokenizers.models, tokenizers.normalizers
pre_tokenizers, processors = tokenizers.pre_tokenizers, tokenizers.processors


def wordpiece_library(wordpiece):
    vocabulary = {token: index for index, token in enumerate(wordpiece.get_vocabulary())}
    result = tokenizers.Tokenizer(models.WordPiece(vocabulary, unk_token="[UNK]"))
    result.normalizer = normalizers.BertNormalizer(lowercase=True)
    result.pre_tokenizer = pre_tokenizers.BertPreTokenizer()
    result.decoder = decoders.WordPiece()
    result.post_processor = processors.TemplateProcessing(
        single="[CLS] $A [SEP]", special_tokens=[("[CLS]", 2), ("[SEP]", 3)]
    )
    result.add_special_tokens(["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]"])
    return result


def byte_level_library(byte_level, name=None):
    vocabulary = {token: index for index, token in enumerate(byte_level.get_vocabulary())}
    result = tokenizers.Tokenizer(models.BPE(vocabulary, byte_level._merges, ignore_merges=name == "llama3"))
    result.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=name == "roberta")
    if name in PATTERNS:
        split = pre_tokenizers.Split(tokenizers.Regex(PATTERNS[name]), "isolated")
        byte_step = pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False)
        result.pre_tokenizer = pre_tokenizers.Sequence([split, byte_step])
    if name == "smollm":
        digits = pre_tokenizers.Digits(individual_digits=True)
        result.pre_tokenizer = pre_tokenizers.Sequence([digits, pre_tokenizers.ByteLevel(add_prefix_space=False)])
    if name == "qwen2":
        result.normalizer = normalizers.NFC()
    result.decoder = decoders.ByteLevel()
    result.add_special_tokens(["<|endoftext|>", "<|im_start|>", "<|im_end|>"])
    return result


def bpe_with_bytes_library(trained, prepend=True):
    model = sentencepiece_model_pb2.ModelProto.FromString(trained["bytes"].proto)
    ids = {piece.piece: index for index, piece in enumerate(model.pieces)}
    scores = {piece.piece: piece.score for piece in model.pieces}
    merges = [(p[:cut], p[cut:]) for p in ids for cut in range(1, len(p)) if p[:cut] in ids and p[cut:] in ids]
    merges.sort(key=lambda pair: (-scores["".join(pair)], ids[pair[0]], ids[pair[1]]))
    result = tokenizers.Tokenizer(models.BPE(ids, merges, unk_token="<unk>", fuse_unk=True, byte_fallback=True))
    steps = [normalizers.Prepend("\u2581")] * prepend + [normalizers.Replace(" ", "\u2581")]
    result.normalizer = normalizers.Sequence(steps)
    joined = [decoders.Replace("\u2581", " "), decoders.ByteFallback(), decoders.Fuse()]
    result.decoder = decoders.Sequence(joined + [decoders.Strip(" ", 1, 0)] * prepend)
    result.post_processor = processors.TemplateProcessing(single="<sos> $A", special_tokens=[("<sos>", 1)])
    result.add_special_tokens(["<pad>", "<sos>", "<eos>", "<unk>"])
    return result


def unigram_library(trained):
    model = sentencepiece_model_pb2.ModelProto.FromString(trained["unigram"].proto)
    result = tokenizers.Tokenizer(models.Unigram([(piece.piece, piece.score) for piece in model.pieces], unk_id=3))
    result.normalizer = normalizers.Precompiled(model.normalizer_spec.precompiled_charsmap)
    result.pre_tokenizer = pre_tokenizers.Sequence([pre_tokenizers.WhitespaceSplit(), pre_tokenizers.Metaspace()])
    result.decoder = decoders.Metaspace()
    result.add_special_tokens(["<pad>", "<sos>", "<eos>", "<unk>", "<mask>"])
    return result


def load(library, directory, config=None):
    library.encode_special_tokens = True  # so that text which spells a special token stays text, as ours
    library.save(str(directory / "tokenizer.json"))
    if config is not None:
        (directory / "tokenizer_config.json").write_text(json.dumps(config))
    return load_huggingface(directory)


def assert_same(ours, library, texts):
    assert ours.tokenize(texts).to_list() == [
        encoding.ids for encoding in library.encode_batch(texts, add_special_tokens=False)
    ]


def test_wordpiece(wordpiece, odd_texts, tmp_path):
    library = wordpiece_library(wordpiece)
    ours = load(library, tmp_path)
    assert type(ours) is WordPieceTokenizer
    assert_same(ours, library, odd_texts)
    assert [ours.pad_id, ours.unknown_id, ours.start_id, ours.end_id, ours.mask_id] == [0, 1, 2, 3, 4]


@pytest.mark.parametrize("name", [None, "roberta", "smollm", "llama3", "qwen2", "gpt4o", "bloom"])
def test_byte_level_bpe(byte_level, odd_texts, tmp_path, name):
    library = byte_level_library(byte_level, name)
    ours = load(library, tmp_path, {"eos_token": {"content": "<|im_end|>"}, "bos_token": "<|im_start|>"})
    assert type(ours) is ByteLevelBPETokenizer
    assert_same(ours, library, odd_texts)
    # The start token is not put before texts, so it is none.
    assert [ours.start_id, ours.end_id, ours.special_tokens] == [
        None,
        2,
        ["<|endoftext|>", "<|im_start|>", "<|im_end|>"],
    ]
    ours.save(tmp_path / "ours")
    assert_same(Tokenizer.load(tmp_path / "ours"), library, odd_texts[:50])


@pytest.mark.parametrize("prepend", [True, False])
def test_bpe_with_bytes(trained, odd_texts, tmp_path, prepend):
    library = bpe_with_bytes_library(trained, prepend)
    ours = load(library, tmp_path, {"eos_token": "<eos>", "bos_token": "<sos>", "unk_token": "<unk>"})
    assert type(ours) is SentencePieceTokenizer
    assert_same(ours, library, odd_texts)
    ids, starts, ends = ours.tokenize_with_offsets(odd_texts)
    positions = [list(zip(*row, strict=True)) for row in zip(starts.to_list(), ends.to_list(), strict=True)]
    assert positions == [encoding.offsets for encoding in library.encode_batch(odd_texts, add_special_tokens=False)]
    decoded = [text.decode("utf-8") for text in ours.detokenize(ids).numpy()]
    assert decoded == library.decode_batch(ids.to_list())
    assert [ours.start_id, ours.end_id, ours.unknown_id] == [1, 2, 3]


def test_unigram(trained, sentences, odd_texts, tmp_path):
    library = unigram_library(trained)
    ours = load(library, tmp_path, {"eos_token": "<eos>", "pad_token": "<pad>"})
    assert_same(ours, library, sentences)
    # On odd characters the library's normalization differs from SentencePiece's, so compare with the model itself.
    usual = [text for text in odd_texts if "<mask>" not in text]
    assert ours.tokenize(usual).to_list() == trained["unigram"].tokenize(usual).to_list()
    assert [ours.pad_id, ours.start_id, ours.end_id] == [0, None, 2]


def test_other_files(byte_level, wordpiece, trained, tmp_path):
    folders = {name: tmp_path / name for name in ("bpe", "wordpiece", "model", "empty")}
    for folder in folders.values():
        folder.mkdir()
    for name, content in byte_level._files().items():
        (folders["bpe"] / name).write_bytes(content)
    loaded = load_huggingface(folders["bpe"], end_token="<|endoftext|>")
    assert loaded.tokenize("the dog").numpy().tolist() == byte_level.tokenize("the dog").numpy().tolist()
    (folders["wordpiece"] / "vocab.txt").write_bytes(wordpiece._files()["vocab.txt"])
    configs = {"{}": ".* nothing in it", '{"do_lower_case_": true, "x": 3}': r"only \['do_lower_case_', 'x'\]"}
    for content, named in configs.items():
        (folders["wordpiece"] / "tokenizer_config.json").write_text(content)
        with pytest.raises(ValueError, match=f"tokenizer_config.json: do_lower_case must be .* got none, {named}"):
            load_huggingface(folders["wordpiece"])
    (folders["wordpiece"] / "tokenizer_config.json").write_text('{"do_lower_case": true}')
    assert load_huggingface(folders["wordpiece"]).get_vocabulary() == wordpiece.get_vocabulary()
    (folders["wordpiece"] / "tokenizer_config.json").write_text('{"tokenizer_class": "EsmTokenizer"}')
    with pytest.raises(ValueError, match="tokenizer_class must not be 'EsmTokenizer', which looks for its tokens"):
        load_huggingface(folders["wordpiece"])
    (folders["model"] / "spiece.model").write_bytes(trained["unigram"].proto)
    (folders["model"] / "tokenizer_config.json").write_text('{"extra_ids": 2, "eos_token": "<eos>"}')
    loaded = load_huggingface(folders["model"])
    assert loaded.get_vocabulary()[72:] == ["<extra_id_1>", "<extra_id_0>"]
    assert loaded.tokenize("a<extra_id_0>", special_tokens=True).numpy()[-1] == 73
    for name in ("XLMRobertaTokenizer", "M2M100Tokenizer"):
        (folders["model"] / "tokenizer_config.json").write_text(json.dumps({"tokenizer_class": name}))
        with pytest.raises(ValueError, match="renumbers the pieces"):
            load_huggingface(folders["model"])
    with pytest.raises(FileNotFoundError, match="holds no tokenizer"):
        load_huggingface(folders["empty"])
    with pytest.raises(FileNotFoundError, match="no directory"):
        load_huggingface(tmp_path / "absent")
    wordpiece.save(folders["empty"])
    with pytest.raises(ValueError, match="read it with Tokenizer.load"):
        load_huggingface(folders["empty"])


def split(pattern, behavior="Isolated", invert=False):
    return {"type": "Split", "pattern": {"Regex": pattern}, "behavior": behavior, "invert": invert}


BYTES = {"type": "ByteLevel", "add_prefix_space": False, "trim_offsets": True, "use_regex": False}


@pytest.mark.parametrize(
    "change, message",
    [
        ({"normalizer": {"type": "Lowercase"}}, r"normalizer must be .*, got \['Lowercase'\]"),
        ({"pre_tokenizer": {"type": "Whitespace"}}, r"pre_tokenizer must be .*, got \['Whitespace'\]"),
        (
            {"pre_tokenizer": {"type": "Sequence", "pretokenizers": [split("a+"), BYTES]}},
            "pre_tokenizer.pattern must be .*'a\\+'",
        ),
        (
            {"pre_tokenizer": {"type": "Sequence", "pretokenizers": [split(PATTERNS["llama3"], "Removed"), BYTES]}},
            "pre_tokenizer.behavior must be .*, got 'Removed'",
        ),
        ({"pre_tokenizer": BYTES}, "without a pattern"),
        ({"pre_tokenizer": {**BYTES, "new_option": 1}}, "pre_tokenizer.new_option must be left out .*, got 1"),
        ({"decoder": {"type": "Metaspace"}}, "decoder must be .*, got 'Metaspace'"),
        ({"post_processor": {"type": "Unheard"}}, "post_processor must be .*, got 'Unheard'"),
        ({"model": {"dropout": 0.1}}, "model.dropout must be .*, got 0.1"),
        ({"model": {"end_of_word_suffix": "</w>"}}, "model.end_of_word_suffix must be .*, got '</w>'"),
        ({"model": {"byte_fallback": True}}, "model.byte_fallback must be .*, got True"),
        ({"model": {"unheard": True}}, "model.unheard must be left out .*, got True"),
        ({"model": {"type": "WordLevel"}}, "model.type must be one of .*, got 'WordLevel'"),
        (
            {"added_tokens": [{"id": 5, "content": "<x>", "special": True}]},
            "as ids are 0, 1, 2, ..., got 5",
        ),
        (
            {"added_tokens": [{"id": 5, "content": "<|endoftext|>", "special": True}]},
            "the id of .* must be 0, as in model.vocab, got 5",
        ),
    ],
)
def test_what_can_not_be_honoured(byte_level, tmp_path, change, message):
    path = tmp_path / "tokenizer.json"
    byte_level_library(byte_level).save(str(path))
    content = json.loads(path.read_text("utf-8"))
    for entry in change.get("added_tokens", []):
        entry.setdefault("id", byte_level.vocabulary_size)
    content.update({**change, "model": {**content["model"], **change.get("model", {})}})
    path.write_text(json.dumps(content))
    with pytest.raises(ValueError, match=message) as error:
        load_huggingface(tmp_path)
    assert "tokenizer.json" in str(error.value)


def test_what_can_not_be_honoured_of_wordpiece(wordpiece, tmp_path):
    path = tmp_path / "tokenizer.json"
    wordpiece_library(wordpiece).save(str(path))
    content = json.loads(path.read_text("utf-8"))
    for part, change, message in (
        ("model", {"max_input_chars_per_word": 50}, "max_input_chars_per_word must be .*, got 50"),
        ("model", {"continuing_subword_prefix": "@@"}, "continuing_subword_prefix must be .*, got '@@'"),
        ("normalizer", {"type": "NFKC"}, r"normalizer must be .*, got \['NFKC'\]"),
        ("pre_tokenizer", {"type": "Whitespace"}, r"pre_tokenizer must be .*, got \['Whitespace'\]"),
        ("decoder", {"cleanup": False}, "cleanup must be .*, got False"),
    ):
        path.write_text(json.dumps({**content, part: {**content[part], **change}}))
        with pytest.raises(ValueError, match=message):
            load_huggingface(tmp_path)
    path.write_text("{")
    with pytest.raises(ValueError, match="is not valid JSON"):
        load_huggingface(tmp_path)
    path.write_text("{}")
    with pytest.raises(ValueError, match="has no 'model'"):
        load_huggingface(tmp_path)
