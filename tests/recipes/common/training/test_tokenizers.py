"""The tokenizer of a run: trained once, found again, with its special tokens; options that its kind does not have."""

import dataclasses
from types import SimpleNamespace

import pytest

from recipes.common.errors import ConfigError
from recipes.common.saved_models import language_tokens_of
from recipes.common.training.tokenizers import TokenizerConfig, load_or_train_tokenizer
from zoo.tokenizers import ByteLevelBPETokenizer

TEXTS = [f"<2de> {a} plus {b}" for a in range(12) for b in range(12)]


@pytest.fixture
def run(tmp_path):
    return SimpleNamespace(tokenizer=tmp_path / "tokenizer")


@pytest.mark.parametrize(
    ("kind", "size"), [("characters", 0), ("bytes", 0), ("byte_level_bpe", 270), ("bpe", 40), ("wordpiece", 40)]
)
def test_trained_once_and_found_again(run, kind, size):
    config = TokenizerConfig(kind=kind, vocabulary_size=size)
    trained = load_or_train_tokenizer(config, run, lambda: TEXTS)
    assert trained.detokenize(trained.tokenize(TEXTS[:2])).numpy()[0].decode().replace(" ", "") == "<2de>0plus0"
    again = load_or_train_tokenizer(config, run, list)
    assert again.get_vocabulary() == trained.get_vocabulary()


@pytest.mark.parametrize(("kind", "size"), [("bpe", 28), ("unigram", 21), ("byte_level_bpe", 270), ("bytes", 0)])
def test_special_tokens_are_one_id_and_no_text(run, kind, size):
    config = TokenizerConfig(kind=kind, vocabulary_size=size)
    load_or_train_tokenizer(config, run, lambda: TEXTS, special_tokens=["<2de>"], mask_token="<mask>")
    tokenizer = load_or_train_tokenizer(config, run, list)
    # a SentencePiece model finds them in any text, byte-level models on request
    options = {} if kind in ("bpe", "unigram") else {"special_tokens": True}
    ids = tokenizer.tokenize(["<2de> 1 plus 2"], **options)
    assert ids.to_list()[0].count(tokenizer.token_to_id("<2de>")) == 1
    assert {"<2de>", "<mask>"} <= set(tokenizer.special_tokens) and tokenizer.mask_id is not None
    assert tokenizer.detokenize(ids).numpy()[0].decode().strip() == "1 plus 2"


@pytest.mark.parametrize(("kind", "size"), [("bpe", 34), ("unigram", 26)])
@pytest.mark.parametrize("tokens", [["<2de>", "<2fr>"], ["[de]", ">>fr<<", "to-cz"], []])
def test_language_tokens_of_any_spelling_are_known(run, kind, size, tokens):
    config = TokenizerConfig(kind=kind, vocabulary_size=size)
    tokenizer = load_or_train_tokenizer(config, run, lambda: TEXTS, special_tokens=tokens)
    assert language_tokens_of(SimpleNamespace(tokenizer=tokenizer)) == tokens


def test_sentinels_and_tokens_with_a_role_are_no_language_tokens():
    special = ["<s>", "<extra_id_0>", "<extra_id_99>", "<mask>"]
    tokenizer = ByteLevelBPETokenizer.train(["a"], 270, special_tokens=special)
    roles = {"start_token": "<s>", "mask_token": "<mask>"}
    tokenizer = ByteLevelBPETokenizer.from_config({**tokenizer.get_config(), **roles})
    assert language_tokens_of(SimpleNamespace(tokenizer=tokenizer)) == []


@pytest.mark.parametrize(
    ("kind", "option", "message"),
    [
        ("bpe", {"lowercase": True}, "tokenizer.lowercase must be false with kind 'bpe', got true"),
        ("wordpiece", {"split_digits": True}, "tokenizer.split_digits must be false with kind 'wordpiece', got true"),
        ("bytes", {"character_coverage": 0.99}, "tokenizer.character_coverage must be 1.0 with kind 'bytes', got 0.99"),
        ("bpe", {"vocabulary_size": 5}, "tokenizer: vocabulary_size must be at least .*, got 5"),
    ],
)
def test_options_that_do_not_fit(run, kind, option, message):
    config = dataclasses.replace(TokenizerConfig(kind=kind), **option)
    with pytest.raises(ConfigError, match=message):
        load_or_train_tokenizer(config, run, lambda: TEXTS)


@pytest.mark.parametrize("kind", ["bpe", "unigram", "wordpiece", "byte_level_bpe"])
def test_a_vocabulary_is_as_large_as_the_texts_allow(run, kind, capsys):
    config = TokenizerConfig(kind=kind, vocabulary_size=9999)
    tokenizer = load_or_train_tokenizer(config, run, lambda: TEXTS)
    size = tokenizer.vocabulary_size
    assert size < 500
    said = f"tokenizer: the texts allow {size} tokens, vocabulary_size is 9999"
    assert said in capsys.readouterr().out
