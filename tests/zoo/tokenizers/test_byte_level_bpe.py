"""ByteLevelBPETokenizer against the `tokenizers` library, and that texts come back."""

import json

import pytest
import tokenizers

from zoo.tokenizers import ByteLevelBPETokenizer, Tokenizer
from zoo.tokenizers.split_patterns import PATTERNS

pre_tokenizers = tokenizers.pre_tokenizers


def parts(tokenizer):
    files = tokenizer._files()
    merges = [tuple(line.split(" ")) for line in files["merges.txt"].decode().split("\n")[:-1]]
    return json.loads(files["vocab.json"]), merges


def library(tokenizer, split=("gpt2",), add_prefix_space=False, nfc=False, ignore_merges=False):
    """The same tokenizer of the library."""
    vocabulary, merges = parts(tokenizer)
    result = tokenizers.Tokenizer(tokenizers.models.BPE(vocabulary, merges, ignore_merges=ignore_merges))
    if nfc:
        result.normalizer = tokenizers.normalizers.NFC()
    byte_level = pre_tokenizers.ByteLevel(add_prefix_space=add_prefix_space, use_regex=split == ("gpt2",))
    splits = [pre_tokenizers.Split(tokenizers.Regex(PATTERNS[name]), "isolated") for name in split]
    result.pre_tokenizer = byte_level if split == ("gpt2",) else pre_tokenizers.Sequence([*splits, byte_level])
    result.post_processor = tokenizers.processors.ByteLevel(trim_offsets=False)
    result.decoder = tokenizers.decoders.ByteLevel()
    return result


def again(tokenizer, **options):
    vocabulary, merges = parts(tokenizer)
    return ByteLevelBPETokenizer(vocabulary, merges, **options)


DEEPSEEK_V3 = ("numbers", "han_kana", "deepseek_v3")


@pytest.mark.parametrize(
    "split", [("gpt2",), ("llama3",), ("qwen2",), ("gpt4o",), ("bloom",), ("digits", "gpt2"), DEEPSEEK_V3]
)
def test_equals_the_library(byte_level, odd_texts, split):
    ours, theirs = again(byte_level, split=split), library(byte_level, split)
    expected = theirs.encode_batch(odd_texts)
    ids, starts, ends = ours.tokenize_with_offsets(odd_texts)
    for text, encoding, row, begin, end in zip(
        odd_texts, expected, ids.to_list(), starts.to_list(), ends.to_list(), strict=True
    ):
        assert row == encoding.ids, text
        assert list(zip(begin, end, strict=True)) == encoding.offsets, text
    assert ours.tokenize(odd_texts).to_list() == ids.to_list()
    assert [text.decode("utf-8") for text in ours.detokenize(ids).numpy()] == odd_texts


def test_prefix_space_equals_the_library(byte_level, odd_texts):
    ours, theirs = again(byte_level, add_prefix_space=True), library(byte_level, add_prefix_space=True)
    expected = theirs.encode_batch(odd_texts)
    ids, starts, ends = ours.tokenize_with_offsets(odd_texts)
    assert ids.to_list() == [encoding.ids for encoding in expected]
    positions = [list(zip(*row, strict=True)) for row in zip(starts.to_list(), ends.to_list(), strict=True)]
    assert positions == [encoding.offsets for encoding in expected]


def test_nfc_equals_the_library(byte_level, odd_texts):
    ours, theirs = again(byte_level, split="qwen2", normalization="NFC"), library(byte_level, ("qwen2",), nfc=True)
    ids, starts, ends = ours.tokenize_with_offsets(["xe\u0301y", "a\u0301 b"])
    assert ours.tokenize(odd_texts).to_list() == [encoding.ids for encoding in theirs.encode_batch(odd_texts)]
    # Both tokens of the composed letter are from both characters that it was composed of.
    assert starts.to_list()[0] == [0, 1, 1, 3] and ends.to_list()[0] == [1, 3, 3, 4]
    assert ours.tokenize_with_offsets("xe\u0301y", unit="bytes")[2].numpy().tolist() == [1, 4, 4, 5]


def test_whole_words_first(byte_level, odd_texts):
    vocabulary, merges = parts(byte_level)
    for token in ("\u0120runs\u0120", "zqj", "\u0120zqj"):
        vocabulary[token] = len(vocabulary)  # no merge leads there
    ours = ByteLevelBPETokenizer(vocabulary, merges, whole_words_first=True)
    theirs = tokenizers.Tokenizer(tokenizers.models.BPE(vocabulary, merges, ignore_merges=True))
    theirs.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    texts = ["zqj zqj zqjx", "zqjzqj zqj", "zqj", *odd_texts[:200]]
    assert ours.tokenize(texts).to_list() == [encoding.ids for encoding in theirs.encode_batch(texts)]
    assert ours.tokenize("zqj zqj").numpy().tolist() == [vocabulary["zqj"], vocabulary["\u0120zqj"]]
    plain = ByteLevelBPETokenizer(vocabulary, merges)
    assert vocabulary["zqj"] not in plain.tokenize("zqj").numpy()


def test_long_and_repeated(byte_level):
    theirs = library(byte_level)
    texts = [
        "x" * 100_000,
        "the dog " * 12_500,
        " " * 5000,
        "\u4f60" * 3000,
        *("ab-=. \n"[k % 7] * k for k in range(200)),
    ]
    assert byte_level.tokenize(texts).to_list() == [encoding.ids for encoding in theirs.encode_batch(texts)]


def test_invalid_utf8_is_read_as_python_reads_it(byte_level, awkward_texts):
    texts = [text.decode("utf-8", "replace") for text in awkward_texts]
    ids = byte_level.tokenize(awkward_texts)
    assert ids.to_list() == byte_level.tokenize(texts).to_list()
    assert [text.decode("utf-8") for text in byte_level.detokenize(ids).numpy()] == texts


def test_unfinished_characters_come_out_as_replacement_characters(byte_level):
    ids = byte_level.tokenize("\U0001f642").numpy()
    assert len(ids) == 4
    assert byte_level.detokenize(ids[:3]).numpy().decode() == "\ufffd"
    assert byte_level.detokenize(ids[1:2]).numpy().decode() == "\ufffd"


def test_no_tokens(byte_level):
    assert byte_level.tokenize([]).to_list() == []
    assert byte_level.tokenize_with_offsets(["", "a"])[1].to_list() == [[], [0]]
    assert byte_level.detokenize([[], []]).numpy().tolist() == [b"", b""]


def test_saved_and_loaded(byte_level, sentences, tmp_path):
    tokenizer = again(
        byte_level,
        split=("digits", "gpt2"),
        whole_words_first=True,
        end_token="<|endoftext|>",
        special_tokens=["<|im_start|>"],
        strip_left=["<|im_start|>"],
    )
    tokenizer.save(tmp_path)
    loaded = Tokenizer.load(tmp_path)
    assert type(loaded) is ByteLevelBPETokenizer and loaded.get_config() == tokenizer.get_config()
    assert loaded.tokenize(sentences).to_list() == tokenizer.tokenize(sentences).to_list()
    text = "a  <|im_start|>b"
    assert loaded.tokenize(text, special_tokens=True).shape[0] == 3


def test_files(byte_level, tmp_path):
    vocabulary, merges = tmp_path / "vocab.json", tmp_path / "merges.txt"
    files = byte_level._files()
    vocabulary.write_bytes(files["vocab.json"])
    merges.write_bytes(b"#version: 0.2\n" + files["merges.txt"])
    loaded = ByteLevelBPETokenizer.from_files(vocabulary, merges, end_token="<|endoftext|>")
    assert loaded.tokenize("the dog runs").numpy().tolist() == byte_level.tokenize("the dog runs").numpy().tolist()
    merges.write_bytes(b"a b c\n")
    with pytest.raises(ValueError, match="merges.txt: line 1 must be two tokens .*, got 'a b c'"):
        ByteLevelBPETokenizer.from_files(vocabulary, merges)
    vocabulary.write_text("[]")
    with pytest.raises(ValueError, match="must be an object"):
        ByteLevelBPETokenizer.from_files(vocabulary, merges)


def test_errors(byte_level):
    vocabulary, merges = parts(byte_level)
    for change, message in (
        ({"split": "gpt5"}, "split must be one of .*, got 'gpt5'"),
        ({"normalization": "NFKC"}, "normalization must be None or 'NFC', got 'NFKC'"),
        ({"end_token": "<end>"}, "end_token must be in the vocabulary .*, got '<end>'"),
        ({"added_tokens": ["<end>"]}, "added_tokens must be in the vocabulary .*, got '<end>'"),
        ({"strip_left": ["a"]}, "'a' is neither a special nor an added token"),
    ):
        with pytest.raises(ValueError, match=message):
            ByteLevelBPETokenizer(vocabulary, merges, **change)
    with pytest.raises(ValueError, match=r"merges\[0\]=\('a', 'zz'\): the token 'zz'"):
        ByteLevelBPETokenizer(vocabulary, [("a", "zz")])
    with pytest.raises(ValueError, match="256 bytes, got none for 255 of them; the first is 0x00, spelled"):
        ByteLevelBPETokenizer(["a"], [])
    with pytest.raises(ValueError, match="'\u4f60', which stands for no byte"):
        ByteLevelBPETokenizer({**vocabulary, "\u4f60": len(vocabulary)}, merges)
    with pytest.raises(ValueError, match=r"vocabulary\['new'\] must be .*, as ids are 0, 1, 2"):
        ByteLevelBPETokenizer({**vocabulary, "new": len(vocabulary) + 5}, merges)


def gpt2(data_directory):
    folder = data_directory / "tokenizers"
    return folder / "gpt2_bpe_encoder.json", folder / "gpt2_bpe_vocab.bpe"


def test_gpt2_on_golden_cases_and_real_text(data_directory, multi30k_lines):
    ours = ByteLevelBPETokenizer.from_files(*gpt2(data_directory), end_token="<|endoftext|>")
    golden = data_directory / "tokenizers" / "golden"
    texts = (golden / "ggml-vocab-gpt-2.gguf.inp").read_bytes().split(b"\n__ggml_vocab_test__\n")
    lines = (golden / "ggml-vocab-gpt-2.gguf.out").read_text().split("\n")
    assert ours.tokenize(texts).to_list() == [[int(word) for word in line.split()] for line in lines[: len(texts)]]
    theirs = tokenizers.ByteLevelBPETokenizer(*map(str, gpt2(data_directory)))
    lines = [*multi30k_lines, *(data_directory / "wikitext2" / "valid.txt").read_text("utf-8").split("\n")[:1000]]
    ids = ours.tokenize(lines)
    assert ids.to_list() == [encoding.ids for encoding in theirs.encode_batch(lines)]
    assert [line.decode("utf-8") for line in ours.detokenize(ids).numpy()] == lines
