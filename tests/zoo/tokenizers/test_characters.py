import pytest

from zoo.tokenizers import Tokenizer
from zoo.tokenizers.characters import character_tokenizer


def test_tokens_are_the_characters(tmp_path):
    text = "  To be,\n\tor  nöt:\n"
    tokenizer = character_tokenizer([text[:6], text[6:]])
    expected = [4 + sorted(set(text)).index(character) for character in text]
    assert tokenizer.tokenize(text).numpy().tolist() == expected
    assert tokenizer.detokenize(expected).numpy().decode() == text
    assert tokenizer.get_vocabulary() == ["<pad>", "<sos>", "<eos>", "<unk>", *sorted(set(text))]
    tokenizer.save(tmp_path)
    assert Tokenizer.load(tmp_path).tokenize([text, "zzz"]).to_list() == [
        expected,
        [3],
    ]  # a run of unknowns is one token


def test_no_text():
    with pytest.raises(ValueError, match="at least one character"):
        character_tokenizer(["", ""])
