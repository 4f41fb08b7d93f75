"""Training of WordPiece and byte-level BPE: the same every time, equal to a plain count, errors by row."""

import pytest

from zoo.tokenizers import ByteLevelBPETokenizer, WordPieceTokenizer

KINDS = {
    "wordpiece": lambda texts, size: WordPieceTokenizer.train(texts, size, lowercase=False),
    "byte_level": lambda texts, size: ByteLevelBPETokenizer.train(texts, size),
}


@pytest.mark.parametrize("kind", KINDS)
def test_the_same_every_time(sentences, kind):
    size = {"wordpiece": 150, "byte_level": 350}[kind]
    vocabularies = {tuple(KINDS[kind](iter(sentences), size).get_vocabulary()) for _ in range(4)}
    assert len(vocabularies) == 1
    assert len(vocabularies.pop()) == size


def test_merges_are_the_most_frequent_pairs():
    texts = ["low low low lower lower newest newest newest newest newest newest widest widest widest"]
    tokenizer = ByteLevelBPETokenizer.train(texts, 260)
    # e+s and s+t both occur 9 times, es first by its characters; then es+t (9), l+o (5; as w+e is only 8-3)
    assert tokenizer._merges[:2] == [("e", "s"), ("es", "t")]


def test_wordpiece_vocabulary():
    tokenizer = WordPieceTokenizer.train(["hug hugs Hug! pug"] * 5, 18, lowercase=True, special_tokens=["<end>"])
    vocabulary = tokenizer.get_vocabulary()
    assert vocabulary[:6] == ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]", "<end>"]
    assert set(vocabulary[6:12]) == {"!", "h", "p", "##u", "##g", "##s"}
    assert "##ug" in vocabulary and "hug" in vocabulary
    assert tokenizer.detokenize(tokenizer.tokenize("Hugs!")).numpy() == b"hugs!"


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize(
    "texts, size, error, message",
    [
        (["a", b"\xff"], 500, ValueError, r"texts\[1\] is not valid UTF-8"),
        (["a", "b", 3], 500, TypeError, r"texts\[2\] must be str or bytes, got 3"),
        (["", " \t"], 500, ValueError, "texts holds no text: 2 rows"),
        ([], 500, ValueError, "texts holds no text: 0 rows"),
        ("abc", 500, TypeError, "a single str"),
        (["a"], 4, ValueError, "vocabulary_size must be above .*, got 4"),
    ],
)
def test_errors(kind, texts, size, error, message):
    with pytest.raises(error, match=message):
        KINDS[kind](texts, size)


def test_a_vocabulary_too_small_for_the_characters():
    with pytest.raises(ValueError, match="vocabulary_size must be at least 31 .*, got 10"):
        WordPieceTokenizer.train(["abcdefghijklmnopqrstuvwxyz"], 10, lowercase=True)


def test_bytes_are_texts_too(sentences):
    encoded = [sentence.encode("utf-8") for sentence in sentences]
    assert KINDS["byte_level"](encoded, 300).get_config() == KINDS["byte_level"](sentences, 300).get_config()
