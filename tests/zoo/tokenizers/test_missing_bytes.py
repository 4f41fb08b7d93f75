"""Byte-level BPE without a token for each byte, against the `tokenizers` library.

Run as a program for more cases, and for vocabularies from outside:

    python tests/zoo/tokenizers/test_missing_bytes.py --texts 100000 [--gguf MODEL.gguf]
"""

import argparse
import json
import random
import unicodedata

import pytest
import tokenizers

from zoo.tokenizers import ByteLevelBPETokenizer, Tokenizer, load_huggingface
from zoo.tokenizers.byte_alphabet import byte_characters

pre_tokenizers = tokenizers.pre_tokenizers
# those that SmolLM2's vocabulary lacks, and some of common characters
RARE = [1, 2, 3, 7, 0x1A, 0x7F, 0xC0, 0xC1, *range(0xF5, 0x100)]
COMMON = [*b"qz 7", 0xBC, 0xC3]
CHARACTERS = "abqz 7.\n\t\u00fc\u00e9\u00fb\u0444\U0001f642\u4f60\u597d\x00\x01\x07\x7f\U0010ffff\ufffd'"


def random_texts(count, seed):
    """Random characters, and random bytes as Python reads them."""
    generator = random.Random(seed)
    texts = ["".join(generator.choices(CHARACTERS, k=generator.randrange(24))) for _ in range(count // 2)]
    texts += [generator.randbytes(generator.randrange(24)).decode("utf-8", "replace") for _ in range(count // 4)]
    texts += ["".join(map(chr, generator.choices(range(0x250), k=generator.randrange(24)))) for _ in range(count // 4)]
    return texts


def library_of(vocabulary, merges, split=("gpt2",), unknown=None):
    result = tokenizers.Tokenizer(tokenizers.models.BPE(vocabulary, merges, unk_token=unknown))
    digits = [pre_tokenizers.Digits(individual_digits=True)] * ("digits" in split)
    result.pre_tokenizer = pre_tokenizers.Sequence([*digits, pre_tokenizers.ByteLevel(add_prefix_space=False)])
    result.decoder = tokenizers.decoders.ByteLevel()
    return result


def without(tokenizer, missing):
    """Vocabulary and merges of a tokenizer without those that need certain bytes."""
    characters = {byte_characters()[byte] for byte in missing}
    kept = [token for token in tokenizer.get_vocabulary() if characters.isdisjoint(token) or token.startswith("<|")]
    merges = [pair for pair in tokenizer.merges if characters.isdisjoint("".join(pair))]
    return {token: index for index, token in enumerate(kept)}, merges


def assert_equal(ours, theirs, texts):
    expected = [encoding.ids for encoding in theirs.encode_batch(texts)]
    for text, one, other in zip(texts, ours.tokenize(texts).to_list(), expected, strict=True):
        assert one == other, text


@pytest.mark.parametrize("missing", [RARE, COMMON])
@pytest.mark.parametrize("choice", ["drop", "unknown"])
def test_ids_equal_the_library(byte_level, sentences, missing, choice):
    vocabulary, merges = without(byte_level, missing)
    unknown = "<|im_start|>" if choice == "unknown" else None
    ours = ByteLevelBPETokenizer(
        vocabulary, merges, split=("digits", "gpt2"), missing_bytes=choice, unknown_token="<|im_start|>"
    )
    theirs = library_of(vocabulary, merges, ("digits",), unknown)
    texts = [*random_texts(600, 0), *sentences[:40], "\x01" * 30, "the d\x01og ru\x7fns"]
    assert_equal(ours, theirs, texts)
    ids, starts, ends = ours.tokenize_with_offsets("a \x07b", unit="bytes")
    if missing is RARE:
        # what is dropped has no token, the others keep their places
        places = list(zip(starts.numpy().tolist(), ends.numpy().tolist(), strict=True))
        assert places == [(0, 1), (1, 2), (2, 3), (3, 4)][: len(ids)] if unknown else [(0, 1), (1, 2), (3, 4)]


def test_files_of_the_library(byte_level, tmp_path):
    vocabulary, merges = without(byte_level, RARE)
    texts = random_texts(200, 1)
    for unknown in (None, "<|im_start|>"):
        theirs = library_of(vocabulary, merges, (), unknown)
        theirs.save(str(tmp_path / "tokenizer.json"))
        ours = load_huggingface(tmp_path)
        assert_equal(ours, theirs, texts)
        ours.save(tmp_path / "ours")
        again = Tokenizer.load(tmp_path / "ours")
        assert again.get_config() == ours.get_config()
        assert again.tokenize(texts).to_list() == ours.tokenize(texts).to_list()
    content = json.loads((tmp_path / "tokenizer.json").read_text())
    content["model"]["fuse_unk"] = True
    (tmp_path / "tokenizer.json").write_text(json.dumps(content))
    with pytest.raises(ValueError, match=r"fuse_unk must be"):
        load_huggingface(tmp_path)


def test_positions_are_those_in_the_text(byte_level):
    vocabulary, merges = without(byte_level, RARE)
    ours = ByteLevelBPETokenizer(vocabulary, merges, missing_bytes="drop", normalization="NFC")
    text = "\x01the \x02d\x03og e\u0301\x7f \u00fc x"
    ids, starts, ends = (part.numpy().tolist() for part in ours.tokenize_with_offsets(text))
    assert ours.detokenize(ids).numpy().decode() == "the dog \u00e9 \u00fc x"
    assert starts[0] == 1 and ends[-1] == len(text)
    for token, start, end in zip(ids, starts, ends, strict=True):
        # what a token covers is its text, but for what was dropped within
        covered = unicodedata.normalize("NFC", text[start:end].translate(dict.fromkeys(range(32)) | {0x7F: None}))
        piece = ours.detokenize([token]).numpy().decode()
        assert covered == piece or "\ufffd" in piece and covered in "\u00e9\u00fc"


def test_words_whose_bytes_are_all_dropped_have_no_positions(byte_level):
    vocabulary, merges = without(byte_level, RARE)
    ours = ByteLevelBPETokenizer(vocabulary, merges, missing_bytes="drop", normalization="NFC")
    texts = ["the \x01", "\x02", "", "\x01\n the"]
    ids, starts, ends = (part.to_list() for part in ours.tokenize_with_offsets(texts))
    assert ids == ours.tokenize(texts).to_list()
    assert ids[1:3] == [[], []]
    assert (starts[0][0], ends[3][-1]) == (0, len(texts[3]))


def test_choices_are_checked(byte_level):
    vocabulary, merges = without(byte_level, RARE)
    with pytest.raises(ValueError, match="256 bytes, got none for 19 .* missing_bytes"):
        ByteLevelBPETokenizer(vocabulary, merges)
    with pytest.raises(ValueError, match="missing_bytes must be .* got 'skip'"):
        ByteLevelBPETokenizer(vocabulary, merges, missing_bytes="skip")
    with pytest.raises(ValueError, match="unknown_token"):
        ByteLevelBPETokenizer(vocabulary, merges, missing_bytes="unknown")
    with pytest.raises(ValueError, match="whole_words_first must be False"):
        ByteLevelBPETokenizer(
            {**vocabulary, "a" + byte_characters()[1]: len(vocabulary)},
            merges,
            missing_bytes="drop",
            whole_words_first=True,
        )


def _of_gguf(path):
    """Vocabulary and merges in the metadata of a GGUF file."""
    import gguf

    fields = gguf.GGUFReader(path).fields
    tokens, merges = (fields[f"tokenizer.ggml.{name}"].contents() for name in ("tokens", "merges"))
    return {token: index for index, token in enumerate(tokens)}, [tuple(merge.split(" ")) for merge in merges]


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--texts", type=int, default=20_000)
    parser.add_argument("--gguf")
    arguments = parser.parse_args()
    vocabularies = {}
    if arguments.gguf:
        vocabularies[arguments.gguf] = _of_gguf(arguments.gguf)
    lines = random_texts(2000, 2)
    trained = ByteLevelBPETokenizer.train(lines, 600, special_tokens=["<|im_start|>"])
    for missing in (RARE, COMMON):
        vocabularies[f"without {len(missing)} bytes"] = without(trained, missing)
    for name, (vocabulary, merges) in vocabularies.items():
        special = [token for token in vocabulary if token.startswith("<|")]
        unknown = special[0]
        for choice in ("drop", "unknown"):
            ours = ByteLevelBPETokenizer(
                vocabulary,
                merges,
                split=("digits", "gpt2"),
                missing_bytes=choice,
                unknown_token=unknown,
                special_tokens=special,
            )
            theirs = library_of(vocabulary, merges, ("digits",), unknown if choice == "unknown" else None)
            for seed in range(-(-arguments.texts // 10_000)):
                assert_equal(ours, theirs, random_texts(min(10_000, arguments.texts), seed))
            print(f"{name}, {choice}: {arguments.texts} texts with the same ids")


if __name__ == "__main__":
    main()
