"""What the base class gives any tokenizer, with a small one that splits at spaces."""

import json

import numpy as np
import pytest
import tensorflow as tf

from zoo.tokenizers import SentencePieceTokenizer, Tokenizer


class SpaceTokenizer(Tokenizer, kind="space_separated_for_tests"):
    """Words that are all in the vocabulary; as in GPT-2, one token starts and ends, and nothing is unknown."""

    def __init__(self, words, end_token="<end>"):
        super().__init__(words, start_token=end_token, end_token=end_token)

    def _detokenize(self, ids):
        return tf.strings.reduce_join(tf.gather(tf.constant(self._vocabulary), ids), axis=1, separator=" ")

    def _config(self):
        return {"end_token": self.id_to_token(self.end_id)}

    def _files(self):
        return {"words.txt": "\n".join(self._vocabulary).encode()}

    @classmethod
    def _from_files(cls, files, config):
        return cls(files["words.txt"].decode().split("\n"), **config)


@pytest.fixture
def tokenizer():
    return SpaceTokenizer(["<end>", "a", "b"])


def test_a_token_that_starts_and_ends(tokenizer):
    rows = [[0, 1, 2, 0, 1], [1, 0, 2], [0], [], [0, 0, 1], [2]]
    assert tokenizer.detokenize(rows).numpy().tolist() == [b"a b", b"a", b"", b"", b"", b"b"]


def test_without_unknown_token_ids_outside_are_dropped(tokenizer):
    assert tokenizer.detokenize([1, 7, -1, 2]).numpy() == b"a b"


@pytest.mark.parametrize("dtype", ["int64", "uint64", "uint32"])
def test_ids_that_32_bits_do_not_hold_are_outside(tokenizer, dtype):
    """2**32 + 1 is not 1."""
    beyond = {"int64": [2**32 + 1, -(2**32) + 1], "uint64": [2**63 + 1, 2**32 + 1], "uint32": [2**31 + 1, 2**32 - 1]}
    ids = np.array([1, *beyond[dtype], 2], dtype)
    assert tokenizer.detokenize(ids).numpy() == b"a b"
    assert tokenizer.detokenize([ids, ids[:1]]).numpy().tolist() == [b"a b", b"a"]


def test_load_finds_the_class(tokenizer, tmp_path):
    tokenizer.save(tmp_path)
    loaded = Tokenizer.load(tmp_path)
    assert type(loaded) is SpaceTokenizer and loaded.get_vocabulary() == tokenizer.get_vocabulary()
    with pytest.raises(ValueError, match="holds a 'space_separated_for_tests' tokenizer, not 'sentencepiece'"):
        SentencePieceTokenizer.load(tmp_path)


class HandingOn(SpaceTokenizer, kind="handing_on_for_tests"):
    """Hands arguments on to its base."""

    def __init__(self, words, **options):
        super().__init__(words, **options)


def test_load_a_tokenizer_that_hands_arguments_on(tmp_path):
    HandingOn(["<end>", "a", "<stop>"], end_token="<stop>").save(tmp_path)
    loaded = Tokenizer.load(tmp_path)
    assert type(loaded) is HandingOn and loaded.end_id == 2
    config = json.loads((tmp_path / "tokenizer.json").read_text())
    config["config"]["color"] = "red"
    (tmp_path / "tokenizer.json").write_text(json.dumps(config))
    with pytest.raises(ValueError, match=r"tokenizer.json: config.color is not known"):
        Tokenizer.load(tmp_path)


def test_errors_of_the_vocabulary():
    with pytest.raises(ValueError, match=r"vocabulary\[3\] must be unique, got 'a' a second time"):
        SpaceTokenizer(["<end>", "a", "b", "a"])
    with pytest.raises(ValueError, match="start_token must be in the vocabulary of 2 tokens, got '<end>'"):
        SpaceTokenizer(["a", "b"])


def test_a_kind_is_taken_once():
    with pytest.raises(ValueError, match="kind must be a new name, got 'sentencepiece', .* SentencePieceTokenizer"):

        class Other(Tokenizer, kind="sentencepiece"):
            pass
